"""The page that `blr init` writes: a TOML file with comments that say what was found."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from typing import Any, NamedTuple

from blr.candidates.candidate import HELD_OUT, HELD_OUT_FROM, default_candidates
from catalogs.catalog.catalog import Catalog, Element
from catalogs.errors import brief, counted
from catalogs.formats import all_suffixes
from catalogs.profile import quality
from catalogs.profile.columns import Profile, suspected_texts
from catalogs.sky.photometry import flux_unit
from flows.documents import template
from flows.draft._bands import is_inverse_variance
from flows.draft._columns import Chosen, quoted
from flows.draft._exclusions import vector_name
from flows.draft.inspection import MOST_CLASSES, StartingClasses
from flows.specification.specification import Candidate
from flows.specification.toml_file import toml_text


def toml_mark(value: float | str) -> str:
    """Return a mark of a missing value as TOML has it."""
    return toml_text(value) if isinstance(value, str) else repr(value)


def comment_text(text: str) -> str:
    """Return a text that is safe in a comment."""
    return "".join(c if c.isprintable() else " " for c in text)


MOST_NAMED = 6
"""Labels that a line names, and suspects."""
LEAST_OF_TARGET = 0.5
"""Rows without a label for each labelled row, from which a file is the target too."""


def _labels(classes: StartingClasses) -> Iterator[str]:
    total = classes.n_rows + sum(classes.dropped.values()) + sum(classes.doubtful.values())
    bare = {text: n for text, n in classes.dropped.items() if text in classes.bare}
    other = {text: n for text, n in classes.dropped.items() if text not in classes.bare}
    many = f": a first training takes the {MOST_CLASSES} most frequent; [label.classes] can have 100"
    for doubt, some, why in (
        ("", other, many if len(classes.kept) == MOST_CLASSES else ""),
        ("", bare, ": hardly any of these rows has a feature"),
        (" of doubt", classes.doubtful, ""),
    ):
        if some:
            what = f"label{'s' if len(some) > 1 else ''}{doubt}"
            yield (
                f"Left out: {len(some)} {what} with {sum(some.values()):,} of {total:,} labelled rows "
                f"({_named(some)}){why}"
            )
    if classes.cut is not None:
        yield (
            f"The labels are many numbers, and were cut in two at {classes.cut:g}: a guess. If each number is a class, "
            "remove [label.classes]; else move the cut there"
        )
    if not classes.dropped and not classes.doubtful:
        yield f"{counted(len(classes.kept), 'class')} of all {classes.n_rows:,} labelled rows: every label is in one"


def _columns(chosen: Chosen, other: Mapping[str, str], n_columns: int) -> str:
    counts = Counter(kind for _, kind in chosen.left_out.values()) + Counter({"no number a row": len(other)})
    if not counts:
        return f"Left out: none of {counted(n_columns, 'column')}"
    kinds = ", ".join(f"{kind} {n}" for kind, n in counts.most_common())
    left = f"{sum(counts.values())} of {counted(n_columns, 'column')}"
    return f"Left out: {left} ({kinds}); each with its reason under [features]"


def _told(chosen: Chosen) -> Iterator[str]:
    for name, gain in islice(chosen.informative.items(), MOST_NAMED):
        yield f"Left out, but tells {gain:.0%} of the class: {name} ({chosen.left_out[name][1]})"
    if len(chosen.informative) > MOST_NAMED:
        yield f"Left out, but tell of the class: {counted(len(chosen.informative) - MOST_NAMED, 'column')} more"
    for name, suspect in islice(chosen.suspects.items(), MOST_NAMED):
        yield f"Suspect, kept: {name}, {suspect}"
    if len(chosen.suspects) > MOST_NAMED:
        yield f"Suspects, kept: {len(chosen.suspects) - MOST_NAMED} more, which tell less"


def _named(some: Mapping[str, int]) -> str:
    shown = ", ".join(f"{brief(name)!r} {n:,}" for name, n in islice(some.items(), MOST_NAMED))
    return shown + (f", and {len(some) - MOST_NAMED} more" if len(some) > MOST_NAMED else "")


class Split(NamedTuple):
    """What [split] says: by 'id', by columns, or by pixels of an order; `identifier` is catalog.id if that splits."""

    by: str | Sequence[str]
    remark: str = ""
    identifier: str | None = None
    order: int | None = None


def summary_lines(
    seen: Profile,
    label: str,
    chosen: Chosen,
    classes: StartingClasses,
    other: Mapping[str, str],
    unlabelled: int,
) -> Iterator[str]:
    """Yield what is left out, with counts, the suspects, and the target where it is the file itself.

    `other` are columns of which no number a row can be taken; `unlabelled` rows have no label, or one that says doubt.
    """
    yield from _labels(classes)
    if chosen.groups:
        yield f"{chosen.alike} They stand under [label.classes], ready to use"
    yield _columns(chosen, other, sum(c != label for c in seen.columns) + len(other))
    yield from _told(chosen)
    if seen.repeated_rows:
        yield (
            f"{seen.repeated_rows:,} of {seen.n_rows:,} rows repeat another row in every column: "
            "remove them, or they count twice"
        )
    if is_target(classes, unlabelled):
        share = "Most" if unlabelled > classes.n_rows else "Some"
        yield (
            f"{share} rows have no label ({unlabelled:,}; {classes.n_rows:,} train): this file is also the "
            "[target] that training compares with the labelled rows"
        )


def is_target(classes: StartingClasses, unlabelled: int) -> bool:
    """Say whether so many rows of the file have no label that it is to be classified."""
    return unlabelled > LEAST_OF_TARGET * classes.n_rows


def alike_groups(chosen: Chosen, classes: StartingClasses) -> dict[str, tuple[str, ...]]:
    """Return groups of classes that are alike, by name, as the spellings of their labels; rare classes stay alone."""
    known = {name for some in chosen.groups.values() for name in some}
    groups = chosen.groups | {c: [c] for c in classes.kept if chosen.groups and c not in known}
    return {name: tuple(text for c in some for text in classes.kept[c]) for name, some in groups.items()}


def page_text(
    catalog: Catalog,
    seen: Profile,
    label: str,
    chosen: Chosen,
    classes: StartingClasses,
    split: Split,
    other: Mapping[str, str],
    more: Mapping[str, Any],
) -> str:
    """Return the text of the file; `more` are further values of its template, by their names there.

    They are the `summary`, the `path` or URL of the catalogue, its `table`, the `place` and the number `unlabelled`.
    """
    name = catalog.path.name
    ending = max((s for s in all_suffixes() if name.lower().endswith(s)), key=len, default="")
    stem = re.sub(r"[^A-Za-z0-9_-]+", "-", name[: len(name) - len(ending)]).strip("-_")
    tried = default_candidates(classes.n_rows, len(chosen.features), len(classes.kept))
    stated = map(Candidate.stated, tried)
    candidates = [(c.basis.model_dump(exclude_defaults=True, mode="json"), c.transform) for c in stated]
    filters = {"comment": comment_text, "toml": toml_text, "json": json.dumps, "quoted": quoted}
    filters |= {"spelt": _spelt, "flux_unit": lambda unit: str(flux_unit(unit)), "error_key": _error_key}
    return str(
        template("specification.toml.j2", **filters).render(
            more,
            file=name,
            name=(stem or "survey")[:60],
            seen=seen,
            label=label,
            chosen=chosen,
            classes=classes,
            split=split,
            identifiers=quality.suspected_identifiers(seen),
            identifier=split.identifier or quality.naming_column(seen) or quality.repeating_column(seen),
            sentinels=_sentinels(seen, label),
            groups=alike_groups(chosen, classes),
            held_out=0 if classes.n_rows < HELD_OUT_FROM else HELD_OUT,
            left_out=_left_out(seen, chosen) | dict(other),
            candidates=candidates,
            is_target=is_target(classes, more["unlabelled"]),
        )
    )


def _spelt(spellings: Mapping[str, int]) -> str:
    """Return what is said of several spellings of a class."""
    each = ", ".join(f"{toml_text(text)} {n:,}" for text, n in spellings.items())
    return f" ({each}): upper and lower case alone do not make a class" if len(spellings) > 1 else ""


def _error_key(error: str) -> str:
    return "inverse_variance" if is_inverse_variance(error) else "error"


def _sentinels(seen: Profile, label: str) -> Iterator[tuple[str, str, str]]:
    """Yield the columns with marks of missing values, the marks as TOML has them, and what was seen of them."""
    marks = {n: quality.suspected_sentinels(seen, n) for n in seen.columns if n != label}
    texts = {n: suspected_texts(seen, n) for n in seen.columns if n != label}
    marked = dict.fromkeys(n for found in (marks, texts) for n, some in found.items() if some)
    for vector in sorted({e.vector for e in marked if isinstance(e, Element) and marks[e]}):
        elements = (e for e in marked if isinstance(e, Element) and e.vector == vector)
        those_of = [s for e in elements for s in marks[e]]
        values = ", ".join(map(toml_mark, sorted({s.value for s in those_of}, key=str)))
        yield vector, values, f"{sum(s.count for s in those_of):,} elements"
    for name in (n for n in marked if not isinstance(n, Element)):
        values = ", ".join([*map(toml_text, texts[name]), *(toml_mark(s.value) for s in marks[name])])
        a_limit, a_text = "a limit, better as not_detected", "a text among numbers"
        why = [f"{t}: {n:,} rows, {a_limit if t[0] in '<>' else a_text}" for t, n in texts[name].items()]
        why += [f"{s.value}: {counted(s.count, 'row')}, {s.why}" for s in marks[name]]
        yield name, values, "; ".join(why)


def _left_out(seen: Profile, chosen: Chosen) -> dict[str, str]:
    """Return the reasons by column; a vector's name stands once where all of its elements have the same one."""
    texts = {name: text for name, (text, _) in chosen.left_out.items()}
    of_vector: dict[str, set[str | None]] = {}
    for name in seen.columns:
        of_vector.setdefault(vector_name(name), set()).add(texts.get(name))
    return {vector_name(n) if of_vector[vector_name(n)] == {text} else n: text for n, text in texts.items()}
