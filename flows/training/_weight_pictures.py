"""Arrays for the pictures of weights: their path to the mode, and the exact and approximate posterior of two weights.

Shapes: I iterations, W weights shown, D weights, S draws.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, Final

import numpy as np

from blr.basis.base import Basis
from blr.posterior.kinds import LaplacePosterior
from blr.posterior.pair import weight_pair
from blr.posterior.posterior import Posterior
from flows.reports.picture_data import WeightPictures

__all__ = ["weight_pictures"]

Array = np.ndarray[Any, Any]

MOST_SHOWN: Final = 6
"""Most weights whose path is shown: as many as there are colours."""
PRODUCT: Final = re.compile(r"(?<!,) ")
"""Blank between two factors in a function's name; after a comma a number follows."""


def weight_pictures(
    laplace: LaplacePosterior,
    served: Posterior,
    basis: Basis,
    features: Sequence[str],
    classes: Sequence[str],
    rng: np.random.Generator,
) -> WeightPictures:
    """Return the arrays of the pictures; `laplace` is the fit with its data, `served` the posterior that is used."""
    names = _weight_names(laplace, basis, features, classes)
    path = laplace.path
    shown: dict[str, Array] = {}
    if path is not None and len(path) > 1:
        weights = np.stack([laplace.problem.class_weights(theta) for theta in path])
        largest = np.sort(np.argsort(-np.abs(weights[-1]), kind="stable")[:MOST_SHOWN])
        shown |= {"newton_weights": weights[:, largest], "newton_names": names[largest]}
    pair = weight_pair(laplace, served, rng)
    if pair is not None:
        shown |= {
            "pair_names": names[list(pair.indices)],
            "pair_laplace_mean": pair.laplace[0],
            "pair_laplace_covariance": pair.laplace[1],
            "pair_refined_mean": pair.refined[0],
            "pair_refined_covariance": pair.refined[1],
            "pair_draws": pair.draws.astype(np.float32),
            "pair_weight": pair.weight.astype(np.float32),
        }
    return WeightPictures(**shown)


def _weight_names(
    q: LaplacePosterior, basis: Basis, features: Sequence[str], classes: Sequence[str]
) -> Array:
    """Return the names (D,) of the weights: that of the function, after that of the class if classes have their own."""
    words = basis.names([feature.replace(" ", "_") for feature in features])
    functions = ["intercept" if name == "1" else PRODUCT.sub(" × ", name).replace("_", " ") for name in words]
    if q.problem.binary:
        return np.array(functions)
    return np.array([f"{name}: {function}" for name in classes for function in functions])
