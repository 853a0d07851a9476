"""Conversion of a record to its base class, which a result shows without the further fields."""

from __future__ import annotations

from dataclasses import fields
from typing import TypeVar

from flows.documents import Dataclass

__all__ = ["narrowed"]

T = TypeVar("T", bound=Dataclass)


def narrowed(kind: type[T], value: Dataclass) -> T:
    """Return a value of the base class, with its fields of a value that has more."""
    return kind(**{field.name: getattr(value, field.name) for field in fields(kind)})
