"""The staging folder inside an output folder, for annotated files until all of them are finished.

`OUT/.blr-staging/<hash of model and specification>/` has the annotated files and a record beside each of them.  The
record is written after the file, so that a file with a record is whole.  One run at a time works in an output folder
(`flows.runs.lock`).
"""

from __future__ import annotations

import hashlib
import shutil
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path

from catalogs.files.atomic import check_links, flush_to_disk, own_folder, sweep
from flows.documents import read_document, write_document
from flows.errors import DocumentError, OutputFolderError
from flows.runs.allowed_roots import OutputFolder
from flows.runs.outputs import FileState, Output

FOLDER = ".blr-staging"
RETIRED = "_retired"
"""Folder for outputs whose input is gone; readers of folders ignore names that begin with an underscore."""


@dataclass(frozen=True)
class Staging:
    """The staged files of one model and one specification."""

    out: OutputFolder
    folder: Path

    @classmethod
    def of(cls, out: OutputFolder, model: str, specification_hash: str) -> Staging:
        """Return the staging of a model and a specification in an output folder; it is not made yet."""
        key = hashlib.sha256(f"{model}\n{specification_hash}".encode()).hexdigest()[:16]
        return cls(out, out / FOLDER / key)

    def open(self) -> None:
        """Make the folder; remove the stagings of other models and specifications, and files that killed runs left.

        StorageError where a symbolic link stands in the staging.
        """
        check_links(self.folder, self.out, inside=True)
        own = (path for path in self.out.glob("_*") if path.is_dir() and not path.is_symlink())
        for folder in (self.out, *own):
            sweep(folder)
        for other in self.others():
            if other.is_dir() and not other.is_symlink():
                _remove(other)
            else:
                other.unlink(missing_ok=True)
        own_folder(self.folder, self.out)

    def others(self) -> list[Path]:
        """Return the stagings of other models and specifications, and anything else beside this one."""
        return [path for path in self.folder.parent.glob("*") if path != self.folder]

    def file(self, name: str) -> Path:
        """Return the path of the staged file with that name."""
        return self.folder / name

    def record(self, output: Output) -> None:
        """Write the record of a file, which says that the file is whole."""
        write_document(self._record_path(output.name), output)

    def find(self, name: str, source: FileState) -> Output | None:
        """Return the record of a file that was made from this input and is still staged, or has its final name."""
        output = self.recorded(name)
        if output is None or output.input.sha256 != source.sha256:
            return None
        return output if output.is_in(self.file(name)) or self.published(output) else None

    def recorded(self, name: str) -> Output | None:
        """Return the record of a file, whatever its input was, even if the file is gone."""
        return _record(self._record_path(name))

    def published(self, output: Output) -> bool:
        """Say whether a file has its final name already, as after a run that was killed while it renamed files."""
        return not self.file(output.name).exists() and output.is_in(self.out / output.name)

    def left_by_others(self, name: str) -> bool:
        """Say whether the file with the final name is from a killed run of another model or specification."""
        records = (_record(other / f"{name}.json") for other in self.others())
        return any(output is not None and output.is_in(self.out / name) for output in records)

    def published_records(self, *, others: bool) -> list[Output]:
        """Return the records of files that have their final names; `others` asks for those of other stagings too."""
        folders = [self.folder, *(self.others() if others else [])]
        paths = (path for folder in folders if folder.is_dir() for path in folder.rglob("*.json"))
        records = (_record(path) for path in sorted(paths))
        return [o for o in records if o is not None and o.is_in(self.out / o.name)]

    def discard(self, name: str) -> None:
        """Remove a staged file and its record, since its input has changed."""
        self._record_path(name).unlink(missing_ok=True)
        self.file(name).unlink(missing_ok=True)

    def publish(self, outputs: Sequence[Output]) -> None:
        """Give staged files their final names, unless they have them already, and wait until the disk has the names.

        OutputFolderError where a file is not the one that was written: another machine may have written it.
        StorageError where a symbolic link stands in the place of a folder.
        """
        for folder in {(self.out / o.name).parent for o in outputs}:
            check_links(folder, self.out)
        for folder, names in groupby(outputs, key=lambda o: (self.out / o.name).parent):
            own_folder(folder, self.out)
            for output in names:
                staged, final = self.file(output.name), self.out / output.name
                if not self._record_path(output.name).is_file():
                    continue  # finished by an earlier run
                there = staged.is_file()
                if not output.is_in(staged if there else final):
                    raise OutputFolderError(
                        f"{staged}: this file was deleted or changed after it was annotated; run the same command "
                        "again, and check that no other program writes there"
                    )
                if there:
                    staged.replace(final)
            flush_to_disk(folder)

    def retire(self, name: str, release: int) -> None:
        """Move an output to the folder of retired ones; it never replaces another file there."""
        final = self.out / name
        if not final.is_file():
            return
        place = self.out / RETIRED / f"{release:04d}" / name
        own_folder(place.parent, self.out)
        n = 1
        while place.exists():
            n += 1
            place = place.with_name(f"{n}-{final.name}")
        final.rename(place)
        flush_to_disk(final.parent)

    def retired(self, release: int) -> list[str]:
        """Return the outputs that were retired for a release, by this run or by a killed one."""
        paths = (self.out / RETIRED / f"{release:04d}").rglob("*")
        return sorted(path.relative_to(self.out).as_posix() for path in paths if path.is_file())

    def close(self) -> None:
        """Remove the staging folder with all stagings."""
        _remove(self.folder.parent)

    def _record_path(self, name: str) -> Path:
        return self.folder / f"{name}.json"


def staged_copies(out: Path, seen: set[Path]) -> Iterator[tuple[Path, Output]]:
    """Yield the finished files in the staging of an output folder, each with its record, and add it to `seen`.

    Files that are in `seen` are left out.  A run may rename or remove a file at the same time.
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
    """Remove a folder if it exists; without working file locks, another run may remove it at the same time."""
    while folder.is_dir():
        with suppress(FileNotFoundError):
            shutil.rmtree(folder)


def _record(path: Path) -> Output | None:
    """Return the record in a file; None without a record that this version can read."""
    try:
        return read_document(Output, path)
    except (OSError, DocumentError):
        return None
