"""The key label.noise: shares of wrong labels by class, as a matrix, or to be estimated."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import BeforeValidator

from catalogs.errors import nearest

__all__ = ["Noise", "check_noise", "stated_confusion"]

EXPECTED = (
    "expected a share above 0 and below 0.5, as noise = 0.02, a table of them by true class, a table of tables by true "
    'and recorded class, or "estimated"'
)


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def _checked(value: Any) -> Any:
    """Return the value of label.noise if it is allowed; ValueError otherwise."""
    if value is None or value == "estimated":
        return value
    if _is_number(value):
        if not 0 < value < 0.5:
            raise ValueError(
                f"got {value}, {EXPECTED}; with 0.5 or more the classes could change places; correct it"
            )
        return float(value)
    if not isinstance(value, Mapping) or not value:
        raise ValueError(f"got {value!r}, {EXPECTED}; change it")
    for name, share in value.items():
        if isinstance(share, Mapping):
            _check_row(str(name), share)
        elif not _is_number(share) or not 0 <= share < 0.5:
            raise ValueError(f"got {share!r} for class '{name}', {EXPECTED}; change it")
    return value


def _check_row(name: str, row: Mapping[Any, Any]) -> None:
    wrong = [share for share in row.values() if not _is_number(share) or not 0 <= share <= 1]
    if wrong:
        raise ValueError(
            f"got {wrong[0]!r} in the row of class '{name}', expected shares from 0 to 1; change it"
        )
    other = sum(share for key, share in row.items() if key != name)
    if other >= 0.5:
        raise ValueError(
            f"got {other:g} as the share of class '{name}' that is recorded as another, expected less than "
            "0.5, since otherwise the classes could change places; correct it"
        )
    if name in row and abs(row[name] + other - 1) > 1e-6:
        raise ValueError(
            f"got shares of class '{name}' that sum to {row[name] + other:g}, expected 1; correct them, or "
            "leave out the share of the class itself"
        )


Noise = Annotated[
    float | Literal["estimated"] | dict[str, float | dict[str, float]], BeforeValidator(_checked)
]


def check_noise(noise: Any, classes: Sequence[str]) -> None:
    """Raise ValueError where the shares name an unknown class."""
    if not isinstance(noise, Mapping):
        return
    named = [*noise, *(key for row in noise.values() if isinstance(row, Mapping) for key in row)]
    for name in named:
        if name not in classes:
            raise ValueError(f"noise: got '{name}', expected one of the classes; {nearest(name, classes)}")


def stated_confusion(noise: Any, classes: Sequence[str]) -> NDArray[np.float64]:
    """Return p(recorded | true class), (K, K), from stated shares; labels of a class without a share are right."""
    K = len(classes)
    rows = noise if isinstance(noise, Mapping) else dict.fromkeys(classes, noise)
    confusion = np.eye(K)
    for name, row in rows.items():
        k = classes.index(name)
        others = row if isinstance(row, Mapping) else {c: row / (K - 1) for c in classes if c != name}
        for recorded, share in others.items():
            confusion[k, classes.index(recorded)] = share
        confusion[k, k] = 0.0
        confusion[k, k] = 1.0 - confusion[k].sum()
    return confusion
