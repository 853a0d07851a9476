"""The base class of the tables of a specification, and the types of values that several tables have."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field

from catalogs.remote.urls import has_secret, is_remote, shown

__all__ = ["Paths", "PositionUnit", "SourceText", "SpecificationTable", "listed"]


class SpecificationTable(BaseModel):
    """A table of the specification: without unknown keys, infinities, or later changes."""

    model_config = ConfigDict(
        extra="forbid", frozen=True, str_strip_whitespace=True, allow_inf_nan=False, defer_build=True
    )


def listed(value: Any) -> Any:
    """Return a single value as a tuple of one, so that users need not write a list for it."""
    return (value,) if isinstance(value, (str, int, float)) and not isinstance(value, bool) else value


def without_secret(path: str) -> str:
    """Return a path or URL; ValueError where a URL may hold a secret, since other people read specifications."""
    if is_remote(path) and has_secret(path):
        raise ValueError(
            f"got '{shown(path)}' with a user, a password or a query, expected a URL without them, since a "
            "specification is kept in models and on Prefect's pages; put passwords into ~/.netrc or the "
            "driver's settings, or fetch the file"
        )
    return path


SourceText = Annotated[str, AfterValidator(without_secret)]
Paths = Annotated[tuple[SourceText, ...], BeforeValidator(listed), Field(min_length=1)]
PositionUnit = Literal["deg", "rad", "sexagesimal", "hours"]
"""The same units as in `catalogs.sky.positions`, which this module does not import."""
