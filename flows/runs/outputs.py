"""The states of input files and of their annotated copies: hashes of the bytes, and counts."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field, replace
from pathlib import Path, PurePosixPath

from catalogs.files.folders import open_bytes
from flows.runs.counts import FileCounts
from flows.runs.difference import FileDifference

__all__ = ["FileState", "Output", "Quarantined", "file_sha256"]


@dataclass(frozen=True)
class FileState:
    """A file's content hash, and properties that say quickly whether the file may have changed.

    `sha256` is '' until the file is read.  `size` is in bytes, `mtime_ns` in nanoseconds since 1970.  `tag` is the
    server's name for the state of a fetched file (ETag), '' where it has none.
    """

    sha256: str
    size: int
    mtime_ns: int
    inode: int
    tag: str = ""

    def hashed(self, path: Path) -> FileState:
        """Return the state with its hash; the file is read if the hash is not known yet."""
        return self if self.sha256 else replace(self, sha256=file_sha256(path))

    def looks_like(self, path: Path) -> bool:
        """Say whether the file still has the size, time and inode that it had when it was hashed."""
        try:
            seen = path.stat()
        except FileNotFoundError:
            return False
        return (self.size, self.mtime_ns, self.inode) == (seen.st_size, seen.st_mtime_ns, seen.st_ino)


@dataclass(frozen=True)
class Output:
    """An annotated file: its name in the folder, its hash, and the state of its input.

    `input_path` is relative to the output folder, so that both can move together, or a URL without secrets.  `summary`
    is kept in `summary.json`, not in the manifest; None where it is lost.  `difference` is from the last release, for
    the release's report; None where nothing was compared.  `census_rows` are encoded rows for the census, which only
    staged records have.
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
        """Raise ValueError where the name leads out of the folder: somebody may have edited the manifest."""
        path = PurePosixPath(self.name)
        if not path.parts or path.is_absolute() or ".." in path.parts or path.parts[0].startswith("."):
            raise ValueError(
                f"got '{self.name}' as an output's name, expected a path inside the output folder"
            )

    @property
    def state(self) -> FileState:
        """The state of the annotated file itself."""
        return FileState(self.sha256, self.size, self.mtime_ns, self.inode)

    def is_in(self, path: Path, *, verify: bool = False) -> bool:
        """Say whether the file at the path is this one: by size, time and inode, or else by its hash.

        `verify` asks for the hash in any case.  The size alone is not enough: FITS files of two models have the same.
        """
        if path.is_symlink() or not path.is_file() or path.stat().st_size != self.size:
            return False
        return (not verify and self.state.looks_like(path)) or file_sha256(path) == self.sha256


@dataclass(frozen=True)
class Quarantined:
    """A file that could not be annotated because of its content; it is tried again once it has changed.

    `input` is None where even the state of the file could not be read; such a file is always tried again.  The state
    has no hash where the file was not read to its end.  `since` is the time of the run that quarantined the file first
    (ISO 8601, UTC); it stays until the file is mended.
    """

    name: str
    input_path: str
    reason: str
    input: FileState | None
    since: str = field(default="", compare=False)


def file_sha256(path: Path) -> str:
    """Return the SHA-256 of a file's bytes, as `sha256sum` prints it."""
    with open_bytes(path) as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()
