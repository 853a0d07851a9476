"""Files named by the user: globs and relative paths resolved, and a clear word where there is nothing."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

from catalogs.errors import nearest
from catalogs.urls import is_remote
from flows.errors import UsageError
from flows.roots import check_inside

__all__ = ["resolve_paths"]

WILD = frozenset("*?[")


def resolve_paths(patterns: Sequence[str], folder: Path, *, key: str) -> tuple[Path, ...]:
    """Return the files that patterns, relative to a folder, mean: each once, those of a glob sorted.

    `key` says in the errors who named them.
    """
    found = [path for pattern in patterns for path in _matches(pattern, folder, key)]
    return tuple(check_inside(path, key=key) for path in dict.fromkeys(found))


def _matches(pattern: str, folder: Path, key: str) -> Iterable[Path]:
    if is_remote(pattern):
        raise UsageError(
            f"{key}: got '{pattern}', expected a path: flows read local files only, inside the roots where there are "
            "such, and know them again by size, time and checksum; fetch it, or use catalogs.annotate in Python"
        )
    path = check_inside(folder / Path(pattern).expanduser(), key=key)
    if path.exists():
        return [path]
    if not WILD.isdisjoint(pattern):
        # A glob below an absolute folder starts at its root, one below a relative folder here.
        start = Path(path.anchor)
        matches = sorted(start.glob(str(path.relative_to(start))))
        if matches:
            return matches
        raise UsageError(
            f"{key}: got '{pattern}', which no file in {folder} matches, expected catalogues; change it"
        )
    beside = [p.name for p in path.parent.iterdir()] if path.parent.is_dir() else []
    hint = nearest(path.name, beside) if beside else f"there is no folder {path.parent}"
    raise UsageError(f"{key}: got '{path}', which does not exist, expected a catalogue; {hint}")
