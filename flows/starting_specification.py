"""A first specification for a labelled catalogue: what `blr init` writes.

It trains as it is, and says in comments what was seen, what was left out, and why; a person edits it from there.
"""

from __future__ import annotations

import json
import os
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from catalogs.annotations import standard_columns
from catalogs.catalog import Catalog
from catalogs.errors import NameClashError, nearest
from catalogs.leaks import Leak
from catalogs.profile import Profile
from catalogs.suspicions import suspected_identifiers, suspected_sentinels
from catalogs.values import batch_values
from flows.config_file import parse_specification
from flows.errors import TrainingError, UsageError
from flows.inspection import described_positions, found_leaks, leaking_column, seen_profile
from flows.labels import label_texts
from flows.starting_columns import Chosen, choose_columns

__all__ = ["Start", "starting_specification"]

MOST_CLASSES = 8
"""More of them are listed in a comment: a first training takes minutes with thirty."""
FEWEST = 25
"""Rows of a class below which it is left out: some are held out, and few say nothing."""
POLYNOMIAL = 8
"""Features up to which all products of two are tried."""


@dataclass(frozen=True)
class Start:
    """The specification, and what of it a program may want to know."""

    text: str
    classes: dict[str, int]
    features: dict[str, str]
    left_out: dict[str, str]


def starting_specification(catalog: Catalog, label: str, *, folder: Path, limit: int | None = None) -> Start:
    """Return a specification that lies in `folder`, for the classes in the column `label`."""
    if label not in catalog.names:
        raise UsageError(
            f"--label: got '{label}', expected a column of {catalog.path}; {nearest(label, catalog.names)}"
        )
    counts: Counter[str] = Counter()

    def count(batch: pa.RecordBatch) -> None:
        counts.update(label_texts(batch_values(batch, [label])[label]).tolist())

    seen = seen_profile(catalog, limit=limit, also=count)
    kept, dropped = _classes(counts, label)
    texts = label_texts(seen.sample[label])
    leaks, gains = found_leaks(catalog, seen, label, np.where(np.isin(texts, list(kept)), texts, ""))
    chosen = choose_columns(
        seen,
        label=label,
        identifiers=[name for name, _ in suspected_identifiers(seen)],
        leaks=leaks,
        derived=leaking_column(leaks),
        gains=gains,
    )
    if not chosen.features:
        raise TrainingError(
            f"got no column of {catalog.path} that could be a feature ({len(chosen.left_out)} were left out), "
            "expected numbers that tell something but do not give the class away; write the specification by hand"
        )
    page = _Page(catalog, seen, label, folder, chosen, kept, dropped, leaks)
    text = "\n".join(page.lines()) + "\n"
    parse_specification(text, source="the specification that init wrote")
    features = {name: expression for name, (expression, _) in chosen.features.items()}
    return Start(text, {**kept}, features, chosen.left_out)


def _classes(counts: Counter[str], label: str) -> tuple[dict[str, int], dict[str, int]]:
    """Return the labels that become classes and those that do not, each with its rows; '' is none."""
    known = [(text, n) for text, n in counts.most_common() if text]
    kept: dict[str, int] = {}
    for text, n in known:
        if n >= FEWEST and len(kept) < MOST_CLASSES and _fits([*kept, text]):
            kept[text] = n
    if len(kept) < 2:
        shown = ", ".join(f"'{text}' ({n})" for text, n in known[:8]) or "none"
        raise TrainingError(
            f"--label: got '{label}' with the labels {shown}, expected at least two with {FEWEST} rows each; "
            "choose the column of the class"
        )
    return kept, {text: n for text, n in known if text not in kept}


def _fits(names: Sequence[str]) -> bool:
    """Say whether classes of these names can have columns: not two that differ in letter case alone."""
    if not all(0 < len(name.strip()) <= 64 for name in names):
        return False
    try:
        standard_columns(tuple(names) if len(names) > 1 else (*names, "any other"))
    except NameClashError:
        return False
    return True


@dataclass(frozen=True)
class _Page:
    """The lines of the file."""

    catalog: Catalog
    seen: Profile
    label: str
    folder: Path
    chosen: Chosen
    kept: dict[str, int]
    dropped: dict[str, int]
    leaks: list[Leak]

    def lines(self) -> Iterator[str]:
        """Yield them."""
        yield f"# Written by `blr init` from what {self.seen.n_rows:,} rows of {self.catalog.path.name} show."
        yield "# It trains as it is: `blr train` with this file.  Read it first; every choice here is a guess."
        yield f"name = {_text(self._name())}"
        yield ""
        yield from self._catalog()
        yield from self._label()
        yield from self._split()
        yield from self._features()
        yield from self._candidates()

    def _name(self) -> str:
        stem = re.sub(r"[^A-Za-z0-9_-]+", "-", self.catalog.path.name.split(".")[0]).strip("-_")
        return (stem or "survey")[:60]

    @property
    def _identifier(self) -> str | None:
        found = [name for name, why in suspected_identifiers(self.seen) if why.startswith("different")]
        return found[0] if found else None

    @property
    def _position(self) -> dict[str, Any] | None:
        place = described_positions(self.catalog, self.seen)
        return place if place and place["unit"] else None

    def _catalog(self) -> Iterator[str]:
        path = Path(os.path.relpath(self.catalog.path.resolve(), self.folder.resolve())).as_posix()
        yield "[catalog]"
        yield f"paths = [{_text(path)}]"
        for name, why in suspected_identifiers(self.seen):
            told = f"id = {_text(name)}  # {why}"
            yield told if name == self._identifier else f"# {told}"
        if self._position:
            yield f"ra = {_text(self._position['ra'])}"
            yield f"dec = {_text(self._position['dec'])}"
            yield from (f"# {_line(remark)}" for remark in self._position["remarks"])
        marks = {
            name: suspected_sentinels(self.seen, name) for name in self.seen.columns if name != self.label
        }
        found = {name: found for name, found in marks.items() if found}
        if found:
            yield ""
            yield "[catalog.sentinels]  # numbers that look like 'no value'"
            for name, some in found.items():
                values = ", ".join(f"{s.value!r}" for s in some)
                why = "; ".join(f"{s.value:g}: {s.count:,} rows, {s.why}" for s in some)
                yield f"{_text(name)} = [{values}]  # {why}"
        yield ""

    def _label(self) -> Iterator[str]:
        yield "[label]"
        yield f"column = {_text(self.label)}"
        yield ""
        yield "[label.classes]  # class = its spellings in the column; group them as the question asks"
        for name, n in self.kept.items():
            yield f"{_text(name.strip())} = [{_text(name)}]  # {n:,} rows"
        for name, n in list(self.dropped.items())[:30]:
            yield f"# {_text(name)} = [{_text(name)}]  # left out: {n:,} rows"
        yield ""

    def _split(self) -> Iterator[str]:
        yield "[split]"
        if self._identifier:
            yield 'by = "id"'
        elif self._position:
            yield 'by = "healpix"  # no column names the objects: neighbours on the sky stay together'
        else:
            best = max(
                self.seen.columns.values(), key=lambda c: c.distinct.estimate if c.name != self.label else -1
            )
            yield f"by = {_text(best.name)}  # no column names the objects, and none says where they are"
        yield "held_out = 0.2"
        yield ""

    def _features(self) -> Iterator[str]:
        yield "[features]"
        for name, (expression, remark) in self.chosen.features.items():
            yield f"{_text(name)} = {_text(expression)}" + (f"  # {remark}" if remark else "")
        for name, expression in self.chosen.spare.items():
            yield f"# {_text(name)} = {_text(expression)}  # one more that could be tried"
        yield ""
        yield "# Columns left out, and why:"
        for name, reason in self.chosen.left_out.items():
            yield f"#   {_line(name)}: {_line(reason)}"
        colours = [leak for leak in self.leaks if len(leak.columns) > 1 and not leak.derived][:5]
        if colours:
            yield "# Together these tell more than apart; colours do, but so does what was computed with the class:"
            yield from (f"#   {_line(leak.combination)}: {leak.gain:.0%} of the class" for leak in colours)
        yield ""
        if self.chosen.errors:
            yield "# [errors]  # one-sigma errors, where the target's are larger than those of the training rows"
            yield from (f"# {_text(n)} = {_text(e)}" for n, e in self.chosen.errors.items())
            yield ""

    def _candidates(self) -> Iterator[str]:
        yield "# Candidates are weighed by their evidence, which pays for each parameter."
        bases = ['{ kind = "linear" }', '{ kind = "rbf", centres = 20, linear = true }']
        if len(self.chosen.features) <= POLYNOMIAL:
            bases.insert(1, '{ kind = "polynomial", degree = 2 }')
        for basis in bases:
            yield "[[candidate]]"
            yield f"basis = {basis}"


def _text(text: str) -> str:
    """Return a text as TOML has it: JSON's texts are TOML's too, all but the one control character."""
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007F")


def _line(text: str) -> str:
    """Return a text that is safe in a comment."""
    return "".join(c if c.isprintable() else " " for c in text)
