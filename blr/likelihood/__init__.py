"""Likelihoods of labels given activations, their links, and the Gaussian priors of the weights.

- `likelihoods`: Likelihoods of logistic models and their derivatives with respect to the activations.
- `links`: Links of binary regression: a latent threshold θ ~ p(θ) and y = f(a) = ∫_{-∞}^{a} p(θ) dθ (PRML
  4.113).
- `mislabelled`: Likelihoods of labels that may be wrong: of a record the sum over the true classes, ln Σ_k
  t_k y_k(a).
- `prior`: Priors of the weights: their precisions, and the contrasts of several classes (PRML, section 3.3).
- `targets`: Targets of a fit: one-hot labels, shares of votes, graded answers, and labels that annotators confuse.
"""

__all__ = ["likelihoods", "links", "mislabelled", "prior", "targets"]
