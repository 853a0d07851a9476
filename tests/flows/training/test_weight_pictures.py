"""Names of weights in the pictures of a training."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np

from blr.basis.kinds import BASES
from flows.training._weight_pictures import _weight_names


def test_a_product_of_features_has_its_sign() -> None:
    X = np.random.default_rng(0).normal(size=(50, 2))
    binary, softmax = (SimpleNamespace(problem=SimpleNamespace(binary=of)) for of in (True, False))
    names = _weight_names(binary, BASES["polynomial"].fit(X), ["b_v", "mag"], ["E", "S"])
    assert names.tolist() == ["intercept", "b v", "mag", "b v^2", "b v × mag", "mag^2"]
    assert "S: b v × mag" in _weight_names(softmax, BASES["polynomial"].fit(X), ["b_v", "mag"], ["E", "S"])
    steps = _weight_names(binary, BASES["sigmoid"].fit(X, centres=2), ["b_v", "mag"], ["E", "S"])
    assert steps.tolist()[:2] == ["intercept", "sigmoid(b v, 1)"]
