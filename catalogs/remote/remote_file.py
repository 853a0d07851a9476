"""Files at URLs: listed by folder or pattern, read in pieces, fetched, and kept in an object store."""

from __future__ import annotations

import hashlib
import io
import json
import re
import tempfile
import time
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import cache, partial
from pathlib import Path, PurePosixPath
from typing import Any
from urllib.parse import quote

from catalogs.errors import CatalogError, DamagedFileError, FormatError
from catalogs.files import atomic_path, check_free_space
from catalogs.remote.urls import (
    agree,
    file_name,
    has_secret,
    is_below,
    is_chained,
    is_web,
    key_below,
    scheme_of,
    scrubbed,
    shown,
    tag_of,
    translated_errors,
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
    """One file of a file system that fsspec knows: its path there, and its `key`, what it is called below the root.

    What is known once its server was asked: its size in bytes; `tag`, the server's word for this state of the file,
    empty where it has none that can be trusted; and `info`, all that it says.
    """

    filesystem: Any
    path: str
    key: str
    n_bytes: int = 0
    tag: str = ""
    info: Mapping[str, Any] = field(default_factory=dict)

    @property
    def url(self) -> str:
        """The file's URL, as it has to be asked for."""
        return str(self.filesystem.unstrip_protocol(self.path))

    def asked(self) -> RemoteFile:
        """Ask for the file's size and state; CatalogError where it is not there, or nobody can tell."""
        with translated_errors(self.url):
            info = self.filesystem.info(self.path)
        if info.get("size") is None:
            raise FormatError(
                f"the server does not state the size of {self}, so a broken transfer would not be "
                "noticed; fetch the file, and open the copy"
            )
        return replace(self, n_bytes=int(info["size"]), tag=tag_of(info), info=info)

    def has_changed(self) -> bool:
        """Ask again; say whether the file is another one than it was."""
        self.filesystem.invalidate_cache()
        return not agree(self.info, self.asked().info)

    def __str__(self) -> str:
        return shown(self.url)

    @contextmanager
    def open(self) -> Iterator[io.BufferedIOBase]:
        """Open the file for reading anywhere; what a server hands out only whole is fetched first."""
        with translated_errors(self.url):
            stream = self.filesystem.open(self.path, block_size=BLOCK)
        with stream:
            if self._gives_ranges(stream):
                with io.BufferedReader(_TranslatedStream(stream, self.url), BLOCK) as buffered:
                    yield buffered
                return
        with self.fetched(Path(tempfile.gettempdir())) as whole, whole.open("rb") as local:
            yield local

    @contextmanager
    def fetched(self, folder: Path) -> Iterator[Path]:
        """Give a temporary local copy, in a folder of its own in `folder`."""
        with tempfile.TemporaryDirectory(prefix=".blr-fetched-", dir=folder) as name:
            local = Path(name) / file_name(self.url)
            self.fetch(local)
            yield local

    def fetch(self, local: Path, progress: Progress | None = None) -> None:
        """Copy the file to a path, whole or not at all; `progress` hears of bytes."""
        check_free_space(local.parent, self.n_bytes)
        with atomic_path(local) as temporary:
            with translated_errors(self.url):
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
        with translated_errors(self.url):
            try:
                stream.seek(-MAGIC_BYTES, io.SEEK_END)
                stream.read(MAGIC_BYTES)
                stream.seek(0)
            except ValueError:  # fsspec's word for a server that sends the whole
                return False
        return True


class _TranslatedStream(io.RawIOBase):
    """A driver's stream whose errors while reading are raised as `translated_errors` does."""

    def __init__(self, stream: Any, url: str) -> None:
        self._stream, self._url = stream, url

    def readinto(self, buffer: Any) -> int:
        with translated_errors(self._url):
            got = self._stream.read(len(buffer))
        buffer[: len(got)] = got
        return len(got)

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        return int(self._stream.seek(offset, whence))

    def tell(self) -> int:
        return int(self._stream.tell())

    def seekable(self) -> bool:
        return True

    def readable(self) -> bool:
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


Stored = tuple[bytes, str | None]
"""An object's bytes, and its tag: the word of the store for this state of it, None where nothing is there."""


class ObjectStore:
    """The objects below a URL; keys are paths below it.

    Raises
    ------
    CatalogError
        As `why_not` says, or if the store's driver is not installed.
    """

    def __init__(self, url: str) -> None:
        if why := why_not(url):
            raise CatalogError(why)
        self.url = url.rstrip("/")
        with translated_errors(url):
            self.filesystem, self.root = reached(self.url, use_listings_cache=False)

    def path(self, key: str) -> str:
        """Return the driver's path of an object."""
        return f"{self.root}/{key}"

    def read(self, key: str) -> Stored:
        """Return an object and its tag."""
        with translated_errors(self.url):
            self.filesystem.invalidate_cache()
            try:
                tag = _tag(self.filesystem.info(self.path(key)))
                content = bytes(self.filesystem.cat_file(self.path(key)))
                if _tag(self.filesystem.info(self.path(key))) == tag:
                    return content, tag
            except FileNotFoundError:
                return b"", None
        return self.read(key)  # it was replaced meanwhile

    def replace(self, key: str, content: bytes, *, before: str | None) -> bool:
        """Put an object in the place of that of a tag, None for nothing; say whether that was there still.

        A driver asks again where an answer was lost, and then finds its own object there.
        """
        put = STORES[scheme_of(self.url)]
        with translated_errors(f"{self.url}/{key}"):
            try:
                put(self.filesystem, self.path(key), content, before)
            except Exception as error:
                if _is_precondition(error):
                    return self.read(key)[0] == content
                raise
            self.filesystem.invalidate_cache()
        return True

    def sizes(self, folder: str) -> dict[str, int]:
        """Return the sizes of all objects below a folder, by their paths there; '' is the root."""
        top = self.path(folder) if folder else self.root
        with translated_errors(self.url):
            self.filesystem.invalidate_cache()
            found: Mapping[str, Mapping[str, Any]] = self.filesystem.find(top, detail=True)
        return {path.removeprefix(top).lstrip("/"): int(info["size"]) for path, info in found.items()}

    def put(self, key: str, content: bytes) -> None:
        """Put an object, whatever is there."""
        with translated_errors(f"{self.url}/{key}"):
            self.filesystem.pipe_file(self.path(key), content)

    def upload(self, local: Path, key: str) -> None:
        """Copy a file of this machine to an object."""
        with translated_errors(f"{self.url}/{key}"):
            self.filesystem.put_file(str(local), self.path(key))

    def copy(self, key: str, other: str) -> None:
        """Copy an object within the store."""
        with translated_errors(f"{self.url}/{key}"):
            self.filesystem.cp_file(self.path(key), self.path(other))

    def fetch(self, key: str, local: Path) -> None:
        """Copy an object to a path of this machine."""
        with translated_errors(f"{self.url}/{key}"):
            self.filesystem.get_file(self.path(key), str(local))

    def remove(self, keys: Iterable[str]) -> None:
        """Remove objects; one that has gone already is passed over."""
        for key in keys:
            with translated_errors(f"{self.url}/{key}"):
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
        return f"got '{shown(url)}', expected a folder in it, such as {shown(url).rstrip('/')}/release"
    return ""


def _tag(info: Mapping[str, Any]) -> str:
    return next((str(info[name]) for name in TAGS if info.get(name)), "")


def _put_s3(filesystem: Any, path: str, content: bytes, tag: str | None) -> None:
    bucket, key, _ = filesystem.split_path(path)
    condition = {"IfNoneMatch": "*"} if tag is None else {"IfMatch": tag}
    filesystem.call_s3("put_object", Bucket=bucket, Key=key, Body=content, **condition)


def _put_az(filesystem: Any, path: str, content: bytes, tag: str | None) -> None:
    from fsspec.asyn import sync  # noqa: PLC0415 -- see `local_path`

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
    parts = [b"Content-Type: application/json\r\n\r\n" + part for part in (named, content)]
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
        codes = {str(getattr(error, name, "")) for name in ("status_code", "error_code", "code")}
        if {*codes, str(code)} & PRECONDITION or isinstance(error, FileExistsError):
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


# What a user's fsspec configuration says of `client_kwargs` stands above this.

CONNECT = 30.0
"""Seconds within which a server has to take a connection."""
SILENCE = 60.0
"""Seconds that a server may send nothing in the middle of an answer.  A whole answer may take as long as it does."""
Client = Callable[..., Awaitable[Any]]


@cache
def web_client(within: tuple[str, ...]) -> Client:
    """Return what makes the client of a file system, whose requests are not led out of `within`, if that names URLs."""

    async def check(_: Any, __: Any, seen: Any) -> None:
        """Refuse a redirection that leads elsewhere, before it is followed."""
        answer = seen.response
        named = answer.headers.get("Location") or answer.headers.get("URI") or ""
        target = str(answer.url.join(type(answer.url)(named)))
        if within and not any(is_below(target, root) for root in within):
            answer.close()
            raise CatalogError(
                f"{shown(str(answer.url))} redirects to {shown(target)}, expected an address below "
                f"{' or '.join(map(shown, within))}; ask for that address to be allowed, or fetch the file yourself"
            )

    async def client(**options: Any) -> Any:
        import aiohttp  # noqa: PLC0415 -- fsspec has imported it; who reads no URL of the web does not wait for it

        trace = aiohttp.TraceConfig()
        trace.on_request_redirect.append(check)
        # A file that is stored compressed, and said to be so, is wanted as it is stored.
        headers = {"Accept-Encoding": "identity"} | dict(options.pop("headers", None) or {})
        ours: dict[str, Any] = {
            "timeout": aiohttp.ClientTimeout(total=None, sock_connect=CONNECT, sock_read=SILENCE),
            "auto_decompress": False,
            "trust_env": True,  # proxies, and the passwords of ~/.netrc
        }
        traces = [*options.pop("trace_configs", ()), trace]
        return aiohttp.ClientSession(headers=headers, trace_configs=traces, **(ours | options))

    return client


# Folders are looked through here, level by level: fsspec's own way passes over folders that it could not list, and
# files would seem to be gone.

WHOLE = ("hats.properties", "properties", "collection.properties")
"""Files that tell a HATS catalogue."""
HIDDEN = re.compile(r"(?:^|/)[._]")
DEEPEST = 32
"""Most levels of folders; deeper ones mean that a listing repeats itself."""
LARGEST_PAGE = 1 << 26
"""Largest listing page that is read, in bytes."""
AT_ONCE = 8
"""Files that are asked for their size at the same time."""


@dataclass(frozen=True)
class Listing:
    """What a URL means: a file, a folder's files, or those of a pattern; `root` is the folder above them."""

    root: str
    places: tuple[RemoteFile, ...]  # that are still to be asked for
    kind: str  # "file", "folder", "pattern", or "hats": all files of a catalogue

    @property
    def name(self) -> str:
        """What the URL's file, or the folder above its files, is called."""
        (only, *_) = self.places
        return PurePosixPath(only.key).name if self.kind == "file" else file_name(self.url)

    @property
    def url(self) -> str:
        """The root's URL."""
        return str(self.places[0].filesystem.unstrip_protocol(self.root))

    def all_files(self) -> list[RemoteFile]:
        """Return the files with their sizes; CatalogError where one cannot be had."""
        files = []
        for file in self.files():
            if isinstance(file, CatalogError):
                raise file
            files.append(file)
        return files

    def files(self) -> Iterator[RemoteFile | CatalogError]:
        """Yield, in their order, the files with their sizes, or why one cannot be had."""

        def asked(place: RemoteFile) -> RemoteFile | CatalogError:
            try:
                return place.asked()
            except CatalogError as error:
                return error

        if not getattr(self.places[0].filesystem, "async_impl", False):
            yield from map(asked, self.places)  # a driver of one connection, such as ftp's
            return
        with ThreadPoolExecutor(AT_ONCE) as pool:
            yield from pool.map(asked, self.places)


def remote_listing(
    url: str, suffixes: tuple[str, ...], *, within: Sequence[str] = (), hats: bool = False
) -> Listing | Path:
    """Return what a URL means; the path of one that means a local file.

    A catalogue of HATS is all of its files, or refused unless `hats` is True.  Of another folder those files count that
    are named with one of the suffixes; a pattern (`s3://bucket/release/*.parquet`) names its own.  Servers of the web
    may lead on to other places only below one of `within`, if that names some.
    """
    here = local_path(url)
    if here is not None:
        return here
    options = {"get_client": web_client(tuple(within))} if is_web(url) else {}
    filesystem, path = reached(url, **options)
    with translated_errors(url):
        filesystem.invalidate_cache()
        return listed(filesystem, path, suffixes, hats=hats)


def local_path(url: str) -> Path | None:
    """Return the path that a URL such as `file:///data/a.parquet` means, None for those of elsewhere."""
    if is_web(url):
        return None
    from fsspec.implementations.local import LocalFileSystem  # noqa: PLC0415 -- slow to import, and most files are here

    if scheme_of(url) not in LocalFileSystem.protocol:
        return None
    return Path(str(LocalFileSystem._strip_protocol(url)))  # noqa: SLF001 -- fsspec's drivers have no other name for it


def listed(filesystem: Any, path: str, suffixes: tuple[str, ...], *, hats: bool) -> Listing:
    """Return the root and the files of a path on a file system."""
    url = str(filesystem.unstrip_protocol(path))
    plain, query, _ = path.partition("?") if is_web(url) else (path, "", "")
    # The first wild card of a pattern; a host's [::1] is none.
    start = max(0, plain.find("/", plain.find("://") + 3)) if is_web(url) else 0
    wild = min((at for c in "*[" if (at := plain.find(c, start)) >= 0), default=None)
    # Spark calls folders x.parquet.
    folder = plain.endswith("/") or (not is_web(url) and filesystem.isdir(path))
    if wild is None and plain.lower().endswith(suffixes) and not folder:
        root = plain.rpartition("/")[0]
        return inside(root, filesystem, [path], "file")
    if query:
        raise FormatError(
            f"{shown(url)} has a query, which only the URL of a single file may have; name the files one by one"
        )
    if wild is None:
        root = path.rstrip("/")
        refuse_other_than_page(filesystem, url, path, suffixes)
        paths = list(below(filesystem, path, DEEPEST))
        if any(key_below(p, root) in WHOLE for p in paths):
            if not hats:
                raise FormatError(
                    f"{shown(url)} is a HATS catalogue, which can be read from a local folder only; fetch it first, or "
                    "open the Parquet files below its folder dataset, without its margins"
                )
            return inside(root, filesystem, paths, "hats")
        # What begins with . or _, in any part of its path, are other things.
        named = (p for p in paths if p.lower().endswith(suffixes))
        paths = [p for p in named if not HIDDEN.search(key_below(p, root))]
    else:
        root = plain[:wild].rpartition("/")[0]
        from fsspec.utils import glob_translate  # noqa: PLC0415 -- see `local_path`

        matches = re.compile(glob_translate(plain)).fullmatch
        page = f"{root}/" if is_web(url) else root
        folders = plain[len(root) :]
        depth = DEEPEST if "**" in folders else folders.count("/")
        paths = [p for p in below(filesystem, page, depth) if matches(p)]
    if not paths:
        raise FormatError(f"{shown(url)} holds no catalogue; expected names ending in {', '.join(suffixes)}")
    return inside(root, filesystem, paths, "folder" if wild is None else "pattern")


def inside(root: str, filesystem: Any, paths: Sequence[str], kind: str) -> Listing:
    """Return the listing of paths; FormatError where one leads out of the root, for a listing may name anything."""
    places = [RemoteFile(filesystem, path, key_below(path, root)) for path in sorted(paths)]
    for place in places:
        path = PurePosixPath(place.key)
        if path.is_absolute() or any(p == ".." or re.search(r"[\\\x00-\x1f]", p) for p in path.parts):
            raise FormatError(
                f"{place} has a name that is not allowed here, expected one without '..', backslashes "
                "and percent-encoded slashes; fetch it under another name"
            )
    return Listing(root, tuple(sorted(places, key=lambda place: place.key)), kind)


def below(filesystem: Any, folder: str, depth: int) -> Iterator[str]:
    """Yield the files of a folder, at most so deep; what a page of the web links elsewhere does not count.

    Folders of the web are asked for as they are named, with or without a slash at the end: it may matter.
    """
    inside = partial(is_below, root=folder) if is_web(folder) else bool
    for entry in filesystem.ls(folder, detail=True):
        name = str(entry["name"])
        if name.rstrip("/") == folder.rstrip("/") or not inside(name):
            continue
        if entry["type"] != "directory":
            yield name
        elif depth > 1:
            yield from below(filesystem, name if is_web(folder) else name.rstrip("/"), depth - 1)


def refuse_other_than_page(filesystem: Any, url: str, path: str, suffixes: tuple[str, ...]) -> None:
    """Raise where something else than a page of links is at a folder's URL of the web: all of it would be read."""
    info = filesystem.info(path) if is_web(url) else {}
    kind, size = info.get("mimetype", "text/html"), info.get("size") or 0
    if "html" not in kind or size > LARGEST_PAGE:
        raise FormatError(
            f"{shown(url)} is {kind} of {size:,} bytes, which is neither a page that lists files nor a file that can "
            f"be read at a URL; expected names ending in {', '.join(suffixes)}, or a folder; fetch it"
        )


def reached(url: str, **options: Any) -> tuple[Any, str]:
    """Return the file system of a URL and the path there; CatalogError where there is no driver for it."""
    import fsspec  # noqa: PLC0415 -- see `local_path`
    from fsspec.core import url_to_fs  # noqa: PLC0415

    try:
        filesystem, path = url_to_fs(url, **options)
    except ImportError as error:
        raise CatalogError(
            f"{shown(url)} cannot be reached: {scrubbed(str(error))}; install the driver that this message names"
        ) from error
    except ValueError as error:
        known = ", ".join(sorted(fsspec.available_protocols()))
        raise CatalogError(
            f"{shown(url)} cannot be reached: {scrubbed(str(error))}; expected one of {known}"
        ) from error
    return filesystem, str(path)
