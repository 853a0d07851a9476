"""Result files of flow runs hold JSON; whatever else is put in their place is not loaded.

A result file itself names what is to read it, and Prefect obeys: one that says "pickle" runs code.  So a process of
ours, which runs one flow and then ends, reads JSON and nothing else.  Not for a user's own program, which may have
good pickles of its own.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, NoReturn

from prefect.serializers import CompressedSerializer, JSONSerializer, PickleSerializer

from flows.errors import FlowError

__all__ = ["PREFECTS", "read_json_only"]

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
        f"got a result that is to be read by {serializer.type!r}, expected JSON: somebody has put it there, and it "
        "may hold code; find out who, and empty the folder of results"
    )


def _loads_plain(serializer: JSONSerializer, blob: bytes) -> Any:
    ours = (_PLAIN.jsonlib, _PLAIN.object_decoder, _PLAIN.loads_kwargs)
    if (serializer.jsonlib, serializer.object_decoder, serializer.loads_kwargs) != ours:
        _refuse(serializer, blob)
    return PREFECTS[JSONSerializer](serializer, blob)
