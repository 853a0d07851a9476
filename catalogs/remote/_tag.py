"""Tags by which a server identifies the state of a file: the same tag means the same bytes.

Only reliable tags are used. An entity tag is used unless it is weak: servers give weak tags to content that they
consider equivalent (RFC 9110, 8.8.1). The time of the last change is used together with the size, where it has parts of
a second or is a minute past: within the second that it names, the file may change again (8.8.2.2).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Any

__all__ = ["RemoteState", "state_of", "tag_of"]

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
        return (
            f"{key}: {changed.isoformat()}, {info['size']} bytes"
            if changed.microsecond or age > SETTLED
            else ""
        )
    return ""


@dataclass(frozen=True)
class RemoteState:
    """What a file system says of a file's state, to be compared with what it says later.

    `tags` are strong ones, of the content; `hints` are weak tags and the times of changes, as instants: a listing and
    a question about one file may give the same instant in two zones.
    """

    size: int = 0
    tags: Mapping[str, str] = field(default_factory=dict)
    hints: Mapping[str, str] = field(default_factory=dict)

    def agrees_with(self, other: RemoteState) -> bool:
        """Say whether both may be of the same bytes, by what both say; equal tags count more than any hint."""
        if self.size != other.size:
            return False
        tags = self.tags.keys() & other.tags.keys()
        if tags:
            return all(self.tags[key] == other.tags[key] for key in tags)
        return all(self.hints[key] == other.hints[key] for key in self.hints.keys() & other.hints.keys())


def state_of(info: Mapping[str, Any]) -> RemoteState:
    """Return what a file system says of a file's state: while the file is read, none of that should change."""
    words = {key: str(info[key]) for key in CONTENT if info.get(key)}
    weak = {key: word for key, word in words.items() if word.startswith("W/")}
    # Azure's listings leave out the quotation marks.
    tags = {key: word.strip('"') for key, word in words.items() if key not in weak}
    times = {key: info[key] for key in TIMES if info.get(key)}
    instants = {key: time_of(value) for key, value in times.items()}
    hints = {key: time.isoformat() if time else str(times[key]) for key, time in instants.items()}
    return RemoteState(int(info["size"]), tags, weak | hints)


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
