"""Posteriors of the weights: by Laplace, refined, sampled, and the one that is served."""
