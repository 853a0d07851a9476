"""Packages of other projects with the names of ours: `flows` and `blr` are on the package index too.

Both would lie in the same folder, where whichever was installed last has overwritten files of the other.
"""

from __future__ import annotations

import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from flows.errors import UsageError

PACKAGES = ("blr", "catalogs", "flows")
OURS = Path(__file__).resolve().parent.parent.parent
"""The folder that our three packages lie in."""


def check_packages() -> None:
    """Raise UsageError that names a package of another project in the place of one of ours, or inside it."""
    for package in PACKAGES:
        found = find_spec(package)
        folder = Path(found.origin).parent if found is not None and found.origin else None
        if folder is None or folder.resolve() != OURS / package:
            raise UsageError(
                f"got the package '{package}' in {folder}, expected the one of galaxyblr in "
                f"{OURS / package}: another project has a package of the same name, or there are two copies "
                "of galaxyblr; install galaxyblr into an environment of its own"
            )
        for record in OURS.glob(f"{package}-*.dist-info/RECORD"):
            version = record.parent.name.removesuffix(".dist-info").partition("-")[2]
            if f"\n{package}/" in "\n" + record.read_text(encoding="utf-8"):
                raise UsageError(
                    f"got the package '{package}' of the distribution {package} {version}, whose files are "
                    f"in the same folder as those of galaxyblr; remove it with `pip uninstall {package}` and "
                    "reinstall galaxyblr, or install galaxyblr into an environment of its own"
                )


class _NoPandas:
    """A finder of modules to which there is no pandas."""

    def find_spec(self, name: str, path: object = None, target: object = None) -> None:
        """Raise ModuleNotFoundError for pandas; leave all else to the other finders."""
        del path, target
        if name == "pandas":
            raise ModuleNotFoundError("hidden from pyarrow", name=name)


def hide_pandas_from_arrow() -> None:
    """Make the first array of pyarrow, which imports pandas if it can: a third of a second, for frames of users."""
    finder: Any = _NoPandas()
    sys.meta_path.insert(0, finder)
    try:
        import pyarrow as pa  # noqa: PLC0415 -- pandas is hidden first

        pa.array([0])
    finally:
        sys.meta_path.remove(finder)
