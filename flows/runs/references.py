"""What a user's text may name: a model by NAME or NAME@VERSION, and the folders and URLs that a run may use.

NAME means the champion of that name.

By a user's own command all folders may be used, by a server's form fewer.  The form is open to other people, so a
worker sets `BLR_ROOTS` to a list of folders and URLs, separated as in PATH.  Then every path that a parameter or a
specification names must lie in one of these folders after links are followed, and every URL must lie below one of
these URLs.  See docs/reprocessing.md.
"""

from __future__ import annotations

import getpass
import os
import re
from collections.abc import Iterable
from pathlib import Path
from typing import NewType

from catalogs.files import require_file
from catalogs.remote.urls import has_secret, is_below, is_remote, shown, url_of
from flows.errors import ModelError, UsageError

NAME_PATTERN = r"^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$"
"""Names of models become folders: they have no separators, no leading dot, and fit any file system."""


def name_and_version(text: str) -> tuple[str, str]:
    """Return the name and the version, or its first digits, in a text; no version, '', means the champion.

    Only the store knows whether there is such a model.
    """
    if is_remote(text):
        raise ModelError(
            f"got '{shown(text)}' as a model, expected NAME or NAME@VERSION; choose one of the store's"
        )
    name, _, version = text.partition("@")
    return name, version


UNNAMED = "an unnamed user"


def user_name() -> str:
    """Return the user who runs this process; a container may have a user without a name."""
    try:
        return getpass.getuser()
    except (KeyError, OSError, ImportError):
        return UNNAMED


ROOTS = "BLR_ROOTS"
"""Environment variable with the allowed folders and URLs."""

OutputFolder = NewType("OutputFolder", Path)
"""A folder of this machine that may be written to, as `check_output` found; it need not exist."""

ROOT = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://(?:\[[0-9A-Fa-f:.]*\])?[^:]*(?::\d+(?=[/:]|$)[^:]*)?|[^:]+")
"""Pattern of an entry in the list, which colons separate: a folder, or a URL, which has colons of its own."""


def check_inside(path: Path, *, key: str) -> Path:
    """Return the path; UsageError where it leads out of the configured roots.  `key` is the key that named it."""
    roots, end = _roots(), Path(os.path.realpath(path))  # of a link in a circle too
    if roots and not any(end.is_relative_to(Path(root).resolve()) for root in roots if not is_remote(root)):
        raise UsageError(
            f"{key}: got '{path}', which leads to {end}, expected a path inside "
            f"{' or '.join(map(shown, roots))}, since this worker may use no other folder ({ROOTS}); move "
            "the files there, or ask for the folder to be added"
        )
    return path


def check_output(path: str | Path, *, key: str, base: Path = Path()) -> OutputFolder:
    """Return the folder that a user named for outputs; `base` is the start of a relative path.

    UsageError where it is a URL, or leads out of the configured roots.  `key` is the key that named it.
    """
    check_local(path, key=key)
    return OutputFolder(require_file(check_inside(base / path, key=key)))


def check_local(path: str | Path, *, key: str) -> None:
    """Raise UsageError where an output is to be written to a URL: only releases can be published at URLs."""
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


def check_scheduler(name: str, *, key: str) -> None:
    """Raise UsageError where this worker may not use a scheduler of this file or address.

    A scheduler decides what its clients run.  So a form that is open to others accepts no scheduler but these.
    """
    roots = _roots()
    if name.endswith(".json"):
        check_inside(Path(name), key=key)
    elif "://" in name and roots and name not in roots:
        raise UsageError(
            f"{key}: got '{name}', expected one of {' or '.join(map(shown, roots))}, since this worker "
            f"may use no other scheduler ({ROOTS}); leave it out, or ask for the address to be added"
        )


def url_roots() -> tuple[str, ...]:
    """Return the configured URLs, below which requests must stay; an empty tuple where nothing is configured."""
    return tuple(root for root in _roots() if is_remote(root))


def _roots() -> list[str]:
    return ROOT.findall(os.environ.get(ROOTS, ""))


def check_no_secret(patterns: Iterable[object], *, kept: str, remedy: str) -> None:
    """Raise UsageError where the URL of a catalogue may hold a secret, and would be kept where others can read it."""
    for pattern in map(str, patterns):
        if is_remote(pattern) and has_secret(pattern):
            raise UsageError(
                f"CATALOG: got '{shown(pattern)}' with a user, a password or a query, expected a URL without "
                f"them, since {kept}; {remedy}"
            )


def check_parameters(catalogues: Iterable[object]) -> None:
    """Raise UsageError where a catalogue's URL may hold a secret: Prefect keeps parameters, and shows them."""
    kept = "Prefect keeps and shows a run's parameters"
    remedy = "put passwords into ~/.netrc or the driver's settings, or run without Prefect: add --direct"
    check_no_secret(catalogues, kept=kept, remedy=remedy)
