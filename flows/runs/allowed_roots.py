"""Which folders and URLs a run may use: all, by a user's own command, but a server's form is open to others.

Where `BLR_ROOTS` names some (separated as in PATH), every path that a parameter or a specification names, links
followed, has to lie in one of its folders, and every URL below one of its URLs.  A worker sets it; see
docs/reprocessing.md.
"""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import NewType

from catalogs.remote.urls import is_below, is_remote, shown, url_of
from flows.errors import UsageError

__all__ = [
    "ROOTS",
    "OutputFolder",
    "by_whole_path",
    "check_address",
    "check_inside",
    "check_local",
    "check_output",
    "check_scheduler",
    "check_url",
    "url_roots",
]

ROOTS = "BLR_ROOTS"

OutputFolder = NewType("OutputFolder", Path)
"""A folder of this machine that may be written to, whether it exists or not: what `check_output` has looked at."""

ROOT = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://(?:\[[0-9A-Fa-f:.]*\])?[^:]*(?::\d+(?=[/:]|$)[^:]*)?|[^:]+")
"""Of a list with colons between: a URL, whose scheme and port have colons too, or a folder."""


def check_inside(path: Path, *, key: str) -> Path:
    """Return the path; UsageError where it leads out of the configured roots.  `key` says who named it."""
    roots = _roots()
    if roots and not any(path.resolve().is_relative_to(root) for root in _folders(roots)):
        raise UsageError(
            f"{key}: got '{path}', which leads to {path.resolve()}, expected a path inside "
            f"{' or '.join(map(shown, roots))}, since this worker may use no other folder ({ROOTS}); move "
            "the files there, or ask for the folder to be added"
        )
    return path


def check_output(path: str | Path, *, key: str, base: Path = Path()) -> OutputFolder:
    """Return the folder that a user named to be written to, which may be relative to `base`.

    UsageError where it is a URL, or leads out of the configured roots.  `key` says who named it.
    """
    check_local(path, key=key)
    return OutputFolder(check_inside(base / path, key=key))


def by_whole_path(folder: OutputFolder) -> OutputFolder:
    """Return the same folder, by a path that another process understands."""
    return OutputFolder(folder.absolute())


def check_local(path: str | Path, *, key: str) -> None:
    """Raise UsageError where what is written to is a URL: only releases are published at those."""
    url = url_of(path)
    if url is not None:
        raise UsageError(
            f"{key}: got '{shown(url)}', expected a path on this machine, since only annotated releases can "
            "be published at URLs; name a path here, and copy the files afterwards"
        )


def check_url(url: str, *, key: str) -> str:
    """Return the URL; UsageError where roots are configured, and it lies outside all of them."""
    roots = _roots()
    if roots and not any(is_below(url, root) for root in url_roots()):
        raise UsageError(
            f"{key}: got '{shown(url)}', expected a path or a URL below {' or '.join(map(shown, roots))}, "
            f"since this worker may read from no other place ({ROOTS}); fetch the files into a folder there, "
            "or ask for the URL to be added"
        )
    return url


def check_address(address: str, *, key: str) -> str:
    """Return the address of a scheduler; UsageError where roots are configured without it.

    A scheduler decides what its clients run, so that nobody may name one on a form that is open to others.
    """
    roots = _roots()
    if roots and address not in roots:
        raise UsageError(
            f"{key}: got '{address}', expected one of {' or '.join(map(shown, roots))}, since this worker "
            f"may use no other scheduler ({ROOTS}); leave it out, or ask for the address to be added"
        )
    return address


def check_scheduler(file: Path | None, address: str, *, key: str) -> None:
    """Raise UsageError where a scheduler's file or address may not be used here."""
    if file is not None:
        check_inside(file, key=key)
    if address:
        check_address(address, key=key)


def url_roots() -> tuple[str, ...]:
    """Return the configured URLs, below which requests have to stay; none where nothing is configured."""
    return tuple(root for root in _roots() if is_remote(root))


def _roots() -> list[str]:
    return ROOT.findall(os.environ.get(ROOTS, ""))


def _folders(roots: list[str]) -> list[Path]:
    return [Path(root).resolve() for root in roots if not is_remote(root)]
