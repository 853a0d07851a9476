"""What is known of an input and of its annotated copy: bytes by their hash, and what was counted."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, replace
from pathlib import Path, PurePosixPath

from flows.runs.counts import FileCounts
from flows.runs.difference import FileDifference

__all__ = ["FileState", "Output", "Quarantined", "file_sha256"]


@dataclass(frozen=True)
class FileState:
    """A file's content hash, and what tells quickly whether it may have changed.

    `sha256` is '' as long as nobody has read the file.  `size` is in bytes, `mtime_ns` in nanoseconds since 1970.
    `tag` is what the server of a fetched file calls its state, '' where it does not say.
    """

    sha256: str
    size: int
    mtime_ns: int
    inode: int
    tag: str = ""

    def hashed(self, path: Path) -> FileState:
        """Return the state with its hash; the file is read where nobody has read it before."""
        return self if self.sha256 else replace(self, sha256=file_sha256(path))

    def looks_like(self, path: Path) -> bool:
        """Say whether the file's size, time and inode are still those that were hashed."""
        try:
            seen = path.stat()
        except FileNotFoundError:
            return False
        return (self.size, self.mtime_ns, self.inode) == (seen.st_size, seen.st_mtime_ns, seen.st_ino)


@dataclass(frozen=True)
class Output:
    """An annotated file: its name in the folder, its hash, and its input's.

    `input_path` is relative to the output folder, so that both can move together; or a URL, as it may be shown.
    `summary` is kept in `summary.json`, not in the manifest; None where it is lost.  `difference` is from the last
    release, for the release's report; None where nothing was compared.  `census_rows` are rows for the census, encoded,
    in a staged record alone.
    """

    name: str
    sha256: str
    size: int
    n_rows: int
    input_path: str
    input: FileState
    mtime_ns: int = 0
    inode: int = 0
    summary: FileCounts | None = None
    difference: FileDifference | None = None
    census_rows: str = ""

    def __post_init__(self) -> None:
        """Refuse a name that leads out of the folder: manifests are files, and files can be tampered with."""
        path = PurePosixPath(self.name)
        if not path.parts or path.is_absolute() or ".." in path.parts or path.parts[0].startswith("."):
            raise ValueError(
                f"got '{self.name}' as an output's name, expected a path inside the output folder"
            )

    @property
    def state(self) -> FileState:
        """The file's own state; a size alone would take one model's FITS file for another's."""
        return FileState(self.sha256, self.size, self.mtime_ns, self.inode)

    def is_in(self, path: Path, *, verify: bool = False) -> bool:
        """Say whether the file there is this one: by its looks, else by its hash."""
        if not path.is_file() or path.stat().st_size != self.size:
            return False
        return (not verify and self.state.looks_like(path)) or file_sha256(path) == self.sha256


@dataclass(frozen=True)
class Quarantined:
    """A file that could not be annotated for reasons of its own; it is tried again once it has changed.

    `input` is None where it could not even be looked at: then it is always tried again.  It has no hash where nobody
    has read the file to its end.
    """

    name: str
    input_path: str
    reason: str
    input: FileState | None


def file_sha256(path: Path) -> str:
    """Return the SHA-256 of a file's bytes, as `sha256sum` prints it."""
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()
