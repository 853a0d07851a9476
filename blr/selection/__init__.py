"""Comparison and averaging of models: evidence, left-out predictions, priors and label noise."""
