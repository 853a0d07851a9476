"""Files at URLs, of any format, fetched into a hidden folder of the output's: everything after that sees files.

`OUT/.blr-fetched/` holds them until the run has ended.  What a killed run had fetched is not fetched again, as far as
the server can tell that it is the same.  Files that an earlier run has done, and are as they were, are not fetched.
"""

from __future__ import annotations

import hashlib
import re
import shutil
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path, PurePosixPath

from catalogs.errors import CatalogError
from catalogs.files.atomic import StorageError, atomic_write_text, check_free_space
from catalogs.formats import all_suffixes, without_notes
from catalogs.remote.listing import Listing, Place, as_it_is_now, remote_listing
from catalogs.remote.remote_file import RemoteFile
from catalogs.remote.urls import file_name, has_secret, shown
from flows.errors import FlowError, Interrupted, OutputFolderError, UsageError
from flows.inputs.source import (
    Brought,
    Known,
    LocalSource,
    Origin,
    RemoteSource,
    Source,
    copy_name,
    local_sources,
    spoken,
)
from flows.runs.allowed_roots import url_roots
from flows.runs.lock import Owner, exclusive, files_kept
from flows.runs.progress import tell

FETCHED = ".blr-fetched"
CHANGED = "it changed while it was read"

PARTITION = re.compile(r"/dataset/Norder=\d+/")
"""What is in the name of a partition of HATS."""
UNSAFE = re.compile(r"^\.+|[^\w.+=-]")


@dataclass
class Mirror:
    """The folder in which fetched files wait; held by one run, from the first URL on."""

    folder: Path
    run: str | None = None
    mark_crashed: Callable[[Owner], None] | None = None
    holds: ExitStack = field(default_factory=ExitStack)
    held: bool = False
    shown: dict[str, str] = field(default_factory=dict)

    def bring(self, sources: Sequence[Source], known: Known = Known()) -> Brought:  # noqa: B008 -- never changes
        """Return the sources as they are on this machine, fetched where they are at URLs and not `known`."""
        brought = Brought(shown=self.shown)
        if not any(isinstance(source, RemoteSource) for source in sources):
            brought.sources = local_sources(sources)
            return brought
        self._hold()
        asked = [self._asked(s, known, brought) if isinstance(s, RemoteSource) else s for s in sources]
        wanted = [w for a in asked if isinstance(a, tuple) for w in a[1]]
        names = Counter([*(w.origin.name for w in wanted), *brought.left_out()])
        if twice := [name for name, n in names.items() if n > 1]:
            raise UsageError(
                f"got several URLs whose outputs would have the name {twice[0]}, expected different names; classify "
                "them into different folders"
            )
        _fetch([w for w in wanted if not w.is_here()], brought)
        brought.origins = {w.local: w.origin for w in wanted if w.local.is_file()}
        for a in asked:
            if isinstance(a, LocalSource):
                brought.sources.append(a)
                continue
            files = [w.local for w in a[1] if w.local in brought.origins]
            places = files if a[0] is None else [a[0]] if files else []
            brought.sources += [LocalSource.at(place, fetched=True) for place in places]
        return brought

    def spoken(self, text: str) -> str:
        """Return a text with URLs in the place of the paths where fetched files wait."""
        return spoken(text, self.shown)

    def close(self, *, keep: bool) -> None:
        """Let go of the folder, and remove what is in it unless the next run goes on from there."""
        if not self.held and self.folder.is_dir():
            with suppress(OutputFolderError):  # another run's, or left behind by one that was killed
                self._hold()
        if not self.held:
            return
        if not keep:
            for path in self.folder.glob("*"):
                if path.is_dir():  # the lock is none
                    shutil.rmtree(path)
        self.holds.close()
        with suppress(OSError):  # it holds something
            self.folder.rmdir()

    def _hold(self) -> None:
        if self.held:
            return
        killed = self.holds.enter_context(exclusive(self.folder, run=self.run))
        self.held = True
        if killed and self.mark_crashed:
            self.mark_crashed(killed)

    def _asked(
        self, source: RemoteSource, known: Known, brought: Brought
    ) -> tuple[Path | None, list[Wanted]]:
        """Return the files to fetch from a URL, and their folder where they are one source, not a source each.

        What was fetched of another state of the URL goes.
        """
        url, listing = source.url, source.listing or listing_of(source.url)
        base = self.folder / hashlib.sha256(shown(url).encode()).hexdigest()[:16]
        top = base if listing.kind == "file" else base / (UNSAFE.sub("_", file_name(listing.url)) or "files")
        self.shown[str(top)] = shown(listing.url)
        above = f"{top.name}/" if listing.kind == "hats" else ""
        states = list(_states(listing, brought, known.form, above=above, tagged=not has_secret(url)))
        if listing.kind == "hats" and _is_known_whole([origin for _, _, origin in states], known, brought):
            states = []
        wanted = [
            Wanted(file, top / PurePosixPath(place.key), origin)
            for place, file, origin in states
            if listing.kind == "hats" or not _is_known(origin, known, brought)
        ]
        stay = {path for w in wanted for path in (w.local, w.mark)}
        for path in base.rglob("*"):
            if path.is_file() and path not in stay:
                path.unlink()  # of a state that the URL was in before
        return top if listing.kind in {"folder", "hats"} else None, wanted


@dataclass(frozen=True)
class Wanted:
    """A file that is to be fetched, and where to."""

    file: RemoteFile
    local: Path
    origin: Origin

    @property
    def mark(self) -> Path:
        """Where it is written down in which state the file was that is whole there."""
        return self.local.with_name(f".blr-{self.local.name}.tag")

    def is_here(self) -> bool:
        """Say whether a run that was killed has fetched the file as it is."""
        tag = self.origin.tag
        return (
            bool(tag) and self.local.is_file() and self.mark.is_file() and self.mark.read_text("utf-8") == tag
        )


def _states(
    listing: Listing, brought: Brought, form: str | None, *, above: str, tagged: bool
) -> Iterator[tuple[Place, RemoteFile, Origin]]:
    """Yield the files of a listing and their states; one that cannot be had has failed, unless all depends on it.

    Their names are those of their copies, `above` which a folder of HATS is called.
    """
    whole = listing.kind in {"folder", "hats"}
    for place, file in zip(listing.places, listing.files(), strict=True):
        name = copy_name(above + (place.key if whole else PurePosixPath(place.key).name), form)
        if isinstance(file, CatalogError):
            if listing.kind in {"file", "hats"}:
                raise file
            brought.failed.append((Origin(name, shown(place.url)), file))
            continue
        # What a URL means may depend on a query, which is not kept.
        yield place, file, Origin(name, shown(place.url), file.tag if tagged else "")


def _is_known(origin: Origin, known: Known, brought: Brought) -> bool:
    """Say whether a file need not be fetched, and note why."""
    if output := known.output(origin):
        brought.unchanged.append(output)
    elif bad := known.quarantined(origin):
        brought.quarantined.append(bad)
    else:
        return False
    return True


def _is_known_whole(origins: Sequence[Origin], known: Known, brought: Brought) -> bool:
    """Say whether no partition of a HATS catalogue need be fetched, and note why; else all of it has to be there."""
    partitions = [origin for origin in origins if PARTITION.search(origin.name)]
    if not all(known.output(origin) or known.quarantined(origin) for origin in partitions):
        return False
    for origin in partitions:
        _is_known(origin, known, brought)
    return True


def _fetch(missing: Sequence[Wanted], brought: Brought) -> None:
    """Fetch files; those that fail or change meanwhile are noted, and not here afterwards."""
    if not missing:
        return
    n_bytes = sum(w.file.n_bytes for w in missing)
    check_free_space(missing[0].local.parent, n_bytes)
    tell().start("fetching", n_bytes, "bytes")
    for w in missing:
        try:
            w.local.parent.mkdir(parents=True, exist_ok=True)
            w.mark.unlink(missing_ok=True)
            w.file.fetch(w.local, tell().advance)
            atomic_write_text(w.mark, w.origin.tag)
            changed = not as_it_is_now(w.file).state.agrees_with(w.file.state)
        except StorageError:
            raise
        except CatalogError as error:
            w.local.unlink(missing_ok=True)
            brought.failed.append((w.origin, error))
            continue
        if changed:
            w.local.unlink()
            brought.deferred[w.origin.name] = CHANGED


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


@contextmanager
def fetching(
    out: Path,
    *,
    run: str | None = None,
    mark_crashed: Callable[[Owner], None] | None = None,
    resumable: bool = True,
) -> Iterator[Mirror]:
    """Give the place in an output folder where files from URLs wait; errors name these, and not the place.

    All is removed at the end, unless a `resumable` run was interrupted.
    """
    mirror, is_new, keep = Mirror(out / FETCHED, run, mark_crashed), not out.exists(), False
    try:
        with files_kept(mirror.folder):
            yield mirror
    except (CatalogError, FlowError) as error:
        keep = resumable and isinstance(error, Interrupted)
        said = mirror.spoken(str(error))
        if said == str(error):
            raise
        raise type(error)(said) from None
    except BaseException as error:
        keep = resumable and not isinstance(error, Exception)  # A signal asked the run to stop.
        raise
    finally:
        mirror.close(keep=keep)
        if is_new and not keep:
            with suppress(OSError):  # Another process has created it.
                out.rmdir()


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
        fetching(Path(folder), resumable=False) as mirror,
    ):
        brought = mirror.bring(sources)
        for _, error in brought.failed:
            raise error
        for name, why in brought.deferred.items():
            raise CatalogError(f"{name}: {why}, expected a file that does not change; try again later")
        yield brought.sources
