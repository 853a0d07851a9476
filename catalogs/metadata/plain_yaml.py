"""YAML of the few types that headers and model files hold: texts, numbers, truth values, lists, mappings, references.

The text is read event by event.  Depth and number of values are counted before anything is made of them, and what a
reference repeats counts again.  Merge keys, dates and numbers to the base 60 are texts: no writer of ours makes them.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import yaml

try:
    from yaml import CSafeDumper as SafeDumper
    from yaml import CSafeLoader as SafeLoader
except ImportError:  # PyYAML may be built without its fast reader
    from yaml import SafeDumper, SafeLoader  # type: ignore[assignment]

__all__ = ["SafeDumper", "YamlError", "read_yaml"]

DEEPEST = 64
MOST_VALUES = 500_000
"""Most values of a text, those that references repeat included; they are read in some seconds."""
CORE = "tag:yaml.org,2002:"
WORDS = {"true": True, "false": False, "null": None, "~": None, "": None}
WORDS |= {form: value for word, value in WORDS.items() for form in (word.title(), word.upper())}
INTEGER = re.compile(r"[-+]?(?:0|[1-9][0-9]{0,19})")
FLOAT = re.compile(r"[-+]?(?:[0-9]+\.[0-9]*|\.[0-9]+)(?:[eE][-+][0-9]+)?|([-+]?\.inf|\.nan)", re.IGNORECASE)

Tagged = Callable[[str, Any], Any]


class YamlError(ValueError):
    """The text is not YAML, or not of the types that are read."""


def read_yaml(text: str | bytes, tagged: Tagged = lambda _tag, value: value) -> Any:
    """Return the value of a YAML text.

    Parameters
    ----------
    text
        One document.
    tagged
        Makes a value of a tag, and of what is tagged: a text, a list or a mapping.  By default tags are ignored.

    Raises
    ------
    YamlError
        If the text is not YAML, too deep or too long, or refers to something that is not complete.
    """
    document = _Document(tagged)
    try:
        for event in yaml.parse(text, Loader=SafeLoader):
            document.add(event)
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise YamlError(" ".join(str(error).split())) from None
    if len(document.values) != 1:
        raise YamlError(f"it holds {len(document.values)} documents, expected one")
    return document.values[0]


class _Document:
    """The values of a text as far as its events are read."""

    def __init__(self, tagged: Tagged) -> None:
        self.values: list[Any] = []
        self._tagged = tagged
        self._open: list[tuple[yaml.CollectionStartEvent, int, list[Any]]] = []
        self._known: dict[str, tuple[Any, int]] = {}
        self._total = 0

    def add(self, event: yaml.Event) -> None:
        """Add what an event says."""
        match event:
            case yaml.ScalarEvent():
                self._count(1)
                self._keep(event, _of_tag(event.tag, _scalar(event), event.value, self._tagged), 1)
            case yaml.CollectionStartEvent():
                if len(self._open) == DEEPEST:
                    raise YamlError(f"it is more than {DEEPEST} levels deep")
                self._open.append((event, self._total, []))
                self._count(1)
            case yaml.CollectionEndEvent():
                start, before, values = self._open.pop()
                made = _mapping(values) if isinstance(start, yaml.MappingStartEvent) else values
                self._keep(start, _of_tag(start.tag, made, made, self._tagged), self._total - before)
            case yaml.AliasEvent():
                if event.anchor not in self._known:
                    raise YamlError(f"it refers to '{event.anchor:.40}', which is not complete before")
                value, size = self._known[event.anchor]
                self._count(size)
                self._into.append(value)

    @property
    def _into(self) -> list[Any]:
        return self._open[-1][2] if self._open else self.values

    def _count(self, size: int) -> None:
        self._total += size
        if self._total > MOST_VALUES:
            raise YamlError(f"it holds more than {MOST_VALUES:,} values")

    def _keep(self, event: yaml.NodeEvent, value: Any, size: int) -> None:
        self._into.append(value)
        if event.anchor:
            self._known[event.anchor] = value, size


def _mapping(values: list[Any]) -> dict[Any, Any]:
    try:
        return dict(zip(values[::2], values[1::2], strict=True))
    except TypeError:
        raise YamlError("a key is a list or a mapping, expected a text") from None


def _of_tag(tag: str | None, value: Any, written: Any, tagged: Tagged) -> Any:
    """Return the value of a tag; `value` is what it would be without one, `written` the text of a scalar."""
    if tag is None:
        return value
    if tag in ("!", CORE + "str"):
        return written
    if tag in (CORE + "omap", CORE + "pairs") and isinstance(value, list):
        return [pair for part in value if isinstance(part, dict) for pair in part.items()]
    return value if tag.startswith(CORE) and ":python/" not in tag else tagged(tag, value)


def _scalar(event: yaml.ScalarEvent) -> Any:
    text: str = event.value
    if event.style:  # in quotation marks
        return text
    if text in WORDS:
        return WORDS[text]
    if INTEGER.fullmatch(text):
        return int(text)
    match = FLOAT.fullmatch(text)
    return text if match is None else float(text.replace(".", "", 1) if match[1] else text)
