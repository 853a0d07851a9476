"""Likelihoods of labels given activations, their links, and the Gaussian priors of the weights.

- `confusion`: Confusion matrices of labels: how often a true class k is recorded as class j, C[k, j] =
  p(recorded j | true k).
- `contrasts`: Symmetric softmax weights, solved in K - 1 contrasts.
- `graded`: Nodes over a Gaussian activation a ~ N(m, sd²) for functions of a link: few even for a wide Gaussian.
- `likelihoods`: Likelihoods of logistic models and their derivatives with respect to the activations.
- `links`: Links of binary regression: a latent threshold θ ~ p(θ) and y = f(a) = ∫_{-∞}^{a} p(θ) dθ (PRML
  4.113).
- `mislabelled`: Likelihoods of labels that may be wrong: of a record the sum over the true classes, ln Σ_k
  t_k y_k(a).
- `prior`: The Gaussian prior N(w | m0, S0), of any form (PRML 4.140).
- `targets`: Targets of a fit: labels, soft labels, successes out of trials, vote counts, with sample
  weights.
"""

__all__ = ["confusion", "contrasts", "graded", "likelihoods", "links", "mislabelled", "prior", "targets"]
