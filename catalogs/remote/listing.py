"""The files of a folder or a pattern at a URL."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path, PurePosixPath
from typing import Any

from catalogs.errors import CatalogError, FormatError
from catalogs.remote.remote_file import RemoteFile
from catalogs.remote.urls import (
    file_name,
    is_below,
    is_web,
    key_below,
    scheme_of,
    scrubbed,
    shown,
    speaking_of,
    state_of,
    tag_of,
)

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
DEEPEST = 32
"""Most levels of folders; deeper ones mean that a listing repeats itself."""
LARGEST_PAGE = 1 << 26
"""Largest listing page that is read, in bytes."""
AT_ONCE = 8
"""Files that are asked for their size at the same time."""


@dataclass(frozen=True)
class Place:
    """A file that a listing names: its path, and what it is called below the root."""

    filesystem: Any
    path: str
    key: str

    @property
    def url(self) -> str:
        """The file's URL, as it has to be asked for."""
        return str(self.filesystem.unstrip_protocol(self.path))

    def file(self) -> RemoteFile:
        """Ask for the file's size and state; CatalogError where it is not there, or nobody can tell."""
        with speaking_of(self.url):
            info = self.filesystem.info(self.path)
        if info.get("size") is None:
            raise FormatError(
                f"the server does not state the size of {shown(self.url)}, so a broken transfer would not be "
                "noticed; fetch the file, and open the copy"
            )
        return RemoteFile(self.filesystem, self.path, int(info["size"]), tag_of(info), state_of(info))


@dataclass(frozen=True)
class Listing:
    """What a URL means: a file, a folder's files, or those of a pattern; `root` is the folder above them."""

    root: str
    places: tuple[Place, ...]
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
        if not getattr(self.places[0].filesystem, "async_impl", False):
            yield from map(_file_or_error, self.places)  # a driver of one connection, such as ftp's
            return
        with ThreadPoolExecutor(AT_ONCE) as pool:
            yield from pool.map(_file_or_error, self.places)


def as_it_is_now(file: RemoteFile) -> RemoteFile:
    """Ask for a file's size and state again."""
    file.filesystem.invalidate_cache()
    return Place(file.filesystem, file.path, "").file()


def _file_or_error(place: Place) -> RemoteFile | CatalogError:
    try:
        return place.file()
    except CatalogError as error:
        return error


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
    filesystem, path = reached(url, tuple(within))
    with speaking_of(url):
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
    wild = wild_at(plain, url)
    folder = plain.endswith("/") or (
        not is_web(url) and filesystem.isdir(path)
    )  # Spark calls folders x.parquet
    if wild is None and plain.lower().endswith(suffixes) and not folder:
        root = plain.rpartition("/")[0]
        only = Place(filesystem, path, key_below(plain, root))
        require_inside(only)
        return Listing(root, (only,), "file")
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
            return inside(root, [Place(filesystem, p, key_below(p, root)) for p in paths], "hats")
        paths = [p for p in paths if p.lower().endswith(suffixes) and is_data(key_below(p, root))]
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
    kind = "folder" if wild is None else "pattern"
    return inside(root, [Place(filesystem, p, key_below(p, root)) for p in sorted(paths)], kind)


def inside(root: str, places: Sequence[Place], kind: str) -> Listing:
    """Return the listing of places that do not lead out of their root."""
    for place in places:
        require_inside(place)
    return Listing(root, tuple(sorted(places, key=lambda place: place.key)), kind)


def wild_at(path: str, url: str) -> int | None:
    """Return where in a path a pattern's first wild card is, None where it has none; a host's [::1] is no such."""
    start = path.find("/", path.find("://") + 3) if is_web(url) else 0
    return min((at for c in "*[" if (at := path.find(c, max(0, start))) >= 0), default=None)


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


def is_data(key: str) -> bool:
    """Say whether no part of a file's path begins with . or _, as those of other things do."""
    return not any(part.startswith((".", "_")) for part in PurePosixPath(key).parts)


def require_inside(place: Place) -> None:
    """Raise where a file's path below the root is not a path on this machine: a listing may name anything."""
    path = PurePosixPath(place.key)
    if path.is_absolute() or any(part == ".." or re.search(r"[\\\x00-\x1f]", part) for part in path.parts):
        raise FormatError(
            f"{shown(place.url)} has a name that is not allowed here, expected one without '..', backslashes "
            "and percent-encoded slashes; fetch it under another name"
        )


def refuse_other_than_page(filesystem: Any, url: str, path: str, suffixes: tuple[str, ...]) -> None:
    """Raise where something else than a page of links is at a folder's URL of the web: all of it would be read."""
    info = filesystem.info(path) if is_web(url) else {}
    kind, size = info.get("mimetype", "text/html"), info.get("size") or 0
    if "html" not in kind or size > LARGEST_PAGE:
        raise FormatError(
            f"{shown(url)} is {kind} of {size:,} bytes, which is neither a page that lists files nor a file that can "
            f"be read at a URL; expected names ending in {', '.join(suffixes)}, or a folder; fetch it"
        )


def reached(url: str, within: tuple[str, ...]) -> tuple[Any, str]:
    """Return the file system of a URL and the path there; CatalogError where there is no driver for it."""
    import fsspec  # noqa: PLC0415 -- see `local_path`
    from fsspec.core import url_to_fs  # noqa: PLC0415

    options = {"get_client": web_client(within)} if is_web(url) else {}
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
