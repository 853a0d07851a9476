"""Comparison and averaging of models: evidence, left-out predictions and priors."""
