"""Likelihoods of labels given activations, their links, and the Gaussian priors of the weights."""
