"""URLs as texts: what is one, what of one may be written down, and which lie below others.

Passwords and signatures are in the user part and in the query.  Neither is ever shown: not in errors, not in files.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import PurePath, PurePosixPath
from urllib.parse import unquote

__all__ = [
    "file_name",
    "has_secret",
    "is_below",
    "is_chained",
    "is_remote",
    "is_web",
    "key_below",
    "scheme_of",
    "scrubbed",
    "shown",
    "url_of",
]

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


@dataclass(frozen=True)
class _Parts:
    """What a URL is made of; only of the web does a query begin with a question mark, elsewhere that is a wild card."""

    scheme: str
    user: str
    host: str
    path: str
    query: str

    @classmethod
    def of(cls, url: str) -> _Parts:
        match = PARTS.fullmatch(url)
        if match is None:
            return cls("", "", "", url, "")
        scheme, place, rest = match.groups()
        user, _, host = place.rpartition("@")
        path, mark, query = rest, "", ""
        if scheme.lower() in WEB:
            path, mark, query = re.fullmatch(r"([^?#]*)([?#]?)(.*)", rest, re.DOTALL).groups()  # type: ignore[union-attr]
        return cls(scheme, user, host, path, mark + query)

    @property
    def web(self) -> bool:
        return self.scheme.lower() in WEB

    @property
    def password(self) -> bool:
        return ":" in self.user or (self.web and bool(self.user))


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
    return _Parts.of(url).scheme.lower()


def is_web(url: str) -> bool:
    """Say whether a URL is one of http or https."""
    return _Parts.of(url).web


def has_secret(url: str) -> bool:
    """Say whether a URL holds what may be a secret: a password, on the web any user and any query."""
    links = [_Parts.of(link) for link in CHAINED.split(url)]
    return any(parts.password or parts.query for parts in links)


def shown(url: str) -> str:
    """Return a URL as it may be shown and kept: without password, on the web without user and query."""
    if len(links := CHAINED.split(url)) > 1:
        return "::".join(map(shown, links))
    parts = _Parts.of(url)
    if not parts.scheme:
        return url
    user = "" if parts.web or not parts.user else parts.user.partition(":")[0] + "@"
    return f"{parts.scheme}://{user}{parts.host}{parts.path}{'?...' if parts.query else ''}"


def scrubbed(text: str) -> str:
    """Return a text in which every URL is as it may be shown, and so is what has a query and looks like a path."""
    return QUERY.sub(
        "?...", IN_TEXT.sub(lambda match: shown(re.sub(r"(?<=[ps]):/(?!/)", "://", match[0])), text)
    )


def file_name(url: str) -> str:
    """Return the name of the file, or of the folder, that a URL means."""
    parts = _Parts.of(url)
    path = unquote(parts.path) if parts.web else parts.path
    return PurePosixPath(path.rstrip("/")).name or parts.host


def key_below(path: str, root: str) -> str:
    """Return a file's path below a folder; on the web, listings quote what they name."""
    web = is_web(path)
    key = (re.split(r"[?#]", path)[0] if web else path).removeprefix(root).lstrip("/")
    return unquote(key) if web else key


def is_below(url: str, root: str) -> bool:
    """Say whether a URL is a root, or lies below it: the same scheme, host and port, and the folders of its path.

    What a server could take for a way out (`..`, quoted or not, backslashes) is below nothing.
    """
    inner, outer = _Parts.of(url), _Parts.of(root)
    if _place(inner) != _place(outer) or not inner.scheme or not _plain(inner):
        return False
    here, there = (parts.path.rstrip("/").split("/") for parts in (inner, outer))
    return here[: len(there)] == there


def _place(parts: _Parts) -> tuple[str, str]:
    scheme = parts.scheme.lower()
    host = parts.host.lower().removesuffix(PORTS.get(scheme, " ")) if parts.web else parts.host
    return scheme, host


def _plain(parts: _Parts) -> bool:
    if "\\" in parts.user + parts.host + parts.path or "@" in parts.user:
        return False
    path = parts.path
    for _ in range(MOST_UNQUOTING):
        if not {".", ".."}.isdisjoint(re.split(r"[/\\]", path)) or re.search(r"[\x00-\x1f]", path):
            return False
        path = unquote(path)
    return True
