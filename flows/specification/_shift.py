"""The table [shift]: what is done where the training set is unlike the catalogue to classify."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, model_validator

from flows.specification._fields import Paths, SpecificationTable

__all__ = ["ClassPrior", "Shift"]

ROUNDING = 0.01
"""Largest difference from 1 of the sum of class shares, which people round."""


def _shares(value: Any) -> Any:
    """Return "em", or shares scaled to sum to one; for a union of types, pydantic would report each error twice."""
    expected = 'expected "em", or a table of the share of each class, as in { early = 0.3, late = 0.7 }'
    if value is None or value == "em":
        return value
    if not isinstance(value, Mapping):
        raise ValueError(f"got {value!r}, {expected}; change it")  # noqa: TRY004  pydantic words ValueErrors
    for name, share in value.items():
        if isinstance(share, bool) or not isinstance(share, (int, float)) or not 0 < share < 1:
            raise ValueError(
                f"got {share!r} as the share of '{name}', expected a number between 0 and 1; correct it"
            )
    total = math.fsum(value.values())
    if abs(total - 1) > ROUNDING:
        raise ValueError(f"got shares that sum to {total:.6g}, expected 1; correct them")
    if math.isclose(total, 1, rel_tol=1e-12):
        return dict(value)  # not scaled, so that reading a stored specification changes no share
    return {name: share / total for name, share in value.items()}


ClassPrior = Annotated[Literal["em"] | dict[str, float] | None, BeforeValidator(_shares)]


class Shift(SpecificationTable):
    """A training set unlike the target: weights for the features, or shares for the classes; never both."""

    target: Paths | None = Field(
        default=None, description="Catalogue the training rows are compared with; default: target.paths"
    )
    density_weights: bool = Field(
        default=False,
        description="Weight each training row by how much more frequent objects like it are in the target",
    )
    class_prior: ClassPrior = Field(
        default=None, description='Class = its share in the target, or "em": estimated from the target'
    )

    class_prior_source: str | None = Field(
        default=None, max_length=200, description="Where those shares come from, in words, for the record"
    )

    assumes: Literal["same", "shares", "features"] | None = Field(
        default=None,
        description="What the census assumes that labelled rows and target have in common; default: a test chooses",
    )

    @model_validator(mode="after")
    def _check(self) -> Shift:
        if self.density_weights and self.class_prior is not None:
            raise ValueError(
                "got density_weights and class_prior, expected one of them: density_weights is right if "
                "equal features mean equal probabilities in both catalogues, class_prior if the classes look "
                "the same and only their shares differ; remove the key whose assumption does not hold"
            )
        return self
