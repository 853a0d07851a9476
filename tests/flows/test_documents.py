"""Typed values and their JSON: no value is lost, defaults are left out, and errors name the damaged key."""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from pydantic import TypeAdapter
from pydantic_core import PydanticSerializationError

from flows.documents import from_document, json_schema, read_document, to_document, write_document
from flows.errors import DocumentError


@dataclass(frozen=True)
class Share:
    p: float | None
    n: int = 0


@dataclass(frozen=True)
class Parts:
    name: str
    shares: tuple[Share, ...]
    by_class: dict[str, float]
    note: str | None = None


PARTS = Parts("a", (Share(None), Share(0.5, 3)), {"S": 1.0})


def test_a_file_gives_the_value_back_or_says_what_is_wrong(tmp_path: Path) -> None:
    path = tmp_path / "parts.json"
    with pytest.raises(ValueError, match="Out of range"):
        write_document(path, Share(math.nan))
    assert not path.exists()
    write_document(path, PARTS)
    assert read_document(Parts, path) == PARTS
    path.write_text("{")
    with pytest.raises(DocumentError, match="got text that is not JSON"):
        read_document(Parts, path)


def test_keys_of_other_versions_are_passed_over() -> None:
    document = to_document(PARTS) | {"of a newer version": 1}
    assert from_document(Parts, document, source="parts.json") == PARTS


@pytest.mark.parametrize(
    ("change", "words"),
    [({"name": 3}, "parts.json: got 3 for 'name'"), ({"shares": [{}]}, "for 'shares.0.p' .*required")],
)
def test_what_does_not_fit_is_named(change: dict[str, Any], words: str) -> None:
    with pytest.raises(DocumentError, match=words):
        from_document(Parts, to_document(PARTS) | change, source="parts.json")


def test_a_document_is_as_pydantic_writes_it() -> None:
    adapter = TypeAdapter(Parts)
    assert to_document(PARTS) == adapter.dump_python(PARTS, mode="json", exclude_defaults=True)
    with pytest.raises(PydanticSerializationError):
        to_document(Share(object()))  # type: ignore[arg-type]


def test_the_schema_asks_for_fields_without_a_default() -> None:
    schema = json_schema(Parts)
    assert schema["required"] == ["name", "shares", "by_class"]
    assert schema["$defs"]["Share"]["properties"]["n"]["type"] == "integer"
