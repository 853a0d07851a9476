"""A value as one of its base class: what a result shows of a fuller record."""

from __future__ import annotations

from dataclasses import fields
from typing import TypeVar

from flows.documents import Dataclass

__all__ = ["narrowed"]

T = TypeVar("T", bound=Dataclass)


def narrowed(kind: type[T], value: Dataclass) -> T:
    """Return the value of that kind with the fields of a value that has more."""
    return kind(**{field.name: getattr(value, field.name) for field in fields(kind)})
