"""Whether a file is still the one that was opened: its size, the time of its last change, its place on the disk."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from catalogs.errors import CatalogError, DamagedFileError
from catalogs.files.folders import require_file

__all__ = ["Stamp", "check_unchanged", "stamp"]


@dataclass(frozen=True)
class Stamp:
    """What changes when a file does."""

    size: int
    modified_ns: int
    inode: int


def stamp(path: Path) -> Stamp:
    """Return the file's stamp; CatalogError for a folder, or where there is nothing."""
    if not require_file(path).is_file():
        raise CatalogError(f"{path} is not a file; check the name")
    status = path.stat()
    return Stamp(status.st_size, status.st_mtime_ns, status.st_ino)


def check_unchanged(path: Path, expected: Stamp) -> None:
    """Raise DamagedFileError where a file is another one than when it was opened."""
    if (current := stamp(path)) != expected:
        raise DamagedFileError(
            f"{path} changed after it was opened: {expected.size:,} bytes then, {current.size:,} now; open "
            "it again when it is complete"
        )
