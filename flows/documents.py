"""The one place where typed values become JSON, and where JSON becomes typed values again.

A value is a frozen dataclass.  Its fields become the keys of a JSON object, in the order of the class; a tuple becomes
an array, and `None` becomes null.

Files of older and newer versions stay readable.  A field that holds its default is not written, and a missing key is
read as the default.  A key that the type does not have is ignored.
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


class Dataclass(Protocol):
    """Any instance of a dataclass."""

    __dataclass_fields__: ClassVar[dict[str, Field[Any]]]


T = TypeVar("T", bound=Dataclass)


def to_document(value: Dataclass) -> dict[str, JsonValue]:
    """Return the JSON object of a value, without the fields that hold their default.

    Raises
    ------
    pydantic.PydanticSerializationError
        If a field holds something of another type than it declares: a bug of ours.
    """
    document: dict[str, JsonValue] = _adapter(type(value)).dump_python(
        value, mode="json", by_alias=True, exclude_defaults=True, warnings="error"
    )
    return document


def from_document(kind: type[T], document: Mapping[str, Any], *, source: str) -> T:
    """Return the value of type `kind` that a JSON object describes; keys that the type does not have are ignored.

    `source` says in errors where the object comes from, for example the path of its file.

    Raises
    ------
    DocumentError
        If a key without a default is missing, or a value has the wrong type.
    """
    try:
        value: T = _adapter(kind).validate_python(document)
    except ValidationError as error:
        raise _document_error(error, source) from error
    return value


def from_json(kind: type[T], text: str, *, source: str) -> T:
    """Return the value that a JSON text describes, as `from_document` does; in a third of the time.

    Raises
    ------
    DocumentError
        If the text is not JSON, or as for `from_document`.
    """
    try:
        value: T = _adapter(kind).validate_json(text)
    except ValidationError as error:
        raise _document_error(error, source) from error
    return value


def _document_error(error: ValidationError, source: str) -> DocumentError:
    first = error.errors()[0]
    key = ".".join(str(part) for part in first["loc"])
    return DocumentError(
        f"{source}: got {first['input']!r:.80} for '{key}' ({first['msg']}), expected a document that `blr` "
        "wrote; restore the file from a backup, or write it again"
    )


def json_schema(kind: Any) -> dict[str, Any]:
    """Return the JSON Schema (draft 2020-12) of the objects that `to_document` returns for a type.

    `kind` is a dataclass, or a union of dataclasses.
    """
    return _adapter(kind).json_schema(mode="serialization")


def write_document(path: Path, value: Dataclass) -> None:
    """Write the JSON object of a value; the file is written whole or not at all.

    Raises
    ------
    ValueError
        If a number is NaN or infinite, which JSON cannot hold.
    pydantic.PydanticSerializationError
        As for `to_document`.
    """
    atomic_write_text(path, json.dumps(to_document(value), indent=1, allow_nan=False) + "\n")


def read_document(kind: type[T], path: Path) -> T:
    """Return the value in a file that `write_document` wrote, in this version or another.

    Raises
    ------
    DocumentError
        If the file is not JSON, or does not describe a value of the type (see `from_document`).
    OSError
        If the file cannot be read.
    """
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise DocumentError(
            f"{path}: got text that is not JSON ({error}), expected a document that `blr` wrote; restore the "
            "file from a backup, or write it again"
        ) from error
    return from_document(kind, document, source=str(path))


@cache
def _adapter(kind: type[Any]) -> TypeAdapter[Any]:
    return TypeAdapter(kind)
