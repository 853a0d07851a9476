"""A member of a classifier: one model and its share.  Shapes: N rows, F features, M basis functions."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from blr.arrays import Matrix
from blr.basis.base import Basis
from blr.basis.kinds import basis_from_dict
from blr.posterior.posterior import Posterior

__all__ = ["Member"]


@dataclass(frozen=True, eq=False)
class Member:
    """One model: a basis on some of the features, its posterior, and its share in the average.

    `columns` index the classifier's features.
    """

    basis: Basis
    posterior: Posterior
    columns: tuple[int, ...]
    weight: float = 1.0

    def design(self, X: Matrix) -> Matrix:
        """Return Phi (N, M) of the classifier's features X (N, F)."""
        return self.basis(X[:, list(self.columns)])

    def to_dict(self) -> dict[str, Any]:
        """Return what `from_dict` takes."""
        return {
            "basis": self.basis.to_dict(),
            "posterior": self.posterior.to_dict(),
            "columns": list(self.columns),
            "weight": float(self.weight),
        }

    @classmethod
    def from_dict(cls, d: Mapping[str, Any]) -> Member:
        """Return the member of `to_dict`."""
        posterior = Posterior.from_dict(d["posterior"])
        return cls(basis_from_dict(d["basis"]), posterior, tuple(d["columns"]), d["weight"])
