"""The record of a release: checked, signed, published, rolled back, verified.

Below `releases/NAME` are a folder for each published version, `releases.json`, which says what is published and which
version is the latest, and hidden folders of drafts.  A draft's state is what its files say: `release.json`, then
`checks.json`, then `signature.json`, each of which names the digest that it is about.  A version becomes visible when
`releases.json` is replaced, in one step.  A killed run leaves the last release as it was; the same command goes on.
In an object store, the folder's name has the digest, and `releases.json` is replaced if it is as it was read.
"""

from __future__ import annotations

import base64
import csv
import hashlib
import io
import json
import os
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, Literal

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

from catalogs.errors import CatalogError
from catalogs.files import atomic_path, atomic_write_text, check_links, flush_to_disk, sweep
from catalogs.remote.remote_file import ObjectStore
from catalogs.remote.urls import shown, url_of
from flows.documents import from_json, read_document, to_document, utc_now, write_document
from flows.errors import DocumentError, OutputFolderError, UsageError
from flows.models.row_files import ROWS_FILE
from flows.release._check import check_release
from flows.release._contract import CONTRACT, DATA, MODEL, PROFILE, SETTINGS, Opened, derived_contract
from flows.release.replay import Truth
from flows.request import PublishRequest, ReleaseRequest, RollbackRequest, SignRequest
from flows.runs.lock import LOCK, exclusive
from flows.runs.manifest import SUMS, file_sha256, read_sums, sums_text
from flows.runs.references import NAME_PATTERN, UNNAMED, check_inside, check_output, user_name
from flows.runs.release_store import check_key, check_store, folder_here
from flows.runs.results import Checked, Profile, ReleaseState, Status, Verified

RECORD = "release.json"
CHECKS = "checks.json"
SIGNATURE = "signature.json"
LOG = "releases.json"
COMPANIONS = "companions"
SIGNER = "BLR_SIGNER"

NOT_SUMMED = {SUMS, SIGNATURE, LOCK}
CONTENT = (f"{DATA}/", MODEL, ROWS_FILE, SETTINGS, CONTRACT, RECORD, f"{COMPANIONS}/")
"""What a check is about; what it writes comes on top."""


class ReleaseRefusedError(OutputFolderError):
    """A release may not go on: a check says stop, its bytes changed, or nobody has signed it."""


@dataclass(frozen=True, kw_only=True)
class ReleaseRecord:
    """What a draft is made of: the run, the release before; `kind` is "patch" for a point release.

    `events` is how many publications and rollbacks there had been when it was drafted.
    """

    name: str
    version: str
    drafted: str
    run: str
    events: int
    kind: Literal["release", "patch"] = "release"
    last: str | None = None
    companions: tuple[str, ...] = ()
    why: str = ""


@dataclass(frozen=True, kw_only=True)
class Signature:
    """Who signed the digest of everything or refused it, when and why, and the stops that were overridden.

    `signature` is Ed25519's of the other fields, in base64, where a key was given.
    """

    name: str
    version: str
    digest: str
    decision: Literal["signed", "refused"]
    who: str
    why: str
    when: str
    overridden: tuple[str, ...] = ()
    public_key: str = ""
    signature: str = ""

    def message(self) -> bytes:
        """Return the bytes that are signed."""
        document = to_document(replace(self, signature=""))
        return json.dumps(document, sort_keys=True, separators=(",", ":")).encode()

    def with_key(self, path: Path) -> Signature:
        """Return the signature with Ed25519's, of a private key in PEM."""
        private = read_key(
            path, partial(serialization.load_pem_private_key, password=None), Ed25519PrivateKey
        )
        form = serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
        public = private.public_key().public_bytes(*form)
        signature = replace(self, public_key=public.decode())
        return replace(signature, signature=base64.b64encode(private.sign(signature.message())).decode())

    def faults(self, digest: str, key: Ed25519PublicKey | None = None) -> Iterator[str]:
        """Yield what is wrong with the signature of a digest; `key` is the one that must have signed."""
        if self.digest != digest:
            yield f"it is of another digest than {SUMS}"
        if self.decision == "refused":
            yield f"{self.who} has refused it: {self.why}"
        if not self.signature and key is not None:
            yield "it is not signed with a key"
        if self.signature:
            try:
                public = serialization.load_pem_public_key(self.public_key.encode())
                if not isinstance(public, Ed25519PublicKey):
                    yield "its public key is not Ed25519's"
                elif key is not None and key.public_bytes_raw() != public.public_bytes_raw():
                    yield "another key has signed it"
                else:
                    public.verify(base64.b64decode(self.signature), self.message())
            except (InvalidSignature, ValueError):
                yield "its Ed25519 signature does not fit"


NOBODY = Signature(name="", version="", digest="", decision="signed", who="", why="", when="")


def read_key(path: Path, load: Callable[[bytes], object], kind: Any) -> Any:
    """Return the Ed25519 key in a PEM file; UsageError where it holds none."""
    try:
        key = load(path.read_bytes())
    except (OSError, ValueError, TypeError) as error:
        said = f"--key: {path} cannot be read ({error}), expected an Ed25519 key in PEM without a password"
        raise UsageError(said) from error
    if not isinstance(key, kind):
        raise UsageError("--key: got another key, expected Ed25519's: openssl genpkey -algorithm ed25519")
    return key


@dataclass(frozen=True, kw_only=True)
class ReleaseEvent:
    """A version was published, or became the latest again; its digest, its folder, who, when and why."""

    what: Literal["published", "rolled back"]
    version: str
    digest: str
    folder: str
    who: str
    when: str
    why: str = ""


@dataclass(frozen=True, kw_only=True)
class ReleaseLog:
    """What was published under a name, oldest first; `latest` is the version that readers should take."""

    latest: str | None = None
    events: tuple[ReleaseEvent, ...] = ()

    def published(self, version: str | None) -> ReleaseEvent | None:
        """Return the publication of a version; None if it is not published."""
        return next((e for e in self.events if e.what == "published" and e.version == version), None)


class Series:
    """All releases of a name: a folder here and, for a URL, the store that they are published in."""

    def __init__(self, releases: str | Path, name: str) -> None:
        """Take the releases of a name; UsageError for a name that cannot be a folder."""
        self.name, self.store, url = checked_word(name, "NAME"), None, url_of(releases)
        if url is None:
            self.folder: Path = check_output(Path(releases) / name, key="releases")
            return
        place = f"{url.rstrip('/')}/{name}"
        self.folder, self.store = folder_here(place), ObjectStore(check_store(place, key="releases"))

    def state(self, version: str, status: Status, folder: Path, **more: Any) -> ReleaseState:
        """Return the state of a version."""
        return ReleaseState(name=self.name, version=version, status=status, folder=str(folder), **more)

    def refusal(self, version: str, why: str) -> ReleaseRefusedError:
        """Return the error that says why a version may not go on."""
        return ReleaseRefusedError(f"{self.name} {version}: {why}")

    def draft(self, version: str) -> Path:
        """Return the hidden folder of a draft, which readers of folders pass over."""
        return self.folder / f".{checked_word(version, 'VERSION')}.draft"

    def unpublished(self, version: str) -> ReleaseLog:
        """Return the log; UsageError where it has the version."""
        log, _ = self.read_log()
        if log.published(version) is not None:
            said = "which is published and never changes; draft another version"
            raise UsageError(f"VERSION: got '{version}', {said}")
        return log

    def read_log(self) -> tuple[ReleaseLog, str | None]:
        """Return the log, and the tag that it has to have still when it is replaced."""
        if self.store is not None:
            content, tag = self.store.read(LOG)
            return from_json(ReleaseLog, b"{}" if tag is None else content, source=LOG), tag
        path = self.folder / LOG
        check_links(path, self.folder)
        return (read_document(ReleaseLog, path) if path.is_file() else ReleaseLog()), None

    def commit(self, log: ReleaseLog, before: str | None, event: ReleaseEvent) -> None:
        """Add an event to the log, in one step; OutputFolderError where another run has replaced it meanwhile."""
        log = ReleaseLog(latest=event.version, events=(*log.events, event))
        if self.store is None:
            write_document(self.folder / LOG, log)
            return
        content = (json.dumps(to_document(log), indent=1) + "\n").encode()
        if not self.store.replace(LOG, content, before=before):
            said = f"got a changed {LOG}: another person has published or rolled back meanwhile; look at it"
            raise OutputFolderError(f"{shown(self.store.url)}: {said}, then run the same command again")

    def released(self, log: ReleaseLog, version: str | None) -> Path | None:
        """Return the folder of a published version, fetched where it lies in a store; None for no version."""
        event = log.published(version)
        if event is None:
            return None
        here = self.folder / event.folder  # of a store, with the digest: another's bytes are elsewhere
        if self.store is None or (here / SUMS).is_file():
            return here
        for name in sorted(self.store.sizes(event.folder), key=lambda n: n == SUMS):  # that list last
            check_key(name, self.store.url)
            (here / name).parent.mkdir(parents=True, exist_ok=True)
            with atomic_path(here / name) as temporary:
                self.store.fetch(f"{event.folder}/{name}", temporary)
        return here

    def base(self, log: ReleaseLog, version: str | None) -> Opened | None:
        """Return a release, or the one that it patches; None for no version.  CatalogError where it is not whole."""
        if version is None:
            return None
        folder = self.released(log, version)
        if folder is None or not all((folder / name).is_file() for name in (RECORD, CONTRACT, PROFILE)):
            lost = f"that {LOG} does not list" if folder is None else "without its documents"
            said = f"got a release {version} {lost}, expected a whole one; bring its files back from a copy"
            raise CatalogError(f"{self.folder}: {said}")
        record = read_document(ReleaseRecord, folder / RECORD)
        return Opened(folder, version) if record.kind == "release" else self.base(log, record.last)

    def upload(self, folder: Path, key: str) -> None:
        """Send the files of a release that the store lacks; CatalogError where it has not all of them then."""
        if self.store is None:
            return
        sizes = {p.relative_to(folder).as_posix(): p.stat().st_size for p in release_files(folder)}
        there = self.store.sizes(key)
        for name in (name for name, size in sizes.items() if there.get(name) != size):
            self.store.upload(folder / name, f"{key}/{name}")
        if self.store.sizes(key) != sizes:
            raise CatalogError(f"{shown(self.store.url)}/{key}: it has other files now; publish again")

    def opened_draft(self, version: str) -> tuple[Path, ReleaseRecord]:
        """Return a draft's folder and its record; UsageError where there is no draft."""
        folder = self.draft(version)
        if not all((folder / name).is_file() for name in (RECORD, CONTRACT)):
            said = "which has no draft; make one with `blr release draft`"
            raise UsageError(f"VERSION: got '{version}' of {self.name}, {said}")
        return folder, read_document(ReleaseRecord, folder / RECORD)

    def checked(self, version: str, folder: Path) -> Checked:
        """Return the checks of a draft; ReleaseRefusedError where it was not checked, or has changed since."""
        if not (folder / CHECKS).is_file() or not (folder / SUMS).is_file():
            raise self.refusal(version, "got a draft that was not checked; run `blr release check` first")
        if changed := changed_files(folder):
            said = f"got files that changed since the check: {'; '.join(changed[:5])}; check again"
            raise self.refusal(version, said)
        return read_document(Checked, folder / CHECKS)

    def signed(self, version: str, folder: Path) -> Signature:
        """Return the signature of a draft; ReleaseRefusedError where it may not be published."""
        self.checked(version, folder)
        if not (folder / SIGNATURE).is_file():
            raise self.refusal(version, "nobody has signed it; run `blr release sign` first")
        signature = read_document(Signature, folder / SIGNATURE)
        for fault in signature.faults(digest_of(folder)):
            raise self.refusal(version, f"{fault}; check and sign again")
        return signature

    def record(self, version: str, log: ReleaseLog, **more: Any) -> None:
        """Write the record of a draft."""
        record = ReleaseRecord(
            name=self.name, version=version, drafted=utc_now(), events=len(log.events), **more
        )
        write_document(self.draft(version) / RECORD, record)

    @contextmanager
    def alone(self) -> Iterator[None]:
        """Let one run at a time change the releases of this name; another one ends with the name of who works there."""
        self.folder.mkdir(parents=True, exist_ok=True)
        with exclusive(self.folder):
            sweep(self.folder)
            yield


def checked_word(text: str, key: str) -> str:
    """Return a name or a version, which becomes a folder; UsageError where it cannot be one."""
    if not re.fullmatch(NAME_PATTERN, text):
        raise UsageError(f"{key}: got '{text}', expected up to 64 letters, digits, '.', '_' and '-'")
    return text


def signer(by: str | None) -> str:
    """Return who decides: by name, by the environment, or the user; UsageError for an unasked root."""
    named = by or os.environ.get(SIGNER)
    user = named or user_name()
    if not named and user in {"root", UNNAMED}:
        raise UsageError(f"--by: got no name, and the user is root; give --by or set {SIGNER}")
    return user


def release_files(folder: Path) -> Iterator[Path]:
    """Yield the files of a release; OutputFolderError for a link."""
    for path in sorted(folder.rglob("*")):
        if path.is_symlink():
            raise OutputFolderError(f"{path}: got a symbolic link, expected a file of the release; remove it")
        hidden = any(part.startswith(".blr-") for part in path.relative_to(folder).parts)
        if path.is_file() and not hidden:
            yield path


def sums_of(folder: Path, known: Mapping[str, str], only: tuple[str, ...] = ("",)) -> dict[str, str]:
    """Return the hashes of a release's files by their paths, without those that list or sign the others.

    `only` has the beginnings of the paths that are asked for; those of `known` files are not computed again.
    """
    names = {path.relative_to(folder).as_posix() for path in release_files(folder)} - NOT_SUMMED
    return {n: known.get(n) or file_sha256(folder / n) for n in sorted(names) if n.startswith(only)}


def digest_of(folder: Path) -> str:
    """Return the digest of everything: the hash of the list of hashes."""
    return file_sha256(folder / SUMS)


def listed_sums(folder: Path) -> dict[str, str]:
    """Return the hashes that a release lists; of a damaged list what can be read of it."""
    return read_sums((folder / SUMS).read_text(encoding="utf-8", errors="replace"))


def changed_files(folder: Path) -> list[str]:
    """Return a sentence for each file that is not as the list of hashes says."""
    listed, there = listed_sums(folder), sums_of(folder, {})
    other = [name for name in listed if name in there and there[name] != listed[name]]
    return [
        *(f"{name}: other bytes than were signed" for name in other),
        *(f"{name}: it is missing" for name in listed if name not in there),
        *(f"{name}: it was added" for name in there if name not in listed),
    ]


def forget_checks(folder: Path) -> None:
    """Remove what a check of a draft has written, and its signature first: they are of other bytes from now on."""
    for name in (SIGNATURE, SUMS, CHECKS):
        (folder / name).unlink(missing_ok=True)


def check(request: ReleaseRequest) -> Checked:
    """Check a draft; write what was found, the report, and the list of hashes, which is what is signed."""
    series = Series(request.releases, request.name)
    with series.alone():
        folder, record = series.opened_draft(request.version)
        if record.kind == "patch":
            raise UsageError(f"VERSION: the patch '{request.version}' was checked as it was made; sign it")
        forget_checks(folder)
        log, _ = series.read_log()
        opened, last = Opened(folder, request.version), series.base(log, record.last)
        contract, truth = opened.contract, None
        if request.truth is not None:
            path = check_inside(request.truth, key="--truth")
            truth = Truth.read(path, contract.id or "", request.truth_column, contract.classes)
        promised = derived_contract(opened, last, companions=record.companions, id_column=contract.id)
        checked, profile, sums = check_release(
            opened, last, name=series.name, promised=promised, seed=request.seed, truth=truth
        )
        return write_checks(opened, checked, profile, last, sums)


def write_checks(
    opened: Opened, checked: Checked, profile: Profile, last: Opened | None, sums: Mapping[str, str]
) -> Checked:
    """Write the checks, with the digest of what they are about, the documents, and at last the list of hashes.

    `sums` has the hashes of files as they were checked.
    """
    # It draws maps: a signature waits for no plots.
    from flows.reports.release_page import release_documents  # noqa: PLC0415

    folder = opened.folder
    content = sums_of(folder, sums, CONTENT)
    digest = hashlib.sha256(sums_text(content).encode()).hexdigest()
    checked = replace(checked, checked=utc_now(), digest=digest)
    write_document(folder / PROFILE, profile)
    write_document(folder / CHECKS, checked)
    before = None if last is None else last.profile
    texts = release_documents(opened.manifest, opened.model, checked, profile, before)
    table = io.StringIO()
    writer = csv.writer(table, lineterminator="\n")
    writer.writerow(("name", "type", "unit", "ucd", "description", "minimum", "maximum", "missing", "rows"))
    for c in opened.contract.columns:
        seen = profile.columns.get(c.name)
        numbers = () if seen is None else (seen.minimum, seen.maximum, seen.missing, seen.n)
        writer.writerow((c.name, c.datatype, c.unit, c.ucd, c.description, *numbers))  # None is empty
    for name, text in {**texts, "columns.csv": table.getvalue()}.items():
        atomic_write_text(folder / name, text)
    atomic_write_text(folder / SUMS, sums_text(sums_of(folder, content)))
    return checked


def sign(request: SignRequest) -> ReleaseState:
    """Sign the digest of a checked draft, or refuse it; the record has who, why, and which stops were overridden."""
    series, version = Series(request.releases, request.name), request.version
    who, why = signer(request.by), request.why or ""
    with series.alone():
        folder, _ = series.opened_draft(version)
        checked, digest = series.checked(version, folder), digest_of(folder)
        if request.digest not in {None, digest}:
            raise series.refusal(version, "it was checked again since it was looked at; look again")
        overridden = tuple(dict.fromkeys(request.override or ()))
        if unknown := [name for name in overridden if name not in checked.stops]:
            known = ", ".join(checked.stops) or "none says stop"
            raise UsageError(f"--override: got '{unknown[0]}', expected one of: {known}")
        left = [name for name in checked.stops if name not in overridden]
        if (request.refuse or overridden) and not why:
            raise UsageError("--why: got no reason, expected one for a refusal and for overridden checks")
        if left and not request.refuse:
            said = "mend it and check again, or name each with --override and give a reason with --why"
            raise series.refusal(version, f"these checks say stop: {', '.join(left)}; {said}")
        signature = Signature(
            name=series.name,
            version=version,
            digest=digest,
            decision="refused" if request.refuse else "signed",
            who=who,
            why=why,
            when=utc_now(),
            overridden=() if request.refuse else overridden,
        )
        if request.key is not None:
            signature = signature.with_key(check_inside(request.key, key="--key"))
        write_document(folder / SIGNATURE, signature)
    about: dict[str, Any] = {"digest": digest, "who": who, "why": why, "stops": checked.stops}
    return series.state(version, signature.decision, folder, **about, looks=checked.names("look"))


def publish(request: PublishRequest) -> ReleaseState:
    """Make a signed draft visible, in one step, and the latest; refuse other bytes under a published version."""
    series, version = Series(request.releases, request.name), request.version
    with series.alone():
        draft, final = series.draft(version), series.folder / version
        log, before = series.read_log()
        event = log.published(version)
        if event is not None:
            if draft.is_dir() and not ((draft / SUMS).is_file() and digest_of(draft) == event.digest):
                said = f"is published with other bytes ({event.digest[:12]}), and never changes"
                raise series.refusal(version, f"{said}; draft another version")
            there = series.folder / event.folder
            return series.state(version, "is published", there, digest=event.digest, latest=log.latest)
        if draft.is_dir() and final.exists():
            raise ReleaseRefusedError(f"{final}: got a folder that {LOG} does not list; move it away")
        if not draft.is_dir() and not (final / SUMS).is_file():
            series.opened_draft(version)  # raises the error
        folder = draft if draft.is_dir() else final  # a killed run had given the draft its name already
        signature = series.signed(version, folder)
        if since := log.events[read_document(ReleaseRecord, folder / RECORD).events :]:
            said = f"{since[-1].version} was {since[-1].what} after this was drafted, and is not what it was compared"
            raise series.refusal(version, f"{said} with; draft and check it again")
        for path in release_files(folder):
            path.chmod(0o444)
            flush_to_disk(path)
        key = version if series.store is None else f"{version}-{signature.digest[:12]}"
        about = {"digest": signature.digest, "who": request.by or signature.who}
        published = ReleaseEvent(
            what="published", version=version, folder=key, when=utc_now(), why=signature.why, **about
        )
        final = series.folder / key
        series.upload(folder, key)
        if series.store is None and folder == draft:
            draft.rename(final)
            flush_to_disk(series.folder)
        series.commit(log, before, published)
        if series.store is not None:  # not before: whoever comes second keeps a draft
            draft.rename(final)
    return series.state(version, "published", final, latest=version, **about)


def rollback(request: RollbackRequest) -> ReleaseState:
    """Make an earlier version the latest again; every version stays where it is."""
    series = Series(request.releases, request.name)
    if not request.why:
        raise UsageError("--why: got no reason, expected one, which the record keeps")
    who = signer(request.by)
    with series.alone():
        log, before = series.read_log()
        versions = [e.version for e in log.events if e.what == "published"]
        place = versions.index(log.latest) if log.latest in versions else 0
        target = request.to or (versions[place - 1] if place else None)
        event = log.published(target)
        if event is None or event.version == log.latest:
            got = f"'{target or 'nothing'}'" + (", which is the latest already" if event else "")
            known = ", ".join(versions) or "none is published"
            raise UsageError(f"--to: got {got}, expected one of: {known}")
        folder = series.folder / event.folder
        if series.store is None:
            whole = (folder / SUMS).is_file() and digest_of(folder) == event.digest
            if changed := changed_files(folder) if whole else [f"{SUMS}: it is missing or was changed"]:
                said = f"got other files than were published ({'; '.join(changed[:5])})"
                raise series.refusal(event.version, f"{said}; bring them back, or name another with --to")
        event = replace(event, what="rolled back", who=who, when=utc_now(), why=request.why)
        series.commit(log, before, event)
    about = {"digest": event.digest, "latest": event.version, "who": who, "why": request.why}
    remarks = (f"{log.latest} stays published",)
    return series.state(event.version, "rolled back", folder, **about, remarks=remarks)


def verify(release: Path, *, key: Path | None = None) -> Verified:
    """Verify the folder of a release by itself: every byte is as it was checked, and was signed, by `key` if given."""
    folder = published_folder(release)
    digest, faults = digest_of(folder), changed_files(folder)
    public = None if key is None else read_key(key, serialization.load_pem_public_key, Ed25519PublicKey)
    try:
        signature = read_document(Signature, folder / SIGNATURE)
    except (FileNotFoundError, DocumentError):
        signature = replace(NOBODY, version=folder.name, digest=digest)
        faults.append(f"{SIGNATURE}: nobody has signed it, or the file is damaged")
    faults += [f"{SIGNATURE}: {fault}" for fault in signature.faults(digest, public)]
    place = folder.absolute()
    if (place.parent / LOG).is_file():
        events = read_document(ReleaseLog, place.parent / LOG).events
        digests = {event.digest for event in events if event.folder == place.name}
        if not digests:
            faults.append(f"{LOG}: it lists no release in this folder, so it is not published")
        elif digests != {digest}:
            faults.append(f"{LOG}: it was published with another digest")
    return Verified(
        folder=str(folder),
        version=signature.version,
        digest=digest,
        files=len(listed_sums(folder)),
        signed_by=signature.who,
        with_key=bool(signature.signature),
        faults=tuple(faults),
    )


def published_folder(folder: Path) -> Path:
    """Return the folder of a release that a user named: itself, the latest of a name, or one of a store, fetched."""
    url = url_of(folder)
    if url is not None:
        place, _, version = url.rstrip("/").rpartition("/")
        series = Series(*place.rsplit("/", 1))
        log, _ = series.read_log()
        fetched = series.released(log, version)
        if fetched is None:
            raise UsageError(f"FOLDER: got '{shown(url)}', expected a published version, as {log.latest}")
        return fetched
    if not (folder / SUMS).is_file() and (folder / LOG).is_file():
        folder = folder / (read_document(ReleaseLog, folder / LOG).latest or "")
    if not (folder / SUMS).is_file():
        raise UsageError(f"FOLDER: got '{folder}' without {SUMS}, expected the folder of a published release")
    return folder
