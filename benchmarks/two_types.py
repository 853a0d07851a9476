"""The model that benchmarks of whole runs classify with: two types that a quadratic in two features tells apart."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from flows.request import TrainRequest
from flows.training.steps import train

__all__ = ["MODEL", "model_of", "types_of"]

MODEL = "benchmark"
LABELLED = "labelled.parquet"
SPECIFICATION = """
name = "{model}"
[catalog]
paths = ["{labelled}"]
id = "id"
[label]
column = "label"
classes = {{ early = ["early"], late = ["late"] }}
[features]
{features}
{extra}
[[candidate]]
basis = {{ kind = "polynomial", degree = 2 }}
"""


def types_of(columns: Mapping[str, np.ndarray[Any, Any]], rng: np.random.Generator) -> np.ndarray[Any, Any]:
    """Return the type (n,) of each row, from the features c0 and c1, each (n,)."""
    late = columns["c0"] + columns["c1"] ** 2 + rng.logistic(size=len(columns["c0"])) > 1
    return np.where(late, "late", "early")


def model_of(folder: Path, features: Sequence[str], extra: str = "") -> None:
    """Train on `labelled.parquet` in the folder, into `models` there; `extra` goes in front of the candidates."""
    spec = folder / "spec.toml"
    listed = "\n".join(f'{name} = "{name}"' for name in features)
    spec.write_text(SPECIFICATION.format(model=MODEL, labelled=LABELLED, features=listed, extra=extra))
    train(TrainRequest(spec, folder / "models"))
