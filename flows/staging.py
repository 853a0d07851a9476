"""Where unfinished work waits inside an output folder, out of the way of what is finished.

`OUT/.blr-staging/<model and specification>/` holds annotated files and, beside each, its record: written
after the file, so a file with a record is whole.  One run at a time works in a folder.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from flows.errors import OutputFolderError
from flows.manifest import FileState, Output, file_sha256, write_json

__all__ = ["Staging", "exclusive"]

FOLDER = ".blr-staging"
LOCK = ".blr-lock"


@dataclass(frozen=True)
class Staging:
    """The staged files of one model and one specification."""

    out: Path
    folder: Path

    @classmethod
    def of(cls, out: Path, model: str, specification_hash: str) -> Staging:
        """Return the staging of a model and a specification in an output folder; nothing is made yet."""
        key = hashlib.sha256(f"{model}\n{specification_hash}".encode()).hexdigest()[:16]
        return cls(out, out / FOLDER / key)

    def open(self) -> None:
        """Make the folder, and remove what other models or specifications have left."""
        for other in self.folder.parent.glob("*"):
            if other != self.folder:
                shutil.rmtree(other)
        self.folder.mkdir(parents=True, exist_ok=True)

    def file(self, name: str) -> Path:
        """Return where the annotated file of that name waits."""
        return self.folder / name

    def record(self, output: Output) -> None:
        """Write down that a file is whole."""
        write_json(self._record_path(output.name), output.to_dict())

    def find(self, name: str, source: FileState) -> Output | None:
        """Return the record of a file made from that input, staged still or published already."""
        path = self._record_path(name)
        if not path.is_file():
            return None
        output = Output.of(json.loads(path.read_text(encoding="utf-8")))
        if output.input.sha256 != source.sha256:
            return None
        waiting = self.file(name)
        whole = waiting.is_file() and waiting.stat().st_size == output.size
        return output if whole or self.published(output) else None

    def published(self, output: Output) -> bool:
        """Say whether a file has its final name already, from a run that was killed while it gave names."""
        final = self.out / output.name
        return not self.file(output.name).exists() and final.is_file() and file_sha256(final) == output.sha256

    def publish(self, output: Output) -> None:
        """Give a staged file its final name, unless it has that already."""
        final = self.out / output.name
        if self.file(output.name).is_file():
            final.parent.mkdir(parents=True, exist_ok=True)
            self.file(output.name).replace(final)

    def close(self) -> None:
        """Remove the staging."""
        if self.folder.parent.is_dir():
            shutil.rmtree(self.folder.parent)

    def _record_path(self, name: str) -> Path:
        return self.folder / f"{name}.json"


@contextmanager
def exclusive(out: Path) -> Iterator[None]:
    """Hold an output folder, made if need be, for one run; OutputFolderError where another one has it.

    A folder made here in which nothing came to be is removed again.
    """
    made = not out.exists()
    try:
        out.mkdir(parents=True, exist_ok=True)
        lock = os.open(out / LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
    except OSError as error:
        raise OutputFolderError(
            f"{out}: got '{error.strerror}', expected an output folder that can be made and written to; "
            "check its permissions, or choose another with --out"
        ) from error
    try:
        _lock(lock, out)
        try:
            yield
        finally:
            (out / LOCK).unlink(missing_ok=True)
            if made:
                with suppress(OSError):  # it holds something, then
                    out.rmdir()
    finally:
        os.close(lock)


def _lock(descriptor: int, out: Path) -> None:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        # A run that ends removes the file it holds: whoever opened it before that holds nothing.
        held = os.path.samestat(os.fstat(descriptor), (out / LOCK).stat())
    except OSError:
        held = False
    if not held:
        raise OutputFolderError(
            f"{out}: got a folder that another run is writing to, expected one run at a time; "
            "wait for it, or choose another folder with --out"
        )
