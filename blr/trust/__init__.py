"""Whether the Gaussian at the mode is good enough: corrections beyond it, and a verdict.

- `importance`: Importance sampling as a test of an approximation: whether the posterior has heavier tails.
- `verdict`: Can a Laplace approximation be trusted?
- `whitened`: Log posterior and gradient at many weights at once, in coordinates that a Gaussian makes white.
- `_corrections`: What the Laplace approximation leaves out, to the next order.
"""

__all__ = ["importance", "verdict", "whitened"]
