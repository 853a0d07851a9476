"""The table [census]: the bins in which the census of a classification counts objects."""

from __future__ import annotations

from itertools import pairwise

from pydantic import Field, model_validator

from flows.specification._fields import SpecificationTable
from flows.specification.photometry import Expression

__all__ = ["CensusTable"]


class CensusTable(SpecificationTable):
    """The bins in which the census of a classification counts objects; annotated files do not depend on them."""

    by: Expression | None = Field(
        default=None,
        description="Expression over features whose bins are counted one by one, such as a magnitude",
    )
    bins: int = Field(
        default=4, ge=2, le=50, description="Number of bins, each with the same number of objects"
    )
    edges: tuple[float, ...] | None = Field(
        default=None,
        min_length=1,
        max_length=49,
        description="Edges between the bins, instead of their number",
    )

    @model_validator(mode="after")
    def _check(self) -> CensusTable:
        if self.by is None and (
            self.edges is not None or self.bins != CensusTable.model_fields["bins"].default
        ):
            raise ValueError(
                'got bins or edges without by, expected the expression whose bins they are; add by = "..." '
                "under [census]"
            )
        if self.edges is not None and any(low >= high for low, high in pairwise(self.edges)):
            raise ValueError(
                f"edges: got {list(self.edges)}, expected numbers in ascending order, as in [16, 18, 20]"
            )
        return self
