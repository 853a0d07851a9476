"""Files and URLs named by the user: globs and relative paths resolved, and a clear word where there is nothing."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from pathlib import Path

from catalogs.errors import nearest
from catalogs.remote.listing import local_path
from catalogs.remote.urls import has_secret, is_chained, is_remote, shown
from flows.errors import UsageError
from flows.runs.allowed_roots import check_inside, check_url

__all__ = ["Source", "check_no_secret", "check_parameters", "local_sources", "resolve_sources"]

WILD = frozenset("*?[")

Source = Path | str
"""A file or folder of this machine; or the text of a URL, of which only `catalogs.remote.urls.shown` may be told."""


def resolve_sources(patterns: Sequence[str], folder: Path, *, key: str) -> tuple[Source, ...]:
    """Return the files and URLs that patterns, relative to a folder, mean: each once, those of a glob sorted.

    What a URL's pattern matches is its server's to say, later.  `key` says in the errors who named them.
    """
    distinct: dict[str, Source] = {}
    for pattern in patterns:
        for source in _matches(pattern, folder, key):
            distinct.setdefault(_spelt_once(source), source)
    _check_told_apart([source for source in distinct.values() if isinstance(source, str)], key)
    return tuple(check_inside(s, key=key) if isinstance(s, Path) else s for s in distinct.values())


def local_sources(sources: Iterable[Source]) -> list[Path]:
    """Return the sources of this machine."""
    return [source for source in sources if isinstance(source, Path)]


def check_no_secret(patterns: Iterable[str], *, key: str, kept: str, remedy: str) -> None:
    """Raise UsageError where a URL may hold a secret, and would be kept where others can read it."""
    for pattern in patterns:
        if is_remote(pattern) and has_secret(pattern):
            raise UsageError(
                f"{key}: got '{shown(pattern)}' with a user, a password or a query, expected a URL without: {kept}; "
                f"{remedy}"
            )


def check_parameters(catalogues: Iterable[object]) -> None:
    """Raise UsageError where a catalogue's URL may hold a secret: Prefect keeps parameters, and shows them."""
    kept = "Prefect keeps and shows a run's parameters"
    remedy = "put passwords into ~/.netrc or the driver's settings, or run without Prefect: add --direct"
    check_no_secret(map(str, catalogues), key="CATALOG", kept=kept, remedy=remedy)


def _spelt_once(source: Source) -> str:
    """Return what all ways to write a path share: relative or absolute, with dots or without."""
    return os.path.abspath(source) if isinstance(source, Path) else source  # noqa: PTH100  links stay what they are


def _matches(pattern: str, folder: Path, key: str) -> Iterable[Source]:
    if is_remote(pattern):
        return _at_url(pattern, folder, key)
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


def _at_url(url: str, folder: Path, key: str) -> Iterable[Source]:
    if is_chained(url):
        raise UsageError(
            f"{key}: got '{shown(url)}', a file inside another, expected a URL of the file itself; unpack it, or use "
            "catalogs.annotate in Python"
        )
    here = local_path(url)
    return _matches(str(here), folder, key) if here is not None else [check_url(url, key=key)]


def _check_told_apart(urls: Sequence[str], key: str) -> None:
    """Raise UsageError where URLs differ only in what is not written down."""
    first: dict[str, str] = {}
    for url in urls:
        if first.setdefault(shown(url), url) != url:
            raise UsageError(
                f"{key}: got '{shown(url)}' twice, with other queries or users, expected URLs that can be told apart "
                "without, since neither is kept; classify them one by one, or fetch them"
            )
