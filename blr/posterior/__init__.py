"""Posteriors of the weights: by Laplace, refined, sampled, and the one that is served.

- `bridge`: Log evidence of a sampled posterior by bridge sampling, with its Monte Carlo error.
- `ensemble`: Predictions averaged over draws of the weights: what a sampled posterior says of a row.
- `kinds`: The posteriors of the weights: what may be asked of all of them, and the six kinds.
- `laplace`: The Laplace approximation: a Gaussian about the mode, with the curvature found there (PRML 4.4).
- `repair`: The posterior that is served: the refined one where it holds, else what chains put in its place.
- `sampling`: The sampled posterior: draws from Markov chains that leave the exact posterior invariant.
- `variational`: The refined posterior: the Gaussian that is nearest to the posterior as a whole.
- `_hamiltonian`: Hamiltonian Monte Carlo, and the tests of its convergence.
- `_short_chains`: Probabilities of the exact posterior at a few rows, to a stated error.
"""

__all__ = ["bridge", "ensemble", "kinds", "laplace", "repair", "sampling", "variational"]
