"""Addresses of files on people's pages: a report lies on the worker's machine, its reader at another one."""

from __future__ import annotations

import os
from pathlib import Path
from urllib.parse import quote

from flows.errors import UsageError

__all__ = ["PAGES", "page_of"]

PAGES = "BLR_PAGES"
"""Environment variable: FOLDER=URL, a folder and the address at which a web server of the team serves it."""


def page_of(path: Path) -> str:
    """Return the address of a file: that of the team's web server for files below its folder, else a file's own.

    Raises
    ------
    UsageError
        If `BLR_PAGES` is set, and is not FOLDER=URL.
    """
    setting = os.environ.get(PAGES, "")
    if setting:
        folder, equals, url = setting.partition("=")
        if not (equals and folder and "://" in url):
            raise UsageError(
                f"{PAGES}: got '{setting}', expected FOLDER=URL, such as /srv/survey=https://survey.example.org/files"
            )
        if path.is_relative_to(Path(folder).resolve()):
            below = path.relative_to(Path(folder).resolve()).as_posix()
            return f"{url.rstrip('/')}/{quote(below)}"
    return path.as_uri()
