"""Training: rows are read and staged, `blr.candidates` makes a classifier of them, and the model is saved."""
