"""Files and URLs named by the user: globs and relative paths resolved, and a clear error where there is nothing."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from pathlib import Path

from catalogs.files.folders import is_pattern, what_is_there
from catalogs.remote.listing import local_path
from catalogs.remote.urls import has_secret, is_chained, is_remote, shown
from flows.errors import UsageError
from flows.inputs.source import LocalSource, RemoteSource, Source, local_sources
from flows.runs.allowed_roots import check_inside, check_url

__all__ = [
    "check_apart",
    "check_no_copies_below",
    "check_no_secret",
    "check_parameters",
    "resolve_one",
    "resolve_sources",
]

WILD = frozenset("*?[")


def resolve_sources(patterns: Sequence[str], folder: Path, *, key: str) -> tuple[Source, ...]:
    """Return the files and URLs that patterns, relative to a folder, mean: each once, those of a glob sorted.

    What a URL's pattern matches is its server's to say, later.  `key` says in the errors who named them.
    """
    distinct: dict[str, Path | str] = {}
    for pattern in patterns:
        for place in _matches(pattern, folder, key):
            distinct.setdefault(_spelt_once(place), place)
    _check_told_apart([place for place in distinct.values() if isinstance(place, str)], key)
    return tuple(
        RemoteSource(place) if isinstance(place, str) else LocalSource.at(place)
        for place in distinct.values()
    )


def resolve_one(name: str | Path, *, key: str) -> Source:
    """Return the one catalogue that a name means: a pattern's files are one, and are listed when it is opened."""
    if isinstance(name, str) and is_remote(name):
        (source,) = resolve_sources([name], Path(), key=key)
        return source
    path = Path(name)
    return LocalSource(path, "pattern") if is_pattern(path) else LocalSource.at(path)


def check_no_copies_below(sources: Iterable[Source], out: Path) -> None:
    """Raise UsageError where copies would be inputs of the next run: they would lie in a folder that is one."""
    inside = out.resolve()
    for path in (source.path.resolve() for source in local_sources(sources) if source.is_folder):
        below = inside.relative_to(path).parts if inside.is_relative_to(path) else ()
        if below and not any(part.startswith((".", "_")) for part in below):
            raise UsageError(
                f"{out}: got an output folder inside the catalogue {path}, so the next run would read its "
                "own copies, expected a folder outside of it; choose another with --out"
            )


def check_apart(sources: Iterable[Source], out: Path, *, key: str) -> None:
    """Raise UsageError where an input lies in a release's output folder, or holds it."""
    inside = out.resolve()
    for source in local_sources(sources):
        path = source.path.resolve()
        if path.is_relative_to(inside) or (source.is_folder and inside.is_relative_to(path)):
            raise UsageError(
                f"{key}: got '{source.path}', which contains the output folder {out} or is inside it, "
                "expected inputs elsewhere; choose another output.folder"
            )


def check_no_secret(patterns: Iterable[str], *, key: str, kept: str, remedy: str) -> None:
    """Raise UsageError where a URL may hold a secret, and would be kept where others can read it."""
    for pattern in patterns:
        if is_remote(pattern) and has_secret(pattern):
            raise UsageError(
                f"{key}: got '{shown(pattern)}' with a user, a password or a query, expected a URL without "
                f"them, since {kept}; {remedy}"
            )


def check_parameters(catalogues: Iterable[object]) -> None:
    """Raise UsageError where a catalogue's URL may hold a secret: Prefect keeps parameters, and shows them."""
    kept = "Prefect keeps and shows a run's parameters"
    remedy = "put passwords into ~/.netrc or the driver's settings, or run without Prefect: add --direct"
    check_no_secret(map(str, catalogues), key="CATALOG", kept=kept, remedy=remedy)


def _spelt_once(place: Path | str) -> str:
    """Return one spelling for all ways to write a path: relative or absolute, with dots or without."""
    return os.path.abspath(place) if isinstance(place, Path) else place  # noqa: PTH100  links stay what they are


def _matches(pattern: str, folder: Path, key: str) -> Iterable[Path | str]:
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
            return [check_inside(match, key=key) for match in matches]  # links may lead elsewhere
        raise UsageError(f"{key}: got '{path.absolute()}', which no file matches; {what_is_there(path)}")
    raise UsageError(f"{key}: got '{path.absolute()}', which does not exist; {what_is_there(path)}")


def _at_url(url: str, folder: Path, key: str) -> Iterable[Path | str]:
    if is_chained(url):
        raise UsageError(
            f"{key}: got '{shown(url)}', which is a file inside an archive, expected the URL of a plain "
            "file; unpack it, or use catalogs.annotate in Python"
        )
    here = local_path(url)
    return _matches(str(here), folder, key) if here is not None else [check_url(url, key=key)]


def _check_told_apart(urls: Sequence[str], key: str) -> None:
    """Raise UsageError where URLs differ only in what is not written down."""
    first: dict[str, str] = {}
    for url in urls:
        if first.setdefault(shown(url), url) != url:
            raise UsageError(
                f"{key}: got '{shown(url)}' twice, with different queries or users, expected URLs that differ "
                "elsewhere, since queries and users are not kept; classify the files one by one, or fetch them"
            )
