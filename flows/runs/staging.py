"""Where unfinished work waits inside an output folder, out of the way of what is finished.

`OUT/.blr-staging/<model and specification>/` holds annotated files and, beside each, its record: written
after the file, so a file with a record is whole.  One run at a time works in a folder (`flows.runs.lock`).
"""

from __future__ import annotations

import hashlib
import shutil
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path

from catalogs.files.atomic import flush_to_disk, sweep
from flows.documents import read_document, write_document
from flows.errors import DocumentError, OutputFolderError
from flows.runs.allowed_roots import OutputFolder
from flows.runs.outputs import FileState, Output

__all__ = ["RETIRED", "Staging", "staged_copies"]

FOLDER = ".blr-staging"
RETIRED = "_retired"
"""Where outputs go whose input is gone; readers of folders pass over names that begin with an underscore."""


@dataclass(frozen=True)
class Staging:
    """The staged files of one model and one specification."""

    out: OutputFolder
    folder: Path

    @classmethod
    def of(cls, out: OutputFolder, model: str, specification_hash: str) -> Staging:
        """Return the staging of a model and a specification in an output folder; nothing is made yet."""
        key = hashlib.sha256(f"{model}\n{specification_hash}".encode()).hexdigest()[:16]
        return cls(out, out / FOLDER / key)

    def open(self) -> None:
        """Make the folder, and remove what other models or specifications, and killed runs, have left."""
        sweep(self.out)
        for other in self.others():
            if other.is_dir() and not other.is_symlink():
                _remove(other)
            else:
                other.unlink(missing_ok=True)
        self.folder.mkdir(parents=True, exist_ok=True)

    def others(self) -> list[Path]:
        """Return what lies in the folder of stagings besides this one."""
        return [path for path in self.folder.parent.glob("*") if path != self.folder]

    @property
    def is_open(self) -> bool:
        """Whether the folder is there, as this machine sees it."""
        return self.folder.is_dir()

    @property
    def is_left(self) -> bool:
        """Whether a run has left something unfinished here, of whatever maker."""
        return self.folder.parent.exists()

    def file(self, name: str) -> Path:
        """Return where the annotated file of that name waits."""
        return self.folder / name

    def record(self, output: Output) -> None:
        """Write down that a file is whole."""
        write_document(self._record_path(output.name), output)

    def find(self, name: str, source: FileState) -> Output | None:
        """Return the record of a file made from that input, staged still or published already."""
        output = self.recorded(name)
        if output is None or output.input.sha256 != source.sha256:
            return None
        return output if output.is_in(self.file(name)) or self.published(output) else None

    def recorded(self, name: str) -> Output | None:
        """Return the record of a file, whatever it was made from, and whether it is there still or not."""
        return _record(self._record_path(name))

    def published(self, output: Output) -> bool:
        """Say whether a file has its final name already, from a run that was killed while it gave names."""
        return not self.file(output.name).exists() and output.is_in(self.out / output.name)

    def left_by_others(self, name: str) -> bool:
        """Say whether the final file is one that a killed run of another model or specification had published."""
        records = (_record(other / f"{name}.json") for other in self.others())
        return any(output is not None and output.is_in(self.out / name) for output in records)

    def published_records(self, *, others: bool) -> list[Output]:
        """Return the records, of other stagings too, of files that have their final names."""
        folders = [self.folder, *(self.others() if others else [])]
        paths = (path for folder in folders if folder.is_dir() for path in folder.rglob("*.json"))
        records = (_record(path) for path in sorted(paths))
        return [o for o in records if o is not None and o.is_in(self.out / o.name)]

    def discard(self, name: str) -> None:
        """Remove a staged file and its record: its input has changed since."""
        self._record_path(name).unlink(missing_ok=True)
        self.file(name).unlink(missing_ok=True)

    def publish_all(self, outputs: Sequence[Output]) -> None:
        """Give staged files their final names, unless they have them already; return once these are on the disk.

        OutputFolderError where neither is the file that was written: the staged ones may be of other machines.
        """
        for folder, names in groupby(outputs, key=lambda o: (self.out / o.name).parent):
            self._make_folder(folder)
            for output in names:
                self.publish(output)
            flush_to_disk(folder)

    def publish(self, output: Output) -> None:
        """Give a staged file its final name, as `publish_all` does."""
        staged, final = self.file(output.name), self.out / output.name
        if not self._record_path(output.name).is_file():
            return  # finished by an earlier run
        there = staged.is_file()
        if not output.is_in(staged if there else final):
            raise OutputFolderError(
                f"{staged}: this file was deleted or changed after it was annotated; run the same command "
                "again, and check that no other program writes there"
            )
        if there:
            staged.replace(final)

    def retire(self, name: str, release: int) -> None:
        """Move an output out of the way, never over another."""
        final = self.out / name
        if not final.is_file():
            return
        place = self.out / RETIRED / f"{release:04d}" / name
        self._make_folder(place.parent)
        n = 1
        while place.exists():
            n += 1
            place = place.with_name(f"{n}-{final.name}")
        final.rename(place)
        flush_to_disk(final.parent)

    def retired(self, release: int) -> list[str]:
        """Return what was moved out of the way for a release, by this run or by one that was killed."""
        paths = (self.out / RETIRED / f"{release:04d}").rglob("*")
        return sorted(path.relative_to(self.out).as_posix() for path in paths if path.is_file())

    def close(self) -> None:
        """Remove the staging."""
        _remove(self.folder.parent)

    def _make_folder(self, folder: Path) -> None:
        """Make a folder for files; OutputFolderError where a symbolic link in its path leads elsewhere."""
        if not folder.resolve().is_relative_to(self.out.resolve()):
            raise OutputFolderError(
                f"{folder}: got a symbolic link that leads out of {self.out}, expected a folder of its own; "
                "remove the link, or choose another output folder"
            )
        folder.mkdir(parents=True, exist_ok=True)

    def _record_path(self, name: str) -> Path:
        return self.folder / f"{name}.json"


def staged_copies(out: Path, seen: set[Path]) -> Iterator[tuple[Path, Output]]:
    """Yield the whole files that wait in an output folder, each with its record; those in `seen` only once.

    Another run may be giving them their names meanwhile, or remove them.
    """
    try:
        records = sorted((out / FOLDER).glob("*/**/*.json"))
    except FileNotFoundError:
        return
    for path in records:
        if path in seen or path.name.startswith("."):
            continue
        output = _record(path)
        if output is not None:
            seen.add(path)
            yield path.with_suffix(""), output


def _remove(folder: Path) -> None:
    """Remove a folder, if it is there; where file locks do not work, another run may be removing it too."""
    while folder.is_dir():
        with suppress(FileNotFoundError):
            shutil.rmtree(folder)


def _record(path: Path) -> Output | None:
    """Return the record in a file; or None, or none of this version."""
    try:
        return read_document(Output, path)
    except (OSError, DocumentError):
        return None
