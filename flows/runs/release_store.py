"""A release in an object store: made in a folder of this machine, then published as a whole.

Below the URL lie `manifest.json` and the files, in a folder that is named by their content (`files-HASH/`).  A release
is published by putting its manifest in the place of the one before, on condition that this is still there.  So readers
see one release or the next one, and of two runs the second one publishes nothing.  Copies are sent while others are
annotated (`_early_sending`), and copied into that folder within the store.  `SHA256SUMS` beside the files
lists them, and `HASH` is its hash: a file of that name in that folder can only be the same file.

The folder here, below `BLR_STAGING` or the user's cache, holds the release too, with everything that later runs need.
It is brought back from the store where it is lost, or another machine has published since.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any

import platformdirs

from catalogs.errors import CatalogError
from catalogs.files.atomic import atomic_path, atomic_write_bytes
from catalogs.remote.object_store import ObjectStore, Stored, why_not
from catalogs.remote.urls import file_name, shown, url_of
from flows.errors import OutputFolderError, UsageError
from flows.runs._early_sending import INCOMING, sending
from flows.runs.allowed_roots import OutputFolder, check_output, check_url
from flows.runs.lock import exclusive
from flows.runs.manifest import MANIFEST, Manifest
from flows.runs.outputs import file_sha256
from flows.runs.progress import tell
from flows.runs.staging import RETIRED

__all__ = ["STAGING", "check_store", "folder_here", "output_folder", "published_at"]

STAGING = "BLR_STAGING"
"""Environment variable that names the folder in which releases of object stores are made."""
MARK = ".blr-store.json"
"""Which state of the store's manifest the folder here is of."""
SUMS = "SHA256SUMS"
FILES = re.compile(r"files-[0-9a-f]{16}")
AT_ONCE = 8
"""Files that are sent or fetched at the same time."""


def published_at(out: str | Path) -> str | None:
    """Return the URL of the release that an output folder stands for, as it may be shown; None for a folder here."""
    url = url_of(out)
    return None if url is None else shown(url)


def check_store(out: str | Path, *, key: str) -> str:
    """Return the URL of a release; UsageError where none can be published there.  `key` says who named it."""
    url = url_of(out) or str(out)
    if why := why_not(url):
        raise UsageError(f"{key}: {why}")
    return check_url(url, key=key)


def folder_here(out: str | Path, *, base: Path = Path()) -> Path:
    """Return the folder of this machine that an output folder is made in; no store is asked."""
    url = url_of(out)
    return base / out if url is None else ReleaseStore.at(url).folder


@contextmanager
def output_folder(
    out: str | Path, *, key: str, base: Path = Path(), publish: bool = True
) -> Iterator[OutputFolder]:
    """Give the folder that a user named for outputs, which may be relative to `base`; `key` says who named it.

    For a URL it is a folder of this machine with the release that is there.  What it holds at the end is published,
    unless `publish` is False, or the block raises.

    Raises
    ------
    UsageError
        If a path or a URL leads out of the configured roots, or the URL is of no store that releases are published in.
    CatalogError
        If the store does not answer.
    OutputFolderError
        If another run has published there meanwhile, or works in the folder here.
    """
    url = url_of(out)
    if url is None:
        yield check_output(out, key=key, base=base)
        return
    release = ReleaseStore.at(check_store(url, key=key))
    before = release.bring()
    if not publish:
        yield release.folder
        return
    with sending(release.store, release.folder):
        yield release.folder
    release.publish(before)


@dataclass(frozen=True)
class ReleaseStore:
    """A release in a store, and its folder here."""

    store: ObjectStore
    folder: OutputFolder

    @classmethod
    def at(cls, url: str) -> ReleaseStore:
        """Return the release at a URL; nothing is asked or made yet."""
        store = ObjectStore.at(url)
        top = os.environ.get(STAGING)
        place = Path(top) if top else Path(platformdirs.user_cache_path("blr")) / "releases"
        name = f"{file_name(store.url)}-{hashlib.sha256(store.url.encode()).hexdigest()[:12]}"
        return cls(store, OutputFolder(place / name))

    def bring(self) -> Stored | None:
        """Return the manifest that is published, None for none; the folder here has its release, or a later one."""
        published = self.store.read(MANIFEST)
        if published is None or self._mark() == published.tag:
            return published
        files = _files_of(published, self.store.url)
        sizes = {key: n for key, n in self.store.sizes(files).items() if key != MANIFEST}
        for key in sizes:
            _check_key(key, self.store.url)
        tell().note(
            f"{shown(self.store.url)}: its release is not on this machine and is fetched into {self.folder}"
        )
        self.folder.mkdir(parents=True, exist_ok=True)
        with exclusive(self.folder):
            self._fetch(files, sizes)
            atomic_write_bytes(self.folder / MANIFEST, published.content)
            Manifest.sweep(self.folder)
            self._set_mark(published.tag)
        return published

    def publish(self, before: Stored | None) -> None:
        """Publish what the folder here holds, in the place of the release `before`; not where that is the same."""
        if not (self.folder / MANIFEST).is_file():
            return
        with exclusive(self.folder):
            sums = _listing(self.folder)
            text = _text(sums)
            files = f"files-{hashlib.sha256(text).hexdigest()[:16]}"
            others = {key.partition("/")[0] for key in self.store.sizes("")} - {files}
            if before is None or self._manifest(files) != before.content:
                self._commit(files, sums, before)
            self._sweep({name for name in others if FILES.fullmatch(name) or name == INCOMING})

    def _commit(self, files: str, sums: Mapping[str, str], before: Stored | None) -> None:
        """Send what is not there yet, then put the manifest in the place of the one before, if that is still there."""
        whole = self._fill(files, sums, None if before is None else _files_of(before, self.store.url))
        there = self.store.read(MANIFEST)
        same = (there and there.tag) == (before and before.tag)
        manifest = self._manifest(files)
        if not (whole and same and self.store.replace(MANIFEST, manifest, before=before)):
            raise OutputFolderError(
                f"{shown(self.store.url)}: got a changed release: another run has published one, or files "
                "were removed; run the same command again, which starts from the present release"
            )
        self._fill(files, sums, None)  # of which the other run may have swept some meanwhile
        published = self.store.read(MANIFEST)
        ours = published is not None and published.content == manifest  # else a third run was here meanwhile
        self._set_mark(published.tag if published is not None and ours else "")

    def _manifest(self, files: str) -> bytes:
        document = json.loads((self.folder / MANIFEST).read_text(encoding="utf-8"))
        return (json.dumps({**document, "files": files}, indent=1) + "\n").encode()

    def _fill(self, files: str, sums: Mapping[str, str], old: str | None) -> bool:
        """Send the files that are not there yet, copy those of the release before; say whether all are there then."""
        there = self.store.sizes(files)
        sizes = {key: (self.folder / key).stat().st_size for key in sums}
        missing = [key for key in sums if there.get(key) != sizes[key]]
        known = self._sums(old) if old and missing else {}
        early = self.store.sizes(INCOMING) if missing else {}

        def send(key: str) -> int:
            if known.get(key) == sums[key]:
                self.store.copy(f"{old}/{key}", f"{files}/{key}")
            elif early.get(sums[key]) != sizes[key] or not self._taken(sums[key], f"{files}/{key}"):
                self.store.upload(self.folder / key, f"{files}/{key}")
            return sizes[key]

        if missing:
            tell().start(
                f"publishing at {shown(self.store.url)}", sum(sizes[key] for key in missing), "bytes"
            )
        self._each(send, missing)
        self.store.put(f"{files}/{SUMS}", _text(sums))
        self.store.put(f"{files}/{MANIFEST}", self._manifest(files))
        there = self.store.sizes(files)
        return all(there.get(key) == sizes[key] for key in sums)

    def _taken(self, sha256: str, key: str) -> bool:
        """Copy a file that was sent early; say whether it was there still, for another run may have published."""
        try:
            self.store.copy(f"{INCOMING}/{sha256}", key)
        except CatalogError:
            return False
        return True

    def _fetch(self, files: str, sizes: Mapping[str, int]) -> None:
        """Bring the files of a release, and remove what is not of it; those that are here already stay."""
        sums = self._sums(files)
        if set(sums) != set(sizes) - {SUMS}:
            raise CatalogError(
                f"{shown(self.store.url)}/{files}: got other files than its {SUMS} lists; publish the release again "
                "from the machine that made it"
            )
        missing = []
        for key in sums:
            here = self.folder / key
            if not (here.is_file() and here.stat().st_size == sizes[key] and file_sha256(here) == sums[key]):
                missing.append(key)

        def fetch(key: str) -> int:
            here = self.folder / key
            here.parent.mkdir(parents=True, exist_ok=True)
            with atomic_path(here) as temporary:
                self.store.fetch(f"{files}/{key}", temporary)
                if file_sha256(temporary) != sums[key]:
                    raise CatalogError(
                        f"{shown(self.store.url)}/{files}/{key}: got other bytes than its {SUMS} says; publish the "
                        "release again from the machine that made it"
                    )
            return sizes[key]

        if missing:
            tell().start("fetching the release", sum(sizes[key] for key in missing), "bytes")
        self._each(fetch, missing)
        for key in _keys(self.folder):
            if key not in sums:
                (self.folder / key).unlink()

    def _each(self, work: Callable[[str], int], keys: list[str]) -> None:
        with ThreadPoolExecutor(AT_ONCE) as pool:
            for n in pool.map(work, keys):
                tell().advance(n)

    def _sums(self, files: str) -> dict[str, str]:
        listed = self.store.read(f"{files}/{SUMS}")
        if listed is None:
            return {}
        lines = (line.split("  ", 1) for line in listed.content.decode().splitlines())
        return {key: sha256 for sha256, key in lines}

    def _sweep(self, folders: set[str]) -> None:
        """Remove folders of releases that were published before, or never."""
        for folder in sorted(folders):
            self.store.remove(f"{folder}/{key}" for key in self.store.sizes(folder))

    def _mark(self) -> str | None:
        try:
            return str(json.loads((self.folder / MARK).read_text(encoding="utf-8"))["tag"])
        except (OSError, ValueError, KeyError, TypeError):
            return None

    def _set_mark(self, tag: str) -> None:
        text = json.dumps({"url": shown(self.store.url), "tag": tag}) + "\n"
        atomic_write_bytes(self.folder / MARK, text.encode())


def _files_of(published: Stored, url: str) -> str:
    """Return the folder of files that a published manifest names."""
    try:
        files: Any = json.loads(published.content)["files"]
        if FILES.fullmatch(files):
            return str(files)
    except (ValueError, KeyError, TypeError):
        pass
    raise CatalogError(
        f"{shown(url)}/{MANIFEST}: got no manifest of a published release, expected a published release or "
        "an empty place; choose another place"
    )


def _keys(folder: Path) -> list[str]:
    """Return the files of a release: none that are hidden, retired, or the manifest."""
    paths = (path.relative_to(folder) for path in sorted(folder.rglob("*")) if path.is_file())
    return [
        path.as_posix()
        for path in paths
        if path.parts[0] != RETIRED
        and path.as_posix() not in (MANIFEST, SUMS)
        and not any(part.startswith(".") for part in path.parts)
    ]


def _listing(folder: Path) -> dict[str, str]:
    """Return the hashes of the files of a release; OutputFolderError where an annotated copy is not as it was made."""
    manifest = Manifest.read(folder)
    outputs = {} if manifest is None else {o.name: o for o in manifest.outputs}
    for name, output in outputs.items():
        if not output.is_in(folder / name):
            raise OutputFolderError(
                f"{folder / name}: this file was deleted or changed after it was annotated; run the same command again"
            )
    return {
        key: outputs[key].sha256 if key in outputs else file_sha256(folder / key) for key in _keys(folder)
    }


def _text(sums: Mapping[str, str]) -> bytes:
    return "".join(f"{sums[key]}  {key}\n" for key in sorted(sums)).encode()


def _check_key(key: str, url: str) -> None:
    """Refuse a path that leads elsewhere: whoever writes to a bucket could name one."""
    path = PurePosixPath(key)
    if path.is_absolute() or any(part in ("", "..") or part.startswith(".") for part in path.parts):
        raise CatalogError(
            f"{shown(url)}: got a file '{key}', expected a path inside the release; remove it there"
        )
