"""The one place where typed values become JSON, where JSON becomes typed values again, and where templates are found.

A value is a frozen dataclass, whose leaves may be typed dictionaries.  Its fields become the keys of a JSON object, in
the order of the class; a tuple becomes an array, and `None` becomes null.

Files of older and newer versions stay readable.  A field of a dataclass that holds its default is not written, and a
missing key is read as the default.  A key that the type does not have is ignored.

Pages and texts for people are templates of Jinja in `flows/templates`, where tables of words lie too.
"""

from __future__ import annotations

import base64
import hashlib
import json
import tomllib
from collections.abc import Callable, Mapping
from dataclasses import MISSING, Field, fields, is_dataclass
from datetime import UTC, datetime
from functools import cache
from importlib import resources
from pathlib import Path
from typing import Any, ClassVar, Protocol, TypeVar

from pydantic import BaseModel, JsonValue, TypeAdapter, ValidationError
from pydantic_core import to_jsonable_python

from catalogs.files import atomic_write_text
from flows.errors import DocumentError


class Dataclass(Protocol):
    """Any instance of a dataclass."""

    __dataclass_fields__: ClassVar[dict[str, Field[Any]]]


T = TypeVar("T", bound=Dataclass)


def to_document(value: Dataclass) -> dict[str, JsonValue]:
    """Return the JSON object of a value, without the fields that hold their default.

    PydanticSerializationError if a field holds what JSON has no form for: a bug of ours.
    """
    return {
        field.name: _to_json(held)
        for field in fields(value)
        if (held := getattr(value, field.name)) != _default(field)
    }


def _default(field: Field[Any]) -> Any:
    """Return the default of a field; of one without, `MISSING`, which equals nothing else."""
    return field.default if field.default_factory is MISSING else field.default_factory()


def _to_json(value: Any) -> JsonValue:
    """Return a value as JSON has it; no schema is built, which would take a quarter of a second for a catalogue."""
    match value:
        case None | bool() | int() | float() | str():
            return value
        case Mapping():
            return {str(key): _to_json(held) for key, held in value.items()}
        case tuple() | list():
            return [_to_json(held) for held in value]
        case BaseModel():
            model: JsonValue = value.model_dump(mode="json", exclude_defaults=True)
            return model
        case _ if is_dataclass(value) and not isinstance(value, type):
            return to_document(value)
    plain: JsonValue = to_jsonable_python(value)  # paths, times
    return plain


def from_document(kind: type[T], document: Mapping[str, Any], *, source: str) -> T:
    """Return the value of type `kind` that a JSON object describes; keys that the type does not have are ignored.

    `source` says in errors where the object comes from, for example the path of its file.

    DocumentError if a key without a default is missing, or a value has the wrong type.
    """
    return _validated(_adapter(kind).validate_python, document, source)


def from_json(kind: type[T], text: str | bytes, *, source: str) -> T:
    """Return the value that a JSON text describes, as `from_document` does; in a third of the time.

    DocumentError if the text is not JSON, or as for `from_document`.
    """
    return _validated(_adapter(kind).validate_json, text, source)


def _validated(validate: Callable[[Any], Any], given: object, source: str) -> Any:
    try:
        return validate(given)
    except ValidationError as error:
        first = error.errors()[0]
        got = f"{first['input']!r:.80} for '{'.'.join(map(str, first['loc']))}'"
        if first["type"] == "json_invalid":
            got = "text that is not JSON"
        raise DocumentError(
            f"{source}: got {got} ({first['msg']}), expected a document that `blr` wrote; restore the file from a "
            "backup, or write it again"
        ) from error


def json_schema(kind: Any) -> dict[str, Any]:
    """Return the JSON Schema (draft 2020-12) of the objects that `to_document` returns for a type.

    `kind` is a dataclass, or a union of dataclasses.
    """
    return _adapter(kind).json_schema(mode="serialization")


def write_document(path: Path, value: Dataclass) -> None:
    """Write the JSON object of a value; the file is written whole or not at all.

    ValueError if a number is NaN or infinite, which JSON cannot hold; PydanticSerializationError as for
    `to_document`.
    """
    atomic_write_text(path, json.dumps(to_document(value), indent=1, allow_nan=False) + "\n")


def read_document(kind: type[T], path: Path) -> T:
    """Return the value in a file that `write_document` wrote, in this version or another.

    DocumentError if the file is not JSON, or does not describe a value of the type (see `from_document`); OSError
    if the file cannot be read.
    """
    return from_json(kind, path.read_bytes(), source=str(path))


@cache
def _adapter(kind: type[Any]) -> TypeAdapter[Any]:
    return TypeAdapter(kind)


def utc_now() -> str:
    """Return this moment as documents have it: ISO 8601 in UTC."""
    return datetime.now(UTC).isoformat(timespec="seconds")


@cache
def template(name: str, **filters: Callable[[Any], str]) -> Any:
    """Return a template of ours, of Jinja, which may use these filters; what goes into a page of HTML is escaped."""
    from jinja2 import Environment, PackageLoader, StrictUndefined  # noqa: PLC0415 -- slow to import

    environment = Environment(
        loader=PackageLoader("flows", "templates"),
        autoescape=name.endswith(".html.j2"),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    environment.filters |= filters
    return environment.get_template(name)


@cache
def word_table(name: str) -> Mapping[str, Any]:
    """Return a table of ours in TOML of what is said in pages, lists and checks."""
    return tomllib.loads(template_text(name))


def template_text(name: str) -> str:
    """Return the text of a file of ours beside the templates."""
    return resources.files("flows").joinpath("templates", name).read_text(encoding="utf-8")


def script(name: str) -> dict[str, Any]:
    """Return a script of ours for a page's template, and its hash for the page's policy, which allows no other."""
    from markupsafe import Markup  # noqa: PLC0415 -- only pages need it

    text = template_text(name)
    digest = base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
    return {"script": Markup(text), "script_hash": f"sha256-{digest}"}  # noqa: S704  our own file
