"""The one place where typed values become JSON, and JSON typed values.

A value is a frozen dataclass.  Its fields are the keys of the JSON object, in their order, tuples are its arrays and
`None` its null.  A field that has a default is left out while it holds the default, so a reader of a file takes what
is missing for the default, and a key that the type does not know is passed over: files of other versions are read.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import Field
from functools import cache
from pathlib import Path
from typing import Any, ClassVar, Protocol, TypeVar

from pydantic import JsonValue, TypeAdapter, ValidationError

from catalogs.files.atomic import atomic_write_text
from flows.errors import DocumentError

__all__ = ["Dataclass", "from_document", "json_schema", "read_document", "to_document", "write_document"]


class Dataclass(Protocol):
    """Any instance of a dataclass."""

    __dataclass_fields__: ClassVar[dict[str, Field[Any]]]


T = TypeVar("T", bound=Dataclass)


def to_document(value: Dataclass) -> dict[str, JsonValue]:
    """Return the JSON object of a value.

    Raises
    ------
    pydantic.PydanticSerializationError
        If a field holds something of another type than it declares: a mistake of ours.
    """
    document: dict[str, JsonValue] = _adapter(type(value)).dump_python(
        value, mode="json", by_alias=True, exclude_defaults=True, warnings="error"
    )
    return document


def from_document(kind: type[T], document: Mapping[str, Any], *, source: str) -> T:
    """Return the value of a JSON object; `source` names the object in an error, such as the path of its file.

    Raises
    ------
    DocumentError
        If a key is missing that has no default, or a value is of another type.
    """
    try:
        value: T = _adapter(kind).validate_python(document)
    except ValidationError as error:
        first = error.errors()[0]
        key = ".".join(str(part) for part in first["loc"])
        raise DocumentError(
            f"{source}: got {first['input']!r:.80} for '{key}' ({first['msg']}), expected what `blr` writes; "
            "take the file from a backup, or make it again"
        ) from error
    return value


def json_schema(kind: Any) -> dict[str, Any]:
    """Return the JSON Schema (draft 2020-12) of what `to_document` makes of values of a type, or of several types."""
    return _adapter(kind).json_schema(mode="serialization")


def write_document(path: Path, value: Dataclass) -> None:
    """Write the JSON object of a value; the file is there whole or not at all.

    Raises
    ------
    ValueError
        If a number is NaN or infinite: JSON has none.
    """
    atomic_write_text(path, json.dumps(to_document(value), indent=1, allow_nan=False) + "\n")


def read_document(kind: type[T], path: Path) -> T:
    """Return the value in a file of `write_document`, of this version or an older one.

    Raises
    ------
    DocumentError
        If the file is no JSON, or as `from_document` says.
    OSError
        If it cannot be read.
    """
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise DocumentError(
            f"{path}: got no JSON ({error}), expected what `blr` writes; take the file from a backup, or make it again"
        ) from error
    return from_document(kind, document, source=str(path))


@cache
def _adapter(kind: type[Any]) -> TypeAdapter[Any]:
    return TypeAdapter(kind)
