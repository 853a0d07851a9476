"""The table [catalog]: the labelled catalogue, and the values that mark a missing measurement."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import chain, combinations
from typing import Annotated

from pydantic import BeforeValidator, Field, model_validator

from catalogs.catalog.catalog import Checksums
from flows.specification._fields import Paths, PositionUnit, SpecificationTable, listed
from flows.specification.photometry import Expression
from flows.specification.ranges import number_range

__all__ = ["MARKS", "CatalogTable", "Marks", "Sentinels", "TableName", "check_states"]

Sentinels = Annotated[tuple[float | str, ...], BeforeValidator(listed)]
TableName = Annotated[str, Field(min_length=1)] | Annotated[int, Field(ge=0)]

Marks = Mapping[str, tuple[float | str, ...]]
"""Values that mark a missing measurement, by column."""
MARKS = ("sentinels", "not_detected", "masked")
"""The keys with the values of columns that count as missing; each key stands for another reason."""


class CatalogTable(SpecificationTable):
    """The labelled catalogue."""

    paths: Paths = Field(description="Files, folders or globs, relative to the specification; or URLs")
    table: TableName | None = Field(
        default=None,
        description="Table to read from files with several: its name or number; default: the table that has the "
        "columns",
    )
    id: str | None = Field(default=None, description="Column that names an object")
    ra: str | None = Field(default=None, description="Column of right ascension")
    dec: str | None = Field(default=None, description="Column of declination")
    where: Expression | None = Field(default=None, description="Condition that training rows fulfil")
    sentinels: dict[str, Sentinels] = Field(
        default={},
        description="Values of a column that mean: not measured; texts too, as '-' in a CSV file; ranges of numbers, "
        "'..-90' for all below -90, '90..' for all from 90 on",
    )
    position_unit: PositionUnit | None = Field(
        default=None, description="Unit of the position; default: what the columns say"
    )
    not_detected: dict[str, Sentinels] = Field(
        default={},
        description="Values of a column that mean: looked at, and not seen (flag 8); texts too, '>' for all that begin "
        "so, as '>23.1'; \"blank\": null, NaN or ''",
    )
    masked: dict[str, Sentinels] = Field(
        default={},
        description="Values of a column that mean: measured, but not to be used; texts too; \"blank\": null, NaN or ''",
    )
    limits: dict[str, float] = Field(
        default={}, description="Value that a column takes where not detected; default: it is missing"
    )
    checksums: Checksums = Field(
        default="quarantine",
        description="What happens to a file whose bytes have other checksums than it states (FITS, Parquet): "
        '"quarantine", "warn", "ignore"',
    )
    weight: Expression | None = Field(
        default=None, description="Weight of a training row, an expression; default 1"
    )

    @model_validator(mode="after")
    def _check_states(self) -> CatalogTable:
        check_states({key: getattr(self, key) for key in MARKS})
        return self


def check_states(marks: Mapping[str, Marks]) -> None:
    """Raise ValueError where a value of a column has two meanings, or a range is empty; `marks` by key and column."""
    for some in marks.values():
        for mark in chain.from_iterable(some.values()):
            if isinstance(mark, str):
                number_range(mark)
    for (one, values), (other, others) in combinations(marks.items(), 2):
        both = [(name, v) for name, some in values.items() for v in some if v in others.get(name, ())]
        for name, value in both:
            raise ValueError(
                f"got {value!r} of column '{name}' in {one} and in {other}, expected it in one of them, "
                "since they have different meanings; remove it from the other"
            )
