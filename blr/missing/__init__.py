"""Features that are missing or measured with errors, integrated out; and rows unlike the training set."""
