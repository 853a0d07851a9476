"""HATS `properties` files: Java properties, of which a copy changes some lines and keeps all others as they are.

Keys are those of the standard (https://www.ivoa.net/documents/Notes/HATS/, section 4).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from catalogs.errors import FormatError

__all__ = ["COLLECTION", "PROPERTIES", "Properties", "read_properties", "words"]

PROPERTIES = ("hats.properties", "properties")
"""Names of a table's file, the one that counts first; both say the same."""

COLLECTION = "collection.properties"
LONGEST = 1 << 20
"""Bytes: a properties file has some dozens of lines."""

ENTRY = re.compile(r"\s*((?:\\.|[^\s=:\\])+)\s*[=:\s]\s*(.*)", re.DOTALL)
COMMENT = ("#", "!")


@dataclass(frozen=True)
class Properties:
    """The lines of a file: text without its end, key, value; comments and empty lines have no key."""

    lines: tuple[tuple[str, str, str], ...]

    @classmethod
    def parse(cls, text: str) -> Properties:
        """Take a file's text; a line that ends in a backslash goes on in the next."""
        lines: list[tuple[str, str, str]] = []
        held = ""
        for line in text.splitlines():
            held += line
            if continues(held):
                held = f"{held}\n"
                continue
            lines.append(entry(held))
            held = ""
        return cls((*lines, entry(held)) if held else tuple(lines))

    @property
    def text(self) -> str:
        """The text of the file."""
        return "".join(f"{line}\n" for line, _, _ in self.lines)

    def get(self, key: str, default: str = "") -> str:
        """Return the value of a key; if it is repeated, the last one."""
        return next((value for _, k, value in reversed(self.lines) if k == key), default)

    def updated(self, changes: Mapping[str, str | None]) -> Properties:
        """Return a copy with changed values in their places, new ones at the end, and without those of None."""
        left, lines = dict(changes), []
        for line in self.lines:
            key = line[1]
            if key not in changes:
                lines.append(line)
            elif (value := left.pop(key, None)) is not None:
                lines.append(written(key, value))
        lines += [written(key, value) for key, value in left.items() if value is not None]
        return Properties(tuple(lines))


def written(key: str, value: str) -> tuple[str, str, str]:
    """Return a line; backslashes stay single, since the writers of HATS leave them so."""
    value = " ".join(value.splitlines())
    return f"{key}={value}", key, value


def continues(line: str) -> bool:
    """Say whether a line ends in an odd number of backslashes."""
    return (len(line) - len(line.rstrip("\\"))) % 2 == 1 and not line.lstrip().startswith(COMMENT)


def entry(line: str) -> tuple[str, str, str]:
    """Return a line with its key and value."""
    joined = re.sub(r"\\\n\s*", "", line)
    match = ENTRY.fullmatch(joined + " ") if not joined.lstrip().startswith(COMMENT) else None
    return (line, plain(match[1]), plain(match[2].rstrip())) if match else (line, "", "")


def plain(text: str) -> str:
    """Return a text without the escapes of Java properties."""
    text = re.sub(r"\\u([0-9a-fA-F]{4})", lambda m: chr(int(m[1], 16)), text)
    return re.sub(r"\\(.)", lambda m: {"n": "\n", "t": "\t", "r": "\r"}.get(m[1], m[1]), text)


def words(value: str) -> list[str]:
    """Return the elements of a list, which blanks, commas or semicolons part."""
    return [word for word in re.split(r"[\s,;]+", value) if word]


def read_properties(path: Path) -> Properties:
    """Read a file; FormatError where it cannot be one."""
    with path.open("rb") as stream:
        data = stream.read(LONGEST + 1)
    if len(data) > LONGEST or b"\0" in data:
        raise FormatError(
            f"{path} is not a properties file of HATS, expected lines such as 'key=value'; fetch the catalogue again"
        )
    try:
        return Properties.parse(data.decode())
    except UnicodeDecodeError:
        return Properties.parse(data.decode("latin-1"))
