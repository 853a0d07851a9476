"""URLs of files: their schemes, their secrets, the state of what they name (ETag), and errors of their servers."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from pathlib import PurePath, PurePosixPath
from typing import Any
from urllib.parse import unquote

from catalogs.errors import CatalogError, FormatError

# Errors in reaching a URL, translated into our own; drivers of file systems raise many kinds.

NOT_THERE = {404, 410}
NOT_ALLOWED = {401, 402, 403, 407}


class UnreachableError(CatalogError):
    """The file may be there, but did not come: no answer, an error of the server's, a broken connection."""


@contextmanager
def translated_errors(url: str) -> Iterator[None]:
    """Raise errors of a URL's driver as CatalogError, in words that name the URL and the remedy, not its secrets."""
    try:
        yield
    except CatalogError:
        raise
    except Exception as error:  # noqa: BLE001 -- of each driver's own kinds
        reworded = translated(url, error)
        if reworded is error.__cause__:
            raise reworded from None
        # A traceback would show a secret.
        raise reworded from (None if has_secret(url) or tells_secrets(error) else error)


def tells_secrets(error: BaseException | None) -> bool:
    """Say whether an error, or what it came of, names a URL that may not be shown: a signed one, led on to."""
    while error is not None:
        if scrubbed(str(error)) != str(error):
            return True
        error = error.__cause__ or error.__context__
    return False


def translated(url: str, error: Exception) -> CatalogError:
    """Return the CatalogError that tells what a driver's error on the way to a URL means, and what to do."""
    cause = error.__cause__
    if isinstance(cause, CatalogError):
        return cause
    if isinstance(error, FileNotFoundError) and isinstance(cause, Exception):
        error = cause  # The driver of http reports every failure as a missing file.
    place, status = shown(url), getattr(error, "status", None)
    if isinstance(error, FileNotFoundError) or status in NOT_THERE:
        return CatalogError(f"there is no {place}; correct the URL")
    if isinstance(error, PermissionError) or status in NOT_ALLOWED:
        why = f"the server answered {status}" if status else scrubbed(str(error))
        return CatalogError(f"{place} may not be read: {why}; check the credentials that its driver uses")
    if isinstance(error, NotADirectoryError | IsADirectoryError):
        return FormatError(f"{place} is a folder and no file, or a file and no folder; correct the URL")
    if isinstance(status, int):
        return UnreachableError(f"{place} cannot be read: the server answered {status}; try again later")
    why = scrubbed(" ".join(str(error).split())) or type(error).__name__
    return UnreachableError(f"{place} cannot be read: {why}; try again later")


# Tags by which a server identifies the state of a file: the same tag means the same bytes.  Only reliable tags are
# used.  An entity tag is used unless it is weak: servers give weak tags to content that they consider equivalent (RFC
# 9110, 8.8.1).  The time of the last change is used together with the size, where it has parts of a second or is a
# minute past: within the second that it names, the file may change again (8.8.2.2).

CONTENT = (
    "ETag",
    "etag",
    "e_tag",
    "md5Hash",
    "md5",
    "Content-MD5",
    "content_md5",
    "Digest",
    "sha",
    "generation",
)
TIMES = ("Last-Modified", "LastModified", "last_modified", "updated", "mtime", "modified", "created")
"""What fsspec's drivers call them."""
SETTLED = 60.0
"""Seconds."""


def tag_of(info: Mapping[str, Any], *, now: datetime | None = None) -> str:
    """Return the tag from a file system's information on a file, empty where there is no reliable one."""
    for key in CONTENT:
        value = str(info.get(key) or "")
        if value and not value.startswith("W/"):
            return f"{key}: {value}, {info['size']} bytes"
    for key in TIMES:
        changed = time_of(info.get(key))
        if changed is None:
            continue
        age = ((now or datetime.now(UTC)) - changed).total_seconds()
        settled = changed.microsecond or age > SETTLED
        return f"{key}: {changed.isoformat()}, {info['size']} bytes" if settled else ""
    return ""


def agree(one: Mapping[str, Any], other: Mapping[str, Any]) -> bool:
    """Say whether two answers of a file system about a file may be of the same bytes, by what both state.

    Strong tags, those of the content, count more than hints: weak tags and the times of changes.
    """
    if int(one["size"]) != int(other["size"]):
        return False
    (tags, hints), (other_tags, other_hints) = _tags_and_hints(one), _tags_and_hints(other)
    mine, theirs = (tags, other_tags) if tags.keys() & other_tags.keys() else (hints, other_hints)
    return all(mine[key] == theirs[key] for key in mine.keys() & theirs.keys())


def _tags_and_hints(info: Mapping[str, Any]) -> tuple[dict[str, str], dict[str, str]]:
    words = {key: str(info[key]) for key in CONTENT if info.get(key)}
    weak = {key: word for key, word in words.items() if word.startswith("W/")}
    # Azure's listings leave out the quotation marks.
    tags = {key: word.strip('"') for key, word in words.items() if key not in weak}
    # A listing and a question about one file may give the same instant in two zones.
    instants = {key: (time_of(info[key]), str(info[key])) for key in TIMES if info.get(key)}
    return tags, weak | {key: time.isoformat() if time else text for key, (time, text) in instants.items()}


def time_of(value: Any) -> datetime | None:
    """Return a time that a driver tells, in UTC, None where it is not understood."""
    try:
        if isinstance(value, datetime):
            time = value
        elif isinstance(value, int | float):
            time = datetime.fromtimestamp(value, UTC)
        elif isinstance(value, str) and "," in value:
            time = parsedate_to_datetime(value)
        else:
            time = datetime.fromisoformat(str(value))
        return time.astimezone(UTC) if time.tzinfo else time.replace(tzinfo=UTC)
    except (ValueError, OverflowError, OSError):
        return None


# URLs as texts: what is one, what of one may be written down, and which lie below others.  Passwords and signatures
# are in the user part and in the query.  Neither is ever shown: not in errors, not in files.

URL = re.compile(r"[A-Za-z][A-Za-z0-9+.:-]*://")
PARTS = re.compile(r"([A-Za-z][A-Za-z0-9+.:-]*)://([^/?#\\]*)(.*)", re.DOTALL)
CHAINED = re.compile(r"::(?=[A-Za-z][A-Za-z0-9+.-]*(?:::|://|$))")
IN_TEXT = re.compile(r"(?:[A-Za-z][A-Za-z0-9+.-]*://|https?:/)[^\s'\"<>]+")
QUERY = re.compile(r"\?[\w.~%-]+=[^\s'\"<>]*")
"""A query that people write, in what need not be a URL."""
SPELT_AS_PATH = re.compile(r"([A-Za-z][A-Za-z0-9+.-]+):/+")
"""How a URL begins of which a path was made: `Path("s3://bucket")` is `s3:/bucket`."""
WEB = ("http", "https")
PORTS = {"http": ":80", "https": ":443"}
MOST_UNQUOTING = 4


def _parts(url: str) -> tuple[str, str, str, str, str]:
    """Return the scheme, user, host, path and query of a URL; a text that is no URL is a path alone.

    Only of the web does a query begin with a question mark, elsewhere that is a wild card.
    """
    match = PARTS.fullmatch(url)
    if match is None:
        return "", "", "", url, ""
    scheme, place, path = match.groups()
    user, _, host = place.rpartition("@")
    end = next((m.start() for m in re.finditer(r"[?#]", path)), None) if scheme.lower() in WEB else None
    return scheme, user, host, path[:end], path[end:] if end is not None else ""


def is_remote(source: str) -> bool:
    """Say whether a text is a URL rather than a path."""
    return URL.match(source) is not None


def url_of(path: str | PurePath) -> str | None:
    """Return the URL that a text means, or that a path was made of; None for all other paths."""
    text = str(path)
    if is_remote(text):
        return text
    begin = SPELT_AS_PATH.match(text)
    if begin is None:
        return None
    host = "/" if begin[1].lower() == "file" else ""  # of those the host is empty
    return f"{begin[1]}://{host}{text[begin.end() :]}"


def is_chained(url: str) -> bool:
    """Say whether a URL is one of fsspec's, of a file inside another: `zip://a.parquet::https://...`."""
    return CHAINED.search(url) is not None


def scheme_of(url: str) -> str:
    """Return what stands before ://, in lower case."""
    return _parts(url)[0].lower()


def is_web(url: str) -> bool:
    """Say whether a URL is one of http or https."""
    return scheme_of(url) in WEB


def has_secret(url: str) -> bool:
    """Say whether a URL holds what may be a secret: a password, on the web any user and any query."""
    links = [(is_web(link), _parts(link)) for link in CHAINED.split(url)]
    return any(":" in user or (web and user) or query for web, (_, user, _, _, query) in links)


def shown(url: str) -> str:
    """Return a URL as it may be shown and kept: without password, on the web without user and query."""
    if len(links := CHAINED.split(url)) > 1:
        return "::".join(map(shown, links))
    scheme, user, host, path, query = _parts(url)
    if not scheme:
        return url
    user = "" if is_web(url) or not user else user.partition(":")[0] + "@"
    return f"{scheme}://{user}{host}{path}{'?...' if query else ''}"


def scrubbed(text: str) -> str:
    """Return a text in which every URL is as it may be shown, and so is what has a query and looks like a path."""
    text = IN_TEXT.sub(lambda match: shown(re.sub(r"(?<=[ps]):/(?!/)", "://", match[0])), text)
    return QUERY.sub("?...", text)


def file_name(url: str) -> str:
    """Return the name of the file, or of the folder, that a URL means."""
    _, _, host, path, _ = _parts(url)
    return PurePosixPath((unquote(path) if is_web(url) else path).rstrip("/")).name or host


def key_below(path: str, root: str) -> str:
    """Return a file's path below a folder; on the web, listings quote what they name."""
    web = is_web(path)
    key = (re.split(r"[?#]", path)[0] if web else path).removeprefix(root).lstrip("/")
    return unquote(key) if web else key


def is_below(url: str, root: str) -> bool:
    """Say whether a URL is a root, or lies below it: the same scheme, host and port, and the folders of its path.

    What a server could take for a way out (`..`, quoted or not, backslashes) is below nothing.
    """
    (scheme, user, host, path, _), (other_scheme, _, other_host, other_path, _) = _parts(url), _parts(root)
    if not scheme or scheme.lower() != other_scheme.lower():
        return False
    if is_web(url):
        host, other_host = (h.lower().removesuffix(PORTS[scheme.lower()]) for h in (host, other_host))
    if host != other_host or "\\" in user + host + path or "@" in user:
        return False
    here, there = (p.rstrip("/").split("/") for p in (path, other_path))
    if here[: len(there)] != there:
        return False
    for _ in range(MOST_UNQUOTING):
        if not {".", ".."}.isdisjoint(re.split(r"[/\\]", path)) or re.search(r"[\x00-\x1f]", path):
            return False
        path = unquote(path)
    return True
