"""A server's word for the state of a file: the same word, the same bytes.  What might lie is not taken.

An entity tag is taken unless it is a weak one, which servers give to what they call equivalent (RFC 9110, 8.8.1).  The
time of the last change is taken with the size, where it tells parts of a second or is a minute past: within the second
that it names, the file may change again (8.8.2.2).
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Any

__all__ = ["state_of", "tag_of"]

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
    """Return the tag in what a file system tells of a file, empty where there is none to be trusted."""
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


def state_of(info: Mapping[str, Any]) -> str:
    """Return all that a file system tells of a file's state: while it is read, none of that should change."""
    return repr([(key, info[key]) for key in (*CONTENT, *TIMES, "size") if key in info])


def time_of(value: Any) -> datetime | None:
    """Return a time that a driver tells, None where it is none that is understood."""
    try:
        if isinstance(value, datetime):
            found = value
        elif isinstance(value, int | float):
            found = datetime.fromtimestamp(value, UTC)
        elif isinstance(value, str) and "," in value:
            found = parsedate_to_datetime(value)
        else:
            found = datetime.fromisoformat(str(value))
    except (ValueError, OverflowError, OSError):
        return None
    return found if found.tzinfo else found.replace(tzinfo=UTC)
