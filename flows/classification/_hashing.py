"""Hashes of inputs whose state differs from the recorded one, since only the content says whether they changed."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from pathlib import Path

from flows.engines.engine import Engine
from flows.runs.outputs import file_sha256

__all__ = ["Hashes", "hashes_here", "hashes_on"]

Hashes = Callable[[Iterable[Path]], Mapping[Path, str]]
"""A function that returns the SHA-256 of files by path, without files that are gone."""


def hashes_here(paths: Iterable[Path]) -> Mapping[Path, str]:
    """Return the hashes of files, read one after the other."""
    found: dict[Path, str] = {}
    for path in paths:
        with suppress(FileNotFoundError):
            found[path] = file_sha256(path)
    return found


def hashes_on(engine: Engine) -> Hashes:
    """Return a function that hashes files on the workers of an engine."""

    def hashes(paths: Iterable[Path]) -> Mapping[Path, str]:
        places = {str(path.absolute()): path for path in paths}
        found = {
            places[place]: result
            for place, result in engine.map(hash_file, places)
            if isinstance(result, str) and result
        }
        missing = (
            path for path in places.values() if path not in found
        )  # Deleted, or not reachable from a worker.
        return {**found, **hashes_here(missing)}

    return hashes


def hash_file(path: str) -> str:
    """Return the SHA-256 of a file; '' where it is not there."""
    try:
        return file_sha256(Path(path))
    except FileNotFoundError:
        return ""
