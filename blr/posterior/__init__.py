"""Posteriors of the weights: by Laplace, refined, sampled, and the one that is served.

- `bridge`: Log evidence of a sampled posterior by bridge sampling, with its Monte Carlo error.
- `ensemble`: Predictions averaged over draws of the weights: what a sampled posterior says of a row (PRML
  4.145 as a mean).
- `kinds`: The kinds of posteriors of the weights, one class each: the Laplace approximation, and five that improve
  on it.
- `laplace`: The Laplace approximation: a Gaussian about the mode, with the curvature found there (PRML 4.4,
  4.5.1).
- `posterior`: What may be asked of every posterior of the weights, whatever found it.
- `repair`: The posterior that is served: the refined one where it holds, else what chains put in its place.
- `sampling`: The sampled posterior: draws from Markov chains that leave the exact posterior invariant.
- `variational`: The refined posterior: the Gaussian that is nearest to the posterior as a whole, not only
  at its mode.

For this folder alone:

- `_hamiltonian`: Samples of a posterior by Hamiltonian Monte Carlo, as draws of the weights, with the tests of their
  convergence.
- `_short_chains`: Probabilities of the exact posterior at a few rows, to a stated error: the check of an
  approximation.
- `_summary`: A posterior in a line, and its weights as a table.
- `_weights`: The base of all kinds of posteriors: a Gaussian of the weights, and its predictions for new rows.
"""

__all__ = ["bridge", "ensemble", "kinds", "laplace", "posterior", "repair", "sampling", "variational"]
