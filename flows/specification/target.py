"""The table [target]: how the catalogue to classify differs from the labelled one."""

from __future__ import annotations

from collections.abc import Container, Iterable

from pydantic import Field

from catalogs.expressions.expression import parse
from flows.specification._fields import Paths, SpecificationTable
from flows.specification.catalog import CatalogTable, Sentinels, TableName
from flows.specification.photometry import ERROR, Expression

__all__ = ["Target", "check_expressions"]


class Target(SpecificationTable):
    """The catalogue to classify, where it differs from the labelled one."""

    paths: Paths | None = Field(
        default=None, description="Files, folders or globs, relative to the specification; or URLs"
    )
    table: TableName | None = Field(
        default=None,
        description="Table to read from files with several: its name or number; default: catalog.table, or the table "
        "that has the columns",
    )
    columns: dict[str, str] = Field(default={}, description="Our name of a column = its name in the target")
    expressions: dict[str, Expression] = Field(
        default={},
        description="Our name of a column that the target does not have = an expression over its columns, such as "
        "`31.4 - 2.5 * log10(flux_r)`",
    )
    units: dict[str, str] = Field(
        default={},
        description="Our name of a column = its unit, if the target does not state it or states a wrong one",
    )
    sentinels: dict[str, Sentinels] = Field(
        default={}, description="Our name of a column = catalog.sentinels in its place here; [] for none"
    )
    not_detected: dict[str, Sentinels] = Field(
        default={}, description="Our name of a column = catalog.not_detected in its place here; [] for none"
    )
    masked: dict[str, Sentinels] = Field(
        default={}, description="Our name of a column = catalog.masked in its place here; [] for none"
    )
    limits: dict[str, float] = Field(
        default={},
        description="Our name of a column = catalog.limits in its place here, in the target's unit",
    )
    where: Expression | None = Field(
        default=None, description="Condition on the rows to classify (in our names); others get flag 5"
    )


def check_expressions(
    target: Target, catalog: CatalogTable, texts: Iterable[str], bands: Container[str]
) -> None:
    """Raise ValueError where `target.expressions` defines what must be a column, or what another key defines.

    `texts` are the expressions of features and errors, `bands` the names under [photometry].
    """
    vectors = {name for text in texts for name, index in parse(text).cells if index}
    for name in target.expressions:
        key, stem = f"target.expressions.{name}", name.removesuffix(ERROR)
        if name in {catalog.id, catalog.ra, catalog.dec}:
            raise ValueError(
                f"{key}: got an expression for the name or the position of the objects, expected a column of "
                "the target; name it under [target.columns]"
            )
        if name in target.columns:
            raise ValueError(
                f"{key}: got '{name}' under [target.columns] too, expected one of the two; remove the other"
            )
        if name in vectors:
            raise ValueError(
                f"{key}: got an expression, which has one value in each row, for a vector column whose "
                "elements are features, expected a column of the target; name it under [target.columns]"
            )
        if stem != name and stem in bands and stem not in target.expressions:
            raise ValueError(
                f"{key}: got the error of the magnitude '{stem}' without the magnitude, expected both, since "
                f"[photometry] computes them together; add {stem} under [target.expressions]"
            )
