"""Bayesian logistic classification that knows when it does not know."""
