"""Result files of flow runs hold JSON, and give the typed value back; whatever else is put there is not loaded.

Prefect's own JSON has a key "data" for a typed value, which its reader of result files takes for the mark of an old
format, so that the type is lost.  `RESULTS` writes other keys, and reads only values of ours.

A result file names the format in which Prefect reads it, and a file that says "pickle" runs code. So our processes,
which run one flow and then end, read JSON only. Programs of users are not restricted, since they may have their own
pickles.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import is_dataclass
from typing import Any, Final, NoReturn

from prefect.serializers import CompressedSerializer, JSONSerializer, PickleSerializer
from prefect.utilities.importtools import from_qualified_name, to_qualified_name

from flows.documents import from_document, to_document
from flows.errors import FlowError

__all__ = ["PREFECTS", "RESULTS", "decode_value", "encode_value", "read_json_only"]

KIND, DOCUMENT = "blr_kind", "blr_document"
"""The keys of a typed value: the name of its class, and its JSON object."""


def encode_value(value: Any) -> dict[str, Any]:
    """Return the JSON object of a typed value, with the name of its type; of an error, its message as a FlowError's."""
    if isinstance(value, Exception):
        return {KIND: to_qualified_name(FlowError), DOCUMENT: str(value)}
    return {KIND: to_qualified_name(type(value)), DOCUMENT: to_document(value)}


def decode_value(document: dict[str, Any]) -> Any:
    """Return the value of `encode_value`; any other JSON object as it is.

    Raises
    ------
    FlowError
        If the type is not one of ours.
    """
    if document.keys() != {KIND, DOCUMENT}:
        return document
    name = str(document[KIND])
    if name == to_qualified_name(FlowError):
        return FlowError(document[DOCUMENT])
    kind = from_qualified_name(name) if name.startswith("flows.") else None
    if not (isinstance(kind, type) and is_dataclass(kind)):
        raise FlowError(
            f"got a result of the type '{name}', expected a type of the package 'flows': another version or "
            "another program wrote it; find out which, and empty the folder of results"
        )
    return from_document(kind, document[DOCUMENT], source="a result of a run")


RESULTS: Final[JSONSerializer[Any]] = JSONSerializer(
    object_encoder="flows.orchestration.results.encode_value",
    object_decoder="flows.orchestration.results.decode_value",
)
"""How the results of our flows are kept."""

PREFECTS: Final[dict[type, Callable[..., Any]]] = {
    s: s.loads for s in (PickleSerializer, CompressedSerializer, JSONSerializer)
}
"""Prefect's own readers."""
_PLAIN = JSONSerializer()


def read_json_only() -> None:
    """Let this process refuse every result that is not plain JSON."""
    setattr(PickleSerializer, "loads", _refuse)  # noqa: B010 - methods are not meant to be assigned
    setattr(CompressedSerializer, "loads", _refuse)  # noqa: B010
    setattr(JSONSerializer, "loads", _loads_plain)  # noqa: B010


def _refuse(serializer: Any, blob: bytes) -> NoReturn:  # noqa: ARG001
    raise FlowError(
        f"got a result in the format {serializer.type!r}, expected JSON: another program wrote it, and it "
        "may contain code; find out which, and empty the folder of results"
    )


def _loads_plain(serializer: JSONSerializer, blob: bytes) -> Any:
    ours = [(own.jsonlib, own.object_decoder, own.loads_kwargs) for own in (_PLAIN, RESULTS)]
    if (serializer.jsonlib, serializer.object_decoder, serializer.loads_kwargs) not in ours:
        _refuse(serializer, blob)
    return PREFECTS[JSONSerializer](serializer, blob)
