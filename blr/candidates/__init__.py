"""Candidates for a classifier: how each is fitted, which are chosen, and the model that they make."""
