"""Positions, neighbours and photometry of objects on the sky.

- `photometry`: Photometry: magnitudes from fluxes, their errors, extinction, and what a missing value
  means.
- `positions`: Positions on the sky: their columns, their neighbours, and where surveys show them.
"""

__all__ = ["photometry", "positions"]
