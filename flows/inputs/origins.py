"""Inputs at URLs, as a plan sees them: fetched files, and what need not, could not or should not be fetched."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from catalogs.writing.conversion import converted_key
from flows.inputs.source import LocalSource, Origin
from flows.runs.manifest import Manifest
from flows.runs.outputs import Output, Quarantined

__all__ = ["Brought", "Known"]


@dataclass(frozen=True)
class Known:
    """What is known of files at URLs from an earlier run of the same model and specification."""

    out: Path = Path()
    before: Manifest | None = None
    form: str | None = None  # of the copies

    def output(self, origin: Origin) -> Output | None:
        """Return the output that is there, if it is of the file as it is; without the server's word nobody knows."""
        # Some text tables have copies of another format, which only their content tells.
        names = (origin.name, converted_key(origin.name, "ecsv")) if self.form is None else (origin.name,)
        listed = next(filter(None, (self.before.find(n) for n in names)), None) if self.before else None
        if listed is None or not origin.tag or not listed.summary:
            return None
        same = (listed.input_path, listed.input.tag) == (origin.url, origin.tag)
        return listed if same and listed.is_in(self.out / listed.name) else None

    def quarantined(self, origin: Origin) -> Quarantined | None:
        """Return why the file, as it is, could not be annotated."""
        known = self.before.find_quarantined(origin.name) if self.before else None
        if known is None or known.input is None or not origin.tag:
            return None
        return known if (known.input_path, known.input.tag) == (origin.url, origin.tag) else None


@dataclass
class Brought:
    """Sources of this machine, where fetched files came from, and the files that were not fetched."""

    sources: list[LocalSource] = field(default_factory=list)
    origins: dict[Path, Origin] = field(default_factory=dict)
    unchanged: list[Output] = field(default_factory=list)
    quarantined: list[Quarantined] = field(default_factory=list)
    failed: list[tuple[Origin, Exception]] = field(default_factory=list)
    deferred: dict[str, str] = field(default_factory=dict)
    shown: dict[str, str] = field(default_factory=dict)  # of folders of fetched files: their URLs

    def left_out(self) -> Iterator[str]:
        """Yield the names of the outputs of files that were not fetched."""
        yield from (output.name for output in self.unchanged)
        yield from (known.name for known in self.quarantined)
        yield from (origin.name for origin, _ in self.failed)
        yield from self.deferred

    def spoken(self, text: str) -> str:
        """Return a text with URLs in the place of the paths where fetched files wait."""
        return spoken(text, self.shown)


def spoken(text: str, places: Mapping[str, str]) -> str:
    """Return a text in which some paths are called otherwise."""
    for path, called in places.items():
        text = text.replace(path, called)
    return text
