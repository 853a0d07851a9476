"""What the tables of a specification share: how each is read, and the kinds of values that several of them hold."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field

from catalogs.remote.urls import has_secret, is_remote, shown

__all__ = ["Paths", "PositionUnit", "SourceText", "SpecificationTable", "listed"]


class SpecificationTable(BaseModel):
    """A table of the specification: no unknown keys, no changes once read, no infinities."""

    model_config = ConfigDict(extra="forbid", frozen=True, str_strip_whitespace=True, allow_inf_nan=False)


def listed(value: Any) -> Any:
    """Return a lone value as a tuple of one: a list of one need not be written as such."""
    return (value,) if isinstance(value, (str, int, float)) and not isinstance(value, bool) else value


def without_secret(path: str) -> str:
    """Return a path or URL; ValueError where a URL may hold a secret: specifications are kept where others read."""
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
"""As of `catalogs.sky.positions`, which a specification is read without."""
