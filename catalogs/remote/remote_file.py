"""Files at URLs: read in pieces, fetched, and kept in an object store."""

from __future__ import annotations

import hashlib
import io
import json
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import quote

from catalogs.errors import CatalogError, DamagedFileError
from catalogs.files.atomic import atomic_path, check_free_space
from catalogs.remote.urls import (
    RemoteState,
    file_name,
    has_secret,
    is_chained,
    is_web,
    key_below,
    scheme_of,
    shown,
    speaking_of,
)

# Reading asks for the bytes that are wanted, piece by piece.  An annotated copy has every old byte, so for that a file
# is fetched, beside its copy, and goes when the copy is whole; copies are local.  Nothing is cached.

BLOCK = 1 << 20
"""Bytes asked for at a time, so that a column chunk of any size is streamed."""
MAGIC_BYTES = 8
PATIENCE = 120.0
SLOWEST = 2_000
"""Seconds that any transfer may take, and bytes a second that a longer one needs: very slow transfers are ended."""

Progress = Callable[[int], None]


@dataclass(frozen=True)
class RemoteFile:
    """One file of a file system that fsspec knows: its path there, its size in bytes.

    `tag` is the server's word for this state of the file, empty where it has none that can be trusted; `state` is all
    that it says of it.
    """

    filesystem: Any
    path: str
    n_bytes: int
    tag: str = ""
    state: RemoteState = field(default_factory=RemoteState)

    @property
    def url(self) -> str:
        """The file's URL, as it has to be asked for."""
        return str(self.filesystem.unstrip_protocol(self.path))

    @property
    def name(self) -> str:
        """The file's name."""
        return file_name(self.url)

    def key(self, root: str) -> str:
        """Return its path below a folder."""
        return key_below(self.path, root)

    def __str__(self) -> str:
        return shown(self.url)

    @contextmanager
    def open(self) -> Iterator[io.BufferedIOBase]:
        """Open the file for reading anywhere; what a server hands out only whole is fetched first."""
        with speaking_of(self.url):
            stream = self.filesystem.open(self.path, block_size=BLOCK)
        with stream:
            if self._gives_ranges(stream):
                with io.BufferedReader(_Spoken(stream, self.url), BLOCK) as spoken:
                    yield spoken
                return
        with tempfile.TemporaryDirectory(prefix="blr-remote-") as folder:
            whole = Path(folder) / "whole"
            self.fetch(whole)
            with whole.open("rb") as local:
                yield local

    @contextmanager
    def fetched(self, folder: Path) -> Iterator[Path]:
        """Give a temporary local copy, in a folder of its own in `folder`."""
        with tempfile.TemporaryDirectory(prefix=".blr-fetched-", dir=folder) as name:
            local = Path(name) / self.name
            self.fetch(local)
            yield local

    def fetch(self, local: Path, progress: Progress | None = None) -> None:
        """Copy the file to a path, whole or not at all; `progress` hears of bytes."""
        check_free_space(local.parent, self.n_bytes)
        with atomic_path(local) as temporary:
            with speaking_of(self.url):
                self.filesystem.get_file(self.path, str(temporary), callback=_watch(self, progress))
            self.check_size(temporary.stat().st_size)

    def check_size(self, got: int) -> None:
        """Raise where fewer or more bytes came than the file has."""
        if got != self.n_bytes:
            raise DamagedFileError(
                f"{self} gave {got:,} bytes, expected {self.n_bytes:,}; the file changed or the connection "
                "broke: try again"
            )

    def _gives_ranges(self, stream: Any) -> bool:
        """Say whether any piece may be asked for; tried, since servers that give none do not always say so."""
        if not stream.seekable():
            return False
        if getattr(stream, "size", None) is not None:
            self.check_size(stream.size)
        if not is_web(self.url) or self.n_bytes <= BLOCK:
            return True
        with speaking_of(self.url):
            try:
                stream.seek(-MAGIC_BYTES, io.SEEK_END)
                stream.read(MAGIC_BYTES)
                stream.seek(0)
            except ValueError:  # fsspec's word for a server that sends the whole
                return False
        return True


class _Spoken(io.RawIOBase):
    """A stream whose errors are translated into our own."""

    def __init__(self, stream: Any, url: str) -> None:
        self._stream, self._url = stream, url

    def readinto(self, buffer: Any) -> int:
        """Read as much as there is room for."""
        with speaking_of(self._url):
            got = self._stream.read(len(buffer))
        buffer[: len(got)] = got
        return len(got)

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        """Go elsewhere."""
        return int(self._stream.seek(offset, whence))

    def tell(self) -> int:
        """Say where."""
        return int(self._stream.tell())

    def seekable(self) -> bool:
        """Say that pieces may be asked for."""
        return True

    def readable(self) -> bool:
        """Say that it may be read."""
        return True


def _watch(file: RemoteFile, progress: Progress | None) -> Any:
    """Return a callback of fsspec that ends a transfer which sends more bytes than the file has, or is too slow."""
    from fsspec.callbacks import Callback  # noqa: PLC0415 -- slow to import, and most files are here

    began, seen = time.monotonic(), 0

    def hear(_size: int | None, got: int, **_: Any) -> None:
        nonlocal seen
        if progress is not None and got > seen:
            progress(got - seen)
        seen = got
        if got > file.n_bytes:
            file.check_size(got)
        if time.monotonic() - began > PATIENCE + got / SLOWEST:
            raise CatalogError(
                f"{file} arrived at less than {SLOWEST:,} bytes a second, which is too slow; try again later"
            )

    return Callback(hooks={"bytes": hear})


# Objects appear whole or not at all.  One of them can be put on condition that it is as it was when it was read
# (If-Match; of gs ifGenerationMatch), or that nothing is there yet (If-None-Match): of two writers, the second one gets
# an error.

PRECONDITION = {"PreconditionFailed", "ConditionalRequestConflict", "412", "409"}
TAGS = ("ETag", "generation", "etag")
"""What drivers call an object's tag; of gs it is the generation, on which alone a put may depend."""


@dataclass(frozen=True)
class Stored:
    """An object's bytes, and its tag: the word of the store for this state of it."""

    content: bytes
    tag: str


@dataclass(frozen=True)
class ObjectStore:
    """The objects below a URL; keys are paths below it."""

    url: str
    filesystem: Any
    root: str

    @classmethod
    def at(cls, url: str) -> ObjectStore:
        """Return the store at a URL.

        Raises
        ------
        CatalogError
            As `why_not` says, or if the store's driver is not installed.
        """
        if why := why_not(url):
            raise CatalogError(why)
        from fsspec.core import url_to_fs  # noqa: PLC0415 -- slow to import, and most outputs are local

        try:
            with speaking_of(url):
                filesystem, root = url_to_fs(url.rstrip("/"), use_listings_cache=False)
        except CatalogError as error:
            if not isinstance(error.__cause__, ImportError):
                raise
            raise CatalogError(
                f"{shown(url)} cannot be reached: {error.__cause__}; install the driver that this message names"
            ) from error
        return cls(url.rstrip("/"), filesystem, root)

    def path(self, key: str) -> str:
        """Return the driver's path of an object."""
        return f"{self.root}/{key}"

    def read(self, key: str) -> Stored | None:
        """Return an object; None where nothing is there."""
        with speaking_of(self.url):
            self.filesystem.invalidate_cache()
            try:
                tag = _tag(self.filesystem.info(self.path(key)))
                content = bytes(self.filesystem.cat_file(self.path(key)))
                if _tag(self.filesystem.info(self.path(key))) == tag:
                    return Stored(content, tag)
            except FileNotFoundError:
                return None
        return self.read(key)  # it was replaced meanwhile

    def replace(self, key: str, content: bytes, *, before: Stored | None) -> bool:
        """Put an object in the place of what was `before`, None for nothing; say whether that was there still."""
        put = STORES[scheme_of(self.url)]
        with speaking_of(f"{self.url}/{key}"):
            try:
                put(self.filesystem, self.path(key), content, before.tag if before else None)
            except Exception as error:
                if _is_precondition(error):
                    return False
                raise
            self.filesystem.invalidate_cache()
        return True

    def sizes(self, folder: str) -> dict[str, int]:
        """Return the sizes of all objects below a folder, by their paths there; '' is the root."""
        top = self.path(folder) if folder else self.root
        with speaking_of(self.url):
            self.filesystem.invalidate_cache()
            found: Mapping[str, Mapping[str, Any]] = self.filesystem.find(top, detail=True)
        return {path.removeprefix(top).lstrip("/"): int(info["size"]) for path, info in found.items()}

    def put(self, key: str, content: bytes) -> None:
        """Put an object, whatever is there."""
        with speaking_of(f"{self.url}/{key}"):
            self.filesystem.pipe_file(self.path(key), content)

    def upload(self, local: Path, key: str) -> None:
        """Copy a file of this machine to an object."""
        with speaking_of(f"{self.url}/{key}"):
            self.filesystem.put_file(str(local), self.path(key))

    def copy(self, key: str, other: str) -> None:
        """Copy an object within the store."""
        with speaking_of(f"{self.url}/{key}"):
            self.filesystem.cp_file(self.path(key), self.path(other))

    def fetch(self, key: str, local: Path) -> None:
        """Copy an object to a path of this machine."""
        with speaking_of(f"{self.url}/{key}"):
            self.filesystem.get_file(self.path(key), str(local))

    def remove(self, keys: Iterable[str]) -> None:
        """Remove objects; one that has gone already is passed over."""
        for key in keys:
            with speaking_of(f"{self.url}/{key}"):
                try:
                    self.filesystem.rm_file(self.path(key))
                except FileNotFoundError:
                    continue


def why_not(url: str) -> str:
    """Return why releases cannot be published below a URL, '' where they can."""
    if scheme_of(url) not in STORES or is_chained(url):
        return (
            f"got '{shown(url)}', expected a folder on this machine, or a URL of "
            f"{' or '.join(f'{s}://' for s in STORES)}, since other stores cannot replace a release in one "
            "step; write to a folder, and copy it"
        )
    if has_secret(url):
        return (
            f"got '{shown(url)}' with a password, expected a URL without; give the password to the driver by "
            "its environment variables"
        )
    if not key_below(url, f"{scheme_of(url)}://").strip("/").partition("/")[2]:
        return (
            f"got '{shown(url)}', expected a folder in this store, such as {shown(url).rstrip('/')}/release"
        )
    return ""


def _tag(info: Mapping[str, Any]) -> str:
    return next((str(info[name]) for name in TAGS if info.get(name)), "")


def _put_s3(filesystem: Any, path: str, content: bytes, tag: str | None) -> None:
    bucket, key, _ = filesystem.split_path(path)
    condition = {"IfNoneMatch": "*"} if tag is None else {"IfMatch": tag}
    filesystem.call_s3("put_object", Bucket=bucket, Key=key, Body=content, **condition)


def _put_az(filesystem: Any, path: str, content: bytes, tag: str | None) -> None:
    from fsspec.asyn import sync  # noqa: PLC0415 -- see `ObjectStore.at`

    container, blob, _ = filesystem.split_path(path)
    headers = {"If-None-Match": "*"} if tag is None else {"If-Match": tag}

    async def put() -> None:
        async with filesystem.service_client.get_blob_client(container, blob) as client:
            await client.upload_blob(content, overwrite=True, headers=headers)

    sync(filesystem.loop, put)


def _put_gs(filesystem: Any, path: str, content: bytes, tag: str | None) -> None:
    bucket, key, _ = filesystem.split_path(path)
    place = f"{filesystem.base.replace('/storage/', '/upload/storage/', 1)}b/{quote(bucket, safe='')}/o"
    boundary = hashlib.sha256(content).hexdigest()
    named = json.dumps({"name": key}).encode()
    parts = [
        b"Content-Type: application/json\r\n\r\n" + named,
        b"Content-Type: application/json\r\n\r\n" + content,
    ]
    body = b"".join(b"--%s\r\n%s\r\n" % (boundary.encode(), part) for part in parts)
    filesystem.call(
        "POST",
        place,
        uploadType="multipart",  # with uploadType=media, fake-gcs-server would pass over the condition
        ifGenerationMatch=tag or "0",
        headers={"Content-Type": f"multipart/related; boundary={boundary}"},
        data=body + f"--{boundary}--".encode(),
    )


def _is_precondition(error: BaseException | None) -> bool:
    """Say whether a store refused to put an object because it is not as it was."""
    while error is not None:
        answer = getattr(error, "response", None)
        code = answer.get("Error", {}).get("Code") if isinstance(answer, dict) else None
        names = {
            str(code),
            *(str(getattr(error, name, "")) for name in ("status_code", "error_code", "code")),
        }
        if names & PRECONDITION or isinstance(error, FileExistsError):
            return True
        error = error.__cause__ or error.__context__
    return False


Put = Callable[[Any, str, bytes, str | None], None]
STORES: Mapping[str, Put] = {
    "s3": _put_s3,
    "az": _put_az,
    "abfs": _put_az,
    "abfss": _put_az,
    "gs": _put_gs,
    "gcs": _put_gs,
}
"""How an object is put on condition, by the scheme of the URL."""
