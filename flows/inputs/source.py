"""What the user named, resolved once: files, folders, patterns, URLs; and which files are still being written.

Files at URLs, of any format, are fetched into a hidden folder of the output's: everything after that sees files.
`OUT/.blr-fetched/` holds them until the run has ended.  What a killed run had fetched is not fetched again, as far as
the server can tell that it is the same.  Files that an earlier run has done, and are as they were, are not fetched.
"""

from __future__ import annotations

import os
import re
import shutil
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field, replace
from functools import cache
from hashlib import sha256
from pathlib import Path, PurePosixPath
from types import MappingProxyType
from typing import Literal, NamedTuple

from catalogs import hats
from catalogs.catalog.catalog import Catalog
from catalogs.errors import CatalogError, FormatError
from catalogs.files import (
    StorageError,
    atomic_write_text,
    check_free_space,
    is_pattern,
    require_file,
    what_is_there,
)
from catalogs.formats import FORMATS, TableChoice, all_suffixes, format_of, tables_of, without_notes
from catalogs.remote.remote_file import Listing, RemoteFile, local_path, remote_listing
from catalogs.remote.urls import file_name, has_secret, is_chained, is_remote, shown
from catalogs.text import sniff as ascii_tables
from catalogs.writing import USUAL, converted_key
from flows.errors import FlowError, Interrupted, OutputFolderError, UsageError
from flows.runs.lock import exclusive, files_kept, tell_of_killed
from flows.runs.manifest import FileState, Manifest, Output, Problem
from flows.runs.progress import tell
from flows.runs.references import check_inside, check_url, url_roots

# What the user named, as it was found first: a file, a folder or a pattern of this machine, or a URL. Later code does
# not check again which kind it is.

Kind = Literal["file", "folder", "hats", "pattern"]


Origins = Mapping[Path, tuple[str, str]]
"""By the path of a fetched file its URL, as it may be shown, and the server's word for its state, '' for none."""
FROM_HERE: Origins = MappingProxyType({})
"""No file was fetched."""


@dataclass(frozen=True)
class LocalSource:
    """A file or a folder of this machine; or a pattern, where a pattern is one catalogue of several files."""

    path: Path
    kind: Kind = "file"
    fetched: bool = False  # whether the path is where files from a URL wait

    @classmethod
    def at(cls, path: Path, *, fetched: bool = False) -> LocalSource:
        """Return the source at a path: the only place that asks what lies there."""
        if not require_file(path).is_dir():
            return cls(path, "file", fetched)
        if hats.sniff(path, b""):
            return cls(path, "hats", fetched)
        # An empty folder called `x.fits` is a file that cannot be read, one of the others that are given.
        named = path.name.lower().endswith(all_suffixes())
        return cls(path, "file" if named and not tables_of(path)[1] else "folder", fetched)

    @property
    def is_folder(self) -> bool:
        """Whether it is a folder, of HATS or of other files."""
        return self.kind in {"folder", "hats"}

    def files(self, origins: Origins = FROM_HERE) -> dict[Path, FileState]:
        """Return the files as they are now, not opened, and so not hashed: of a folder, those that are named as tables.

        Files that have gone since they were listed are left out.
        """
        found = {}
        for path in tables_of(self.path)[1] if self.is_folder else [self.path]:
            with suppress(FileNotFoundError):
                found[path] = FileState.of(path, origins.get(path, ("", ""))[1])
        return found

    def name_of(self, file: Path) -> str:
        """Return what a file of the source is called: its partition's key."""
        if not self.is_folder:
            return file.name
        if self.kind == "hats":
            return hats.key_of(self.path, file)
        return file.relative_to(self.path).as_posix()


@dataclass(frozen=True)
class RemoteSource:
    """A URL, of which only `catalogs.remote.urls.shown` may be shown: it may hold a password.

    `listing` are the files that its server has just named, where it was asked already.
    """

    url: str = field(repr=False)
    listing: Listing | None = field(default=None, repr=False, compare=False)


Source = LocalSource | RemoteSource


def local_sources(sources: Iterable[Source]) -> list[LocalSource]:
    """Return the sources of this machine."""
    return [source for source in sources if isinstance(source, LocalSource)]


@dataclass
class Brought:
    """Sources of this machine, where fetched files came from, and the files that were not fetched."""

    sources: list[LocalSource] = field(default_factory=list)
    origins: dict[Path, tuple[str, str]] = field(default_factory=dict)
    unchanged: list[Output] = field(default_factory=list)
    quarantined: list[Problem] = field(default_factory=list)
    failed: list[tuple[str, str, Exception]] = field(default_factory=list)  # names, URLs, and why
    deferred: dict[str, str] = field(default_factory=dict)
    shown: dict[str, str] = field(default_factory=dict)  # of folders of fetched files: their URLs

    def left_out(self) -> Iterator[str]:
        """Yield the names of the outputs of files that were not fetched."""
        yield from (output.name for output in self.unchanged)
        yield from (known.name for known in self.quarantined)
        yield from (name for name, *_ in self.failed)
        yield from self.deferred

    def spoken(self, text: str) -> str:
        """Return a text with URLs in the place of the paths where fetched files wait."""
        for path, called in self.shown.items():
            text = text.replace(path, called)
        return text


@dataclass(frozen=True)
class InputCatalogue:
    """A source, resolved once, with what of it is read and how; equal to another one of the same state.

    `stamp` tells one state of the files from another.  `files` are those that are read.  The copies are to be in the
    format `form`, None for the same.
    """

    source: LocalSource
    choice: TableChoice
    form: str | None = None
    without: tuple[str, ...] = ()  # keys of files that are not opened
    stamp: str = ""
    files: Mapping[Path, FileState] = field(default_factory=dict, compare=False)

    @classmethod
    def of(
        cls,
        source: LocalSource,
        choice: TableChoice,
        *,
        form: str | None = None,
        origins: Origins = FROM_HERE,
    ) -> InputCatalogue:
        """Return the catalogue at a source as it is now; `origins` says where fetched files came from."""
        files = source.files(origins)
        states = "".join(f"{path}\0{s.size} {s.mtime_ns} {s.inode}\n" for path, s in files.items())
        return cls(source, choice, form, stamp=sha256(states.encode()).hexdigest(), files=files)

    def leaving_out(self, files: Container[Path]) -> InputCatalogue:
        """Return the catalogue without files that are not to be read; they may be another's."""
        mine = [path for path in self.files if path in files]
        read = {path: seen for path, seen in self.files.items() if path not in files}
        return replace(self.lacking(mine), files=read) if mine else self

    def lacking(self, files: Iterable[Path]) -> InputCatalogue:
        """Return the catalogue that is opened without some more of its folder's files."""
        keys = {self.source.name_of(file) for file in files} if self.source.is_folder else set()
        return replace(self, without=tuple(sorted({*self.without, *keys})))


def copy_name_of(file: Path, catalogues: Sequence[InputCatalogue]) -> str:
    """Return what the copy of a file that was not opened would be called."""
    folders = [c for c in catalogues if c.source.is_folder and c.source.path in file.parents]
    one = folders[0] if folders else next(c for c in catalogues if c.source.path == file)
    return copy_name(one.source.name_of(file), one.form, file)


def copy_name(name: str, form: str | None, path: Path | None = None) -> str:
    """Return what the copy of a file that was not opened would be called, as far as its name says what it holds.

    Where the file is at a `path`, its content says it.
    """
    if form is None and path is not None and path.is_file():
        try:
            is_ascii = format_of(path) is FORMATS[ascii_tables.ASCII]
        except (FormatError, OSError):
            is_ascii = path.name.lower().endswith(ascii_tables.SUFFIXES)
        form = USUAL[ascii_tables.ASCII] if is_ascii else None
    if form is None or (form in FORMATS and name.lower().endswith(FORMATS[form].suffixes)):
        return name
    return converted_key(name, form)


def check_links(catalog: Catalog, source: LocalSource, *, key: str | None = None) -> Catalog:
    """Return an opened catalogue; UsageError where a link in its folder leads out of the configured roots.

    `key` says who named it.  Fetched files are no links.
    """
    for partition in () if source.fetched else catalog.partitions:
        check_inside(partition.path, key=key or str(source.path))
    return catalog


WILD = frozenset("*?[")


def resolve_sources(patterns: Sequence[str], folder: Path, *, key: str) -> tuple[Source, ...]:
    """Return the files and URLs that patterns, relative to a folder, mean: each once, those of a glob sorted.

    What a URL's pattern matches is its server's to say, later.  `key` says in the errors who named them.
    """
    distinct: dict[str, Path | str] = {}
    for pattern in patterns:
        for place in _matches(pattern, folder, key):
            # One spelling for all ways to write a path; links stay what they are.
            once = os.path.abspath(place) if isinstance(place, Path) else place  # noqa: PTH100
            distinct.setdefault(once, place)
    first: dict[str, str] = {}
    for url in (place for place in distinct.values() if isinstance(place, str)):
        if first.setdefault(shown(url), url) != url:
            raise UsageError(
                f"{key}: got '{shown(url)}' twice, with different queries or users, expected URLs that differ "
                "elsewhere, since queries and users are not kept; classify the files one by one, or fetch them"
            )
    return tuple(
        RemoteSource(place) if isinstance(place, str) else LocalSource.at(place)
        for place in distinct.values()
    )


def with_whole_paths(sources: Iterable[Source]) -> tuple[Source, ...]:
    """Return sources whose paths mean the same to every process, wherever it runs."""
    return tuple(
        replace(source, path=source.path.absolute()) if isinstance(source, LocalSource) else source
        for source in sources
    )


def resolve_one(name: str | Path) -> Source:
    """Return the one catalogue that a name means: a pattern's files are one, and are listed when it is opened."""
    if isinstance(name, str) and is_remote(name):
        (source,) = resolve_sources([name], Path(), key="FILE")
        return source
    path = Path(name)
    return LocalSource(path, "pattern") if is_pattern(path) else LocalSource.at(path)


def check_no_copies_below(sources: Iterable[Source], out: Path) -> None:
    """Raise UsageError where copies would be inputs of the next run: they would lie in a folder that is one."""
    inside = out.resolve()
    for path in (source.path.resolve() for source in local_sources(sources) if source.is_folder):
        below = inside.relative_to(path).parts if inside.is_relative_to(path) else ()
        if below and not any(part.startswith((".", "_")) for part in below):
            raise UsageError(
                f"{out}: got an output folder inside the catalogue {path}, so the next run would read its "
                "own copies, expected a folder outside of it; choose another with --out"
            )


def check_apart(sources: Iterable[Source], out: Path, *, key: str) -> None:
    """Raise UsageError where an input lies in a release's output folder, or holds it."""
    inside = out.resolve()
    for source in local_sources(sources):
        path = Path(os.path.realpath(source.path))  # reading reports a link in a circle
        if path.is_relative_to(inside) or (source.is_folder and inside.is_relative_to(path)):
            raise UsageError(
                f"{key}: got '{source.path}', which contains the output folder {out} or is inside it, "
                "expected inputs elsewhere; choose another output.folder"
            )


def _matches(pattern: str, folder: Path, key: str) -> Iterable[Path | str]:
    if is_remote(pattern):
        if is_chained(pattern):
            raise UsageError(
                f"{key}: got '{shown(pattern)}', which is a file inside an archive, expected the URL of a plain "
                "file; unpack it, or use catalogs.annotate in Python"
            )
        here = local_path(pattern)
        return [check_url(pattern, key=key)] if here is None else _matches(str(here), folder, key)
    path = check_inside(folder / Path(pattern).expanduser(), key=key)
    if path.exists():
        return [path]
    why = "does not exist"
    if not WILD.isdisjoint(pattern):
        # A glob below an absolute folder starts at its root, one below a relative folder here.
        start = Path(path.anchor)
        if matches := sorted(start.glob(str(path.relative_to(start)))):
            return [check_inside(match, key=key) for match in matches]  # links may lead elsewhere
        why = "no file matches"
    raise UsageError(f"{key}: got '{path.absolute()}', which {why}; {what_is_there(path)}")


# Files that are still being written: waited for a while, then left for the next run. A file counts as settled once
# nothing has been written to it for some seconds, by its own time or, where clocks differ, by our watching.  A copy
# that stalls for longer is noticed because it does not open.

BETWEEN_LOOKS = 0.2


def still_written(files: Sequence[Path], *, quiet: float, patience: float) -> dict[Path, str]:
    """Return the files that somebody is still writing to, and what is said of each; waits for them before.

    A file without a change for `quiet` seconds counts as whole; the run waits `patience` seconds for that.
    Files that go away while they are waited for do not count.
    """
    looks: dict[Path, tuple[int, int, float]] = {}  # size, time, and since when both are so
    writing, end = list(files), time.monotonic() + max(patience, quiet)
    while True:
        for file in writing:
            old = looks.pop(file, (0, 0, 0.0))
            # A link in a circle, a folder that is closed: whoever opens the file says so.
            with suppress(OSError):
                seen = file.stat()
                now = (seen.st_size, seen.st_mtime_ns)
                looks[file] = old if old[:2] == now else (*now, time.monotonic())
        writing = [
            file
            for file, (_, mtime_ns, since) in looks.items()
            if max(time.time() - mtime_ns / 1e9, time.monotonic() - since) < quiet
        ]
        if not writing or time.monotonic() >= end:
            return dict.fromkeys(
                writing, f"it changed less than {quiet:g} s ago, so it is left for the next run"
            )
        time.sleep(min(BETWEEN_LOOKS, quiet))


FETCHED = ".blr-fetched"
CHANGED = "it changed while it was read"

PARTITION = re.compile(r"/dataset/Norder=\d+/")
"""What is in the name of a partition of HATS."""
UNSAFE = re.compile(r"^\.+|[^\w.+=-]")


class Fetchable(NamedTuple):
    """A file at a URL: what its output is called, the file with the tag that tells its states apart, its place here."""

    name: str
    file: RemoteFile
    local: Path


def _mark(local: Path) -> Path:
    """Return where it is written down in which state the fetched file was that is whole at a path."""
    return local.with_name(f".blr-{local.name}.tag")


def _fetch_from(
    sources: Sequence[Source], folder: Path, before: Manifest | None, form: str | None, brought: Brought
) -> None:
    """Fetch the files at URLs into a folder, unless they are done already, and note in `brought` where all are."""
    asked = [
        _asked(source, folder, before, form, brought) if isinstance(source, RemoteSource) else source
        for source in sources
    ]
    wanted = [w for a in asked if isinstance(a, tuple) for w in a[1]]
    names = Counter([*(w.name for w in wanted), *brought.left_out()])
    if twice := [name for name, n in names.items() if n > 1]:
        raise UsageError(
            f"got several URLs whose outputs would have the name {twice[0]}, expected different names; classify "
            "them into different folders"
        )
    _fetch([w for w in wanted if not _is_whole(w)], brought)
    brought.origins |= {local: (str(file), file.tag) for _, file, local in wanted if local.is_file()}
    for a in asked:
        if isinstance(a, LocalSource):
            brought.sources.append(a)
            continue
        files = [w.local for w in a[1] if w.local in brought.origins]
        places = files if a[0] is None else [a[0]] if files else []
        brought.sources += [LocalSource.at(place, fetched=True) for place in places]


def _is_whole(wanted: Fetchable) -> bool:
    """Say whether a run that was killed has fetched a file, and the server's word for it is still the same."""
    _, file, local = wanted
    mark = _mark(local)
    return bool(file.tag) and local.is_file() and mark.is_file() and mark.read_text("utf-8") == file.tag


def _done(wanted: Fetchable, out: Path, before: Manifest | None, form: str | None) -> Output | Problem | None:
    """Return what an earlier run made of a file, if it is as it was; without the server's word nobody knows."""
    name, file, _ = wanted
    if before is None or not file.tag:
        return None
    # Some text tables have copies of another format, which only their content tells.
    names = (name, converted_key(name, "ecsv")) if form is None else (name,)
    for found in (*map(before.find, names), before.find_quarantined(name)):
        state = (found.input_path, found.input and found.input.tag) if found else None
        if found is not None and state == (str(file), file.tag):
            return found if isinstance(found, Problem) or found.is_in(out / found.name) else None
    return None


def _asked(
    source: RemoteSource, folder: Path, before: Manifest | None, form: str | None, brought: Brought
) -> tuple[Path | None, list[Fetchable]]:
    """Return the files to fetch from a URL, and their folder where they are one source, not a source each.

    What was fetched of another state of the URL goes.
    """
    url, listing = source.url, source.listing or listing_of(source.url)
    base = folder / sha256(shown(url).encode()).hexdigest()[:16]
    top = base if listing.kind == "file" else base / (UNSAFE.sub("_", file_name(listing.url)) or "files")
    brought.shown[str(top)] = shown(listing.url)
    above = f"{top.name}/" if listing.kind == "hats" else ""
    states = _states(listing, brought, form, top, above=above, tagged=not has_secret(url))
    done = [(wanted, _done(wanted, folder.parent, before, form)) for wanted in states]
    partitions = [one for one in done if PARTITION.search(one[0].name)]
    if listing.kind != "hats" or all(found for _, found in partitions):
        wanted = [] if listing.kind == "hats" else [one for one, found in done if not found]
        brought.unchanged += [found for _, found in done if isinstance(found, Output)]
        brought.quarantined += [found for _, found in done if isinstance(found, Problem)]
    else:  # all of it has to be there, unless no partition need be fetched
        wanted = [one for one, _ in done]
    stay = {path for w in wanted for path in (w.local, _mark(w.local))}
    for path in base.rglob("*"):
        if path.is_file() and path not in stay:
            path.unlink()  # of a state that the URL was in before
    return top if listing.kind in {"folder", "hats"} else None, wanted


def _states(
    listing: Listing, brought: Brought, form: str | None, top: Path, *, above: str, tagged: bool
) -> Iterator[Fetchable]:
    """Yield the files of a listing, which wait in `top`; one that cannot be had has failed, unless all depends on it.

    Their names are those of their copies, `above` which a folder of HATS is called.
    """
    whole = listing.kind in {"folder", "hats"}
    for place, file in zip(listing.places, listing.files(), strict=True):
        name = copy_name(above + (place.key if whole else PurePosixPath(place.key).name), form)
        if isinstance(file, CatalogError):
            if listing.kind in {"file", "hats"}:
                raise file
            brought.failed.append((name, shown(place.url), file))
            continue
        # What a URL means may depend on a query, which is not kept.
        yield Fetchable(name, file if tagged else replace(file, tag=""), top / PurePosixPath(file.key))


def _fetch(missing: Sequence[Fetchable], brought: Brought) -> None:
    """Fetch files; those that fail or change meanwhile are noted, and not here afterwards."""
    if not missing:
        return
    n_bytes = sum(file.n_bytes for _, file, _ in missing)
    check_free_space(missing[0].local.parent, n_bytes)
    tell().start("fetching", n_bytes, "bytes")
    for name, file, local in missing:
        try:
            local.parent.mkdir(parents=True, exist_ok=True)
            _mark(local).unlink(missing_ok=True)
            file.fetch(local, tell().advance)
            atomic_write_text(_mark(local), file.tag)
            changed = file.has_changed()
        except StorageError:
            raise
        except CatalogError as error:
            local.unlink(missing_ok=True)
            brought.failed.append((name, str(file), error))
            continue
        if changed:
            local.unlink()
            brought.deferred[name] = CHANGED


def listing_of(url: str) -> Listing:
    """Return the files that a URL means, those that are named as tables; asked only of servers that may be."""
    listing = remote_listing(url, all_suffixes(), within=url_roots(), hats=True)
    if isinstance(listing, Path):
        raise UsageError(
            f"got '{shown(url)}', a file of this machine, expected its path; give the path without 'file://'"
        )
    if listing.kind != "folder":
        return listing
    kept = set(without_notes([Path(place.key) for place in listing.places]))
    return replace(listing, places=tuple(place for place in listing.places if Path(place.key) in kept))


Bring = Callable[..., Brought]
"""Brings sources to this machine: of files at URLs, those that are not done are fetched.

Takes the sources, the manifest of an earlier run of the same model and specification, and the copies' format.
"""


@contextmanager
def fetching(out: Path, *, resumable: bool = True) -> Iterator[Bring]:
    """Give what brings sources; files from URLs wait in an output folder, and errors name these, and not the place.

    The place is one run's, from the first URL on.  All is removed at the end, unless a `resumable` run was interrupted.
    """
    folder, is_new, keep = out.absolute() / FETCHED, not out.exists(), False
    urls, lock = dict[str, str](), ExitStack()

    @cache
    def hold() -> None:
        tell_of_killed(lock.enter_context(exclusive(folder)))

    def bring(sources: Sequence[Source], before: Manifest | None = None, form: str | None = None) -> Brought:
        brought = Brought(shown=urls)
        if any(isinstance(source, RemoteSource) for source in sources):
            hold()
        _fetch_from(sources, folder, before, form, brought)
        return brought

    try:
        with files_kept(folder):
            yield bring
    except (CatalogError, FlowError) as error:
        keep = resumable and isinstance(error, Interrupted)
        said = Brought(shown=urls).spoken(str(error))
        if said == str(error):
            raise
        raise type(error)(said) from None
    except BaseException as error:
        keep = resumable and not isinstance(error, Exception)  # A signal asked the run to stop.
        raise
    finally:
        _let_go(folder, hold, lock, keep=keep)
        if is_new and not keep:
            with suppress(OSError):  # Another process has created it.
                out.rmdir()


def _let_go(folder: Path, hold: Callable[[], None], lock: ExitStack, *, keep: bool) -> None:
    """Let go of the folder of fetched files, and remove what is in it unless the next run goes on from there."""
    if folder.is_dir():
        try:
            hold()  # it may be left behind by a run that was killed
        except OutputFolderError:  # it is another run's
            return
    if not keep:
        for path in folder.glob("*"):
            if path.is_dir():  # the lock is none
                shutil.rmtree(path)
    lock.close()
    with suppress(OSError):  # it holds something, or was never made
        folder.rmdir()


@contextmanager
def fetched_sources(sources: Sequence[Source], below: Path | None = None) -> Iterator[list[LocalSource]]:
    """Give all sources on this machine, as long as the block lasts; CatalogError where one does not come.

    They wait in a folder `below` that one, or among the system's temporary files.
    """
    if not any(isinstance(source, RemoteSource) for source in sources):
        yield local_sources(sources)
        return
    with (
        tempfile.TemporaryDirectory(prefix="blr-fetched-", dir=below and below.absolute()) as folder,
        fetching(Path(folder), resumable=False) as bring,
    ):
        brought = bring(sources)
        for *_, error in brought.failed:
            raise error
        for name, why in brought.deferred.items():
            raise CatalogError(f"{name}: {why}, expected a file that does not change; try again later")
        yield brought.sources
