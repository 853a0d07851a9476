"""Where the files of a release wait until all are made, and how a release gets into an object store.

`OUT/.blr-staging/<hash of model and specification>/` has the annotated files and a record beside each of them.  The
record is written after the file, so that a file with a record is whole.  One run at a time works in an output folder
(`flows.runs.lock`).  With an object store, files become visible in one step.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path, PurePosixPath
from typing import Any

import platformdirs

from catalogs.errors import CatalogError
from catalogs.files import (
    atomic_path,
    atomic_write_bytes,
    check_links,
    flush_to_disk,
    own_folder,
    sweep,
)
from catalogs.remote.remote_file import ObjectStore, Stored, why_not
from catalogs.remote.urls import file_name, shown, url_of
from flows.documents import read_document, write_document
from flows.errors import DocumentError, OutputFolderError, UsageError
from flows.runs.lock import exclusive
from flows.runs.manifest import (
    MANIFEST,
    SUMS,
    FileState,
    Manifest,
    Output,
    file_sha256,
    read_sums,
    sums_text,
)
from flows.runs.progress import tell
from flows.runs.references import OutputFolder, check_output, check_url

STAGING_FOLDER = ".blr-staging"
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
        return cls(out, out / STAGING_FOLDER / key)

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

    def record(self, output: Output) -> None:
        """Write the record of a file, which says that the file is whole."""
        write_document(self._record_path(output.name), output)

    def find(self, name: str, source: FileState) -> Output | None:
        """Return the record of a file that was made from this input and is still staged, or has its final name."""
        output = self.recorded(name)
        if output is None or output.input.sha256 != source.sha256:
            return None
        return output if output.is_in(self.folder / name) or self.published(output) else None

    def recorded(self, name: str) -> Output | None:
        """Return the record of a file, whatever its input was, even if the file is gone."""
        return _record(self._record_path(name))

    def published(self, output: Output) -> bool:
        """Say whether a file has its final name already, as after a run that was killed while it renamed files."""
        return not (self.folder / output.name).exists() and output.is_in(self.out / output.name)

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
        (self.folder / name).unlink(missing_ok=True)

    def place(self, output: Output) -> Path:
        """Return where a file is: here, or at its final name; one here may be of another state of its input."""
        staged = self.folder / output.name
        return staged if output.is_in(staged) else self.out / output.name

    def check(self, outputs: Sequence[Output]) -> None:
        """Raise OutputFolderError where a file is not the one that was written: another program may have written it."""
        for output in outputs:
            if not output.is_in(self.place(output)):
                raise OutputFolderError(
                    f"{self.out}: the copy {output.name} was deleted or changed after it was annotated; run the same "
                    "command again, and check that no other program writes there"
                )

    def publish(self, outputs: Sequence[Output]) -> None:
        """Give staged files their final names, unless they have them already, and wait until the disk has the names.

        StorageError where a symbolic link stands in the place of a folder.
        """
        for folder in {(self.out / o.name).parent for o in outputs}:
            check_links(folder, self.out)
        for folder, names in groupby(outputs, key=lambda o: (self.out / o.name).parent):
            own_folder(folder, self.out)
            for output in names:
                final = self.out / output.name
                if (place := self.place(output)) != final:
                    place.replace(final)
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


# A release in an object store: made in a local folder, then published as a whole.
#
# Below the URL are `manifest.json` and a folder with the files, `files-HASH/`.  `SHA256SUMS` in this folder lists the
# files, and `HASH` is its own hash.  So the name of the folder depends on its content, and a file in it never changes.
#
# A release is published by replacing the manifest, on condition that the manifest before it is still there.  So readers
# see either the old release or the new one.  If two runs publish at the same time, the second one publishes nothing.
#
# The local folder, below `BLR_STAGING` or in the user's cache, has the release too, with everything that later runs
# need.  It is fetched from the store if it is lost, or if another machine has published a later release.

STAGING = "BLR_STAGING"
"""Environment variable with the local folder in which releases for object stores are made."""
MARK = ".blr-store.json"
"""File that says which state of the store's manifest the local folder has."""
FILES = re.compile(r"files-[0-9a-f]{16}")
AT_ONCE = 8
"""Files that are sent or fetched at the same time."""


def published_at(out: str | Path) -> str | None:
    """Return the URL, without secrets, at which an output folder is published; None for a local folder."""
    url = url_of(out)
    return None if url is None else shown(url)


def check_store(out: str | Path, *, key: str) -> str:
    """Return the URL of a release; UsageError where none can be published there.  `key` is the key that named it."""
    url = url_of(out) or str(out)
    if why := why_not(url):
        raise UsageError(f"{key}: {why}")
    return check_url(url, key=key)


def folder_here(out: str | Path, *, base: Path = Path()) -> Path:
    """Return the local folder in which an output folder is made; the store is not asked."""
    url = url_of(out)
    return base / out if url is None else ReleaseStore.at(url).folder


@contextmanager
def output_folder(
    out: str | Path, *, key: str, base: Path = Path(), publish: bool = True
) -> Iterator[OutputFolder]:
    """Give the folder that a user named for outputs; `base` is the start of a relative path, `key` the key's name.

    For a URL, it is a local folder with the release that is published there.  At the end of the block, the content of
    the folder is published, unless `publish` is False or the block raises an error.

    UsageError if a path or a URL leads out of the configured roots, or releases cannot be published at the URL;
    CatalogError if the store does not answer; OutputFolderError if another run has published there meanwhile, or
    uses the local folder.
    """
    url = url_of(out)
    if url is None:
        yield check_output(out, key=key, base=base)
        return
    release = ReleaseStore.at(check_store(url, key=key))
    before = release.fetch()
    yield release.folder
    if publish:
        release.publish(before)


@dataclass(frozen=True)
class ReleaseStore:
    """A release in a store, and its local folder."""

    store: ObjectStore
    folder: OutputFolder

    @classmethod
    def at(cls, url: str) -> ReleaseStore:
        """Return the release at a URL; the store is not asked yet, and no folder is made."""
        store = ObjectStore(url)
        top = os.environ.get(STAGING)
        place = Path(top) if top else Path(platformdirs.user_cache_path("blr")) / "releases"
        name = f"{file_name(store.url)}-{hashlib.sha256(store.url.encode()).hexdigest()[:12]}"
        return cls(store, OutputFolder(place / name))

    def fetch(self) -> Stored:
        """Fetch the published release unless the local folder has it; return the published manifest and its tag."""
        manifest, tag = self.store.read(MANIFEST)
        if tag is None or self._mark() == tag:
            return manifest, tag
        files = _files_of(manifest, self.store.url)
        sizes = {key: n for key, n in self.store.sizes(files).items() if key != MANIFEST}
        for key in sizes:
            check_key(key, self.store.url)
        tell().note(
            f"{shown(self.store.url)}: its release is not on this machine and is fetched into {self.folder}"
        )
        self.folder.mkdir(parents=True, exist_ok=True)
        with exclusive(self.folder):
            self._fetch_files(files, sizes)
            atomic_write_bytes(self.folder / MANIFEST, manifest)
            Manifest.sweep(self.folder)
            self._set_mark(tag)
        return manifest, tag

    def publish(self, before: Stored) -> None:
        """Publish the local folder in place of the release of the manifest `before`, unless both are the same."""
        if not (self.folder / MANIFEST).is_file():
            return
        with exclusive(self.folder):
            sums = _checked_sums(self.folder)
            files = f"files-{hashlib.sha256(sums_text(sums).encode()).hexdigest()[:16]}"
            others = {key.partition("/")[0] for key in self.store.sizes("")} - {files}
            if self._manifest(files) != before[0]:
                self._commit(files, sums, before)
            # Folders of earlier releases, and of unpublished ones.
            for name in sorted(filter(FILES.fullmatch, others)):
                self.store.remove(f"{name}/{key}" for key in self.store.sizes(name))

    def _commit(self, files: str, sums: Mapping[str, str], before: Stored) -> None:
        """Send the missing files, then replace the manifest `before`, if it is still the published one."""
        old, tag = before
        whole = self._fill(files, sums, None if tag is None else _files_of(old, self.store.url))
        same = self.store.read(MANIFEST)[1] == tag
        manifest = self._manifest(files)
        if not (whole and same and self.store.replace(MANIFEST, manifest, before=tag)):
            raise OutputFolderError(
                f"{shown(self.store.url)}: got a changed release: another run has published one, or files "
                "were removed; run the same command again, which starts from the present release"
            )
        self._fill(files, sums, None)  # another run may have removed some of them meanwhile
        published, tag = self.store.read(MANIFEST)
        # The manifest is another one's if a third run has published.
        self._set_mark(tag if tag and published == manifest else "")

    def _manifest(self, files: str) -> bytes:
        document = json.loads((self.folder / MANIFEST).read_text(encoding="utf-8"))
        return (json.dumps({**document, "files": files}, indent=1) + "\n").encode()

    def _fill(self, files: str, sums: Mapping[str, str], old: str | None) -> bool:
        """Send the missing files, or copy them within the store; say whether the folder has all files then.

        `old` is the folder of the release before, whose files are copied.
        """
        there = self.store.sizes(files)
        sizes = {key: (self.folder / key).stat().st_size for key in sums}
        missing = [key for key in sums if there.get(key) != sizes[key]]
        known = self._sums(old) if old and missing else {}

        def send(key: str) -> None:
            if known.get(key) == sums[key]:
                self.store.copy(f"{old}/{key}", f"{files}/{key}")
            else:
                self.store.upload(self.folder / key, f"{files}/{key}")

        _each(send, {key: sizes[key] for key in missing}, f"publishing at {shown(self.store.url)}")
        self.store.put(f"{files}/{SUMS}", sums_text(sums).encode())
        self.store.put(f"{files}/{MANIFEST}", self._manifest(files))
        there = self.store.sizes(files)
        return all(there.get(key) == sizes[key] for key in sums)

    def _fetch_files(self, files: str, sizes: Mapping[str, int]) -> None:
        """Fetch the files of a release that the local folder lacks, and remove files that are not in the release."""
        sums = self._sums(files)
        if set(sums) != set(sizes) - {SUMS}:
            raise CatalogError(
                f"{shown(self.store.url)}/{files}: got other files than its {SUMS} lists; publish the release again "
                "from the machine that made it"
            )

        def is_here(key: str) -> bool:
            here = self.folder / key
            return here.is_file() and here.stat().st_size == sizes[key] and file_sha256(here) == sums[key]

        def fetch_one(key: str) -> None:
            with atomic_path(self.folder / key) as temporary:
                self.store.fetch(f"{files}/{key}", temporary)
                if file_sha256(temporary) != sums[key]:
                    raise CatalogError(
                        f"{shown(self.store.url)}/{files}/{key}: got other bytes than its {SUMS} says; publish the "
                        "release again from the machine that made it"
                    )

        for parent in {(self.folder / key).parent for key in sums}:
            own_folder(parent, self.folder)
        _each(fetch_one, {key: sizes[key] for key in sums if not is_here(key)}, "fetching the release")
        for key in _release_files(self.folder):
            if key not in sums:
                (self.folder / key).unlink()

    def _sums(self, files: str) -> dict[str, str]:
        """Return the hashes of the files in a folder of the store, by their paths; empty where there is no list."""
        return read_sums(self.store.read(f"{files}/{SUMS}")[0].decode())

    def _mark(self) -> str | None:
        """Return the tag of the manifest that the local folder has; None where it is not known."""
        try:
            return str(json.loads((self.folder / MARK).read_text(encoding="utf-8"))["tag"])
        except (OSError, ValueError, KeyError, TypeError):
            return None

    def _set_mark(self, tag: str) -> None:
        text = json.dumps({"url": shown(self.store.url), "tag": tag}) + "\n"
        atomic_write_bytes(self.folder / MARK, text.encode())


def _each(work: Callable[[str], None], sizes: Mapping[str, int], what: str) -> None:
    """Call a function for each file, several at the same time, and say how many of its bytes are done."""
    if sizes:
        tell().start(what, sum(sizes.values()), "bytes")
    with ThreadPoolExecutor(AT_ONCE) as pool:
        for n, _ in zip(sizes.values(), pool.map(work, sizes), strict=True):
            tell().advance(n)


def _files_of(manifest: bytes, url: str) -> str:
    """Return the folder of files that a published manifest names."""
    with suppress(ValueError, KeyError, TypeError):
        files: Any = json.loads(manifest)["files"]
        if FILES.fullmatch(files):
            return str(files)
    raise CatalogError(
        f"{shown(url)}/{MANIFEST}: got no manifest of a published release, expected a published release or "
        "an empty place; choose another place"
    )


def _release_files(folder: Path) -> list[str]:
    """Return the files of a release; hidden files, retired files, the manifest and the list of hashes are not."""
    paths = (path.relative_to(folder) for path in sorted(folder.rglob("*")) if path.is_file())
    own = (p for p in paths if p.parts[0] != RETIRED and not any(part.startswith(".") for part in p.parts))
    return [name for name in map(Path.as_posix, own) if name not in (MANIFEST, SUMS)]


def _checked_sums(folder: Path) -> dict[str, str]:
    """Return the hashes of a release's files; OutputFolderError where an annotated copy was changed or is gone."""
    manifest = Manifest.read(folder)
    outputs = {} if manifest is None else {o.name: o for o in manifest.outputs}
    for name, output in outputs.items():
        if not output.is_in(folder / name):
            raise OutputFolderError(
                f"{folder / name}: this file was deleted or changed after it was annotated; run the same command again"
            )
    return {
        key: outputs[key].sha256 if key in outputs else file_sha256(folder / key)
        for key in _release_files(folder)
    }


def check_key(key: str, url: str) -> None:
    """Raise CatalogError where a path leads out of the release: others may be able to write to the store."""
    path = PurePosixPath(key)
    if path.is_absolute() or any(part in ("", "..") or part.startswith(".") for part in path.parts):
        raise CatalogError(
            f"{shown(url)}: got a file '{key}', expected a path inside the release; remove it there"
        )
