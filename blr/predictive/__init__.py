"""From moments of the activation to probabilities of classes, with their errors."""
