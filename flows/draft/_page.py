"""The page that `blr init` writes: a TOML file with comments that say what was found."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from itertools import islice

from blr.candidates.candidate import HELD_OUT, HELD_OUT_FROM, default_candidates
from catalogs.catalog.catalog import Catalog, Element
from catalogs.errors import brief, counted
from catalogs.formats import all_suffixes
from catalogs.profile import quality
from catalogs.profile.columns import Profile, suspected_texts
from flows.draft._bands import is_inverse_variance
from flows.draft._columns import Chosen, quoted
from flows.draft._exclusions import vector_name
from flows.draft.inspection import MOST_CLASSES, PositionSummary, StartingClasses
from flows.features.columns import flux_unit
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
        yield f"Left out, but tell of the class: {len(chosen.informative) - MOST_NAMED} more columns"
    for name, suspect in islice(chosen.suspects.items(), MOST_NAMED):
        yield f"Suspect, kept: {name}, {suspect}"
    if len(chosen.suspects) > MOST_NAMED:
        yield f"Suspects, kept: {len(chosen.suspects) - MOST_NAMED} more, which tell less"


def _named(some: Mapping[str, int]) -> str:
    shown = ", ".join(f"{brief(name)!r} {n:,}" for name, n in islice(some.items(), MOST_NAMED))
    return shown + (f", and {len(some) - MOST_NAMED} more" if len(some) > MOST_NAMED else "")


BUDGET = 0.1
MOST_SHOWN = 30
"""Labels, and further features, that are listed."""


Split = tuple[tuple[str, ...], str | None]
"""Lines of [split], and the column of catalog.id where it is that which splits."""


def split_by(
    by: str | Sequence[str], remark: str = "", *, identifier: str | None = None, order: int | None = None
) -> Split:
    """Return a split by 'id', by columns, or by pixels of an order."""
    line = f"by = {toml_text(by)}" + (f"  # {remark}" if remark else "")
    stated = f"healpix_order = {order}  # stated, so that the split stays as the catalogue grows"
    return (line,) if order is None else (line, stated), identifier


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
    if _is_target(classes, unlabelled):
        share = "Most" if unlabelled > classes.n_rows else "Some"
        yield (
            f"{share} rows have no label ({unlabelled:,}; {classes.n_rows:,} train): this file is also the "
            "[target] that training compares with the labelled rows"
        )


def _is_target(classes: StartingClasses, unlabelled: int) -> bool:
    """Say whether so many rows of the file have no label that it is to be classified."""
    return unlabelled > LEAST_OF_TARGET * classes.n_rows


def alike_groups(chosen: Chosen, classes: StartingClasses) -> dict[str, tuple[str, ...]]:
    """Return groups of classes that are alike, by name, as the spellings of their labels; rare classes stay alone."""
    known = {name for some in chosen.groups.values() for name in some}
    groups = chosen.groups | {c: [c] for c in classes.kept if chosen.groups and c not in known}
    return {name: tuple(text for c in some for text in classes.kept[c]) for name, some in groups.items()}


def page_lines(
    catalog: Catalog,
    seen: Profile,
    label: str,
    chosen: Chosen,
    classes: StartingClasses,
    split: Split,
    place: PositionSummary | None,
    other: Mapping[str, str],
    path: str,
    table: str | None,
    unlabelled: int,
) -> Iterator[str]:
    """Yield the lines of the file below its summary; `path` is the catalogue's, from the specification, or its URL."""
    name = catalog.path.name
    yield f"# Written by `blr init` from what {seen.n_rows:,} rows of {comment_text(name)} show."
    yield "# It trains as it is: `blr train` with this file.  Read it first; every choice here is a guess."
    ending = max((s for s in all_suffixes() if name.lower().endswith(s)), key=len, default="")
    stem = re.sub(r"[^A-Za-z0-9_-]+", "-", name[: len(name) - len(ending)]).strip("-_")
    yield f"name = {toml_text((stem or 'survey')[:60])}"
    yield ""
    yield "[catalog]"
    yield f"paths = [{toml_text(path)}]"
    if table is not None:
        yield f"table = {toml_text(table)}"
    lines, identifier = split
    yield from _named_columns(seen, identifier, place)
    yield from _sentinels(seen, label)
    yield ""
    yield from _label(label, classes, alike_groups(chosen, classes))
    yield "[split]"
    yield from lines
    all_train = "held_out = 0  # all labelled rows train, and judge when left out, in one fit"
    yield all_train if classes.n_rows < HELD_OUT_FROM else f"held_out = {HELD_OUT}"
    yield ""
    for name, (flux, error) in chosen.bands.items():
        yield f"[photometry.{name}]"
        yield f"flux = {toml_text(quoted(flux))}  # {flux_unit(seen.columns[flux].column.unit)}"
        if error is None:
            why = "no error of the flux was found: where the flux is not positive, there is no magnitude"
            yield f'scale = "pogson"  # {why}'
        else:
            key = "inverse_variance" if is_inverse_variance(error) else "error"
            yield f"{key} = {toml_text(quoted(error))}"
        yield ""
    yield from _features(seen, chosen, other)
    yield "[flags]"
    yield f"budget = {BUDGET}  # the least certain tenth of each file; or, by probability, low_confidence = 0.7"
    yield ""
    yield from _candidates(classes.n_rows, len(chosen.features), len(classes.kept))
    if _is_target(classes, unlabelled):
        yield ""
        yield "[target]"
        yield f"paths = [{toml_text(path)}]  # this file: {unlabelled:,} of its rows have no label"


def _named_columns(seen: Profile, identifier: str | None, place: PositionSummary | None) -> Iterator[str]:
    """Yield the columns of names and positions under [catalog]; `identifier` is the one of names that splits."""
    stated = identifier or quality.naming_column(seen) or quality.repeating_column(seen)
    for name, why in quality.suspected_identifiers(seen):
        comment = f"id = {toml_text(name)}  # {comment_text(why)}"
        yield comment if name == stated else f"# {comment}"
    if place is None:
        return
    if place.ra is None or place.dec is None:
        yield f"# The position is in {comment_text(', '.join(place.columns))}"
    else:
        mark = "" if place.unit else "# "
        yield from (f"{mark}ra = {toml_text(place.ra)}", f"{mark}dec = {toml_text(place.dec)}")
    yield from (f"# {comment_text(remark)}" for remark in place.remarks)


def _sentinels(seen: Profile, label: str) -> Iterator[str]:
    marks = {n: quality.suspected_sentinels(seen, n) for n in seen.columns if n != label}
    texts = {n: suspected_texts(seen, n) for n in seen.columns if n != label}
    marked = dict.fromkeys(n for found in (marks, texts) for n, some in found.items() if some)
    if not marked:
        return
    yield ""
    yield "[catalog.sentinels]  # numbers that look like 'no value'"
    for vector in sorted({e.vector for e in marked if isinstance(e, Element) and marks[e]}):
        elements = (e for e in marked if isinstance(e, Element) and e.vector == vector)
        those_of = [s for e in elements for s in marks[e]]
        values = ", ".join(map(toml_mark, sorted({s.value for s in those_of}, key=str)))
        yield f"{toml_text(vector)} = [{values}]  # {sum(s.count for s in those_of):,} elements"
    for name in (n for n in marked if not isinstance(n, Element)):
        values = ", ".join([*map(toml_text, texts[name]), *(toml_mark(s.value) for s in marks[name])])
        a_limit, a_text = "a limit, better as not_detected", "a text among numbers"
        why = [f"{t}: {n:,} rows, {a_limit if t[0] in '<>' else a_text}" for t, n in texts[name].items()]
        why += [f"{s.value}: {counted(s.count, 'row')}, {s.why}" for s in marks[name]]
        yield f"{toml_text(name)} = [{values}]  # {comment_text('; '.join(why))}"


def _label(label: str, classes: StartingClasses, groups: Mapping[str, tuple[str, ...]]) -> Iterator[str]:
    yield "[label]"
    yield f"column = {toml_text(label)}"
    if classes.doubtful:
        yield f"exclude = {toml_text([*classes.doubtful])}  # such rows count as rows without a label"
    yield ""
    yield "[label.classes]  # class = its spellings in the column; group them as your question needs"
    for name, spellings in classes.kept.items():
        comment = f"{sum(spellings.values()):,} rows"
        if len(spellings) > 1:
            each = ", ".join(f"{toml_text(text)} {n:,}" for text, n in spellings.items())
            comment += f" ({each}): upper and lower case alone do not make a class"
        if name != next(iter(spellings)) and classes.cut is None:
            comment += "; renamed, since its columns would have the names of other columns"
        yield f"{toml_text(name)} = {toml_text([*spellings])}  # {comment}"
    if classes.cut is not None:
        yield "# The labels are numbers in order, cut in two: '..x' is below x, 'x..' from x on, 'x..y' between."
        yield "# Move the cut, make more classes, or leave the doubtful middle out, as your question needs."
        yield "# Fractions of votes can be the targets as they are: an answer's column each under [label.votes]."
    for name, n in islice(classes.dropped.items(), MOST_SHOWN):
        yield f"# {toml_text(name)} = [{toml_text(name)}]  # left out: {n:,} rows"
    if len(classes.dropped) > MOST_SHOWN:
        yield f"# ... and {len(classes.dropped) - MOST_SHOWN} labels of fewer rows"
    if groups:
        yield "# Or groups of classes that are alike, in place of all classes above; a name is free to choose:"
        yield from (f"# {toml_text(name)} = {toml_text(some)}" for name, some in groups.items())
    if classes.doubtful:
        some = (f"{toml_text(text)} ({n:,} rows)" for text, n in islice(classes.doubtful.items(), 8))
        yield f"# In no class, since they mean doubt or 'not known': {', '.join(some)}"
    yield ""


def _features(seen: Profile, chosen: Chosen, other: Mapping[str, str]) -> Iterator[str]:
    yield "[features]"
    for name, suspect in chosen.suspects.items():
        yield f"# Suspect: {comment_text(name)}, {comment_text(suspect)}"
    for name, (expression, remark) in chosen.features.items():
        comment = f"  # {comment_text(remark)}" if remark else ""
        yield f"{toml_text(name)} = {toml_text(expression)}{comment}"
    yield ""
    yield "# Columns left out, and why:" if chosen.left_out or other else "# No column is left out."
    texts = {name: text for name, (text, _) in chosen.left_out.items()}
    of_vector: dict[str, set[str | None]] = {}
    for name in seen.columns:
        of_vector.setdefault(vector_name(name), set()).add(texts.get(name))
    # A vector's name stands once, where the reason against all of its elements is the same.
    whole = {name: vector_name(name) for name in texts}
    once = {whole[n] if of_vector[whole[n]] == {text} else n: text for n, text in texts.items()}
    for name, reason in (once | dict(other)).items():
        yield f"#   {comment_text(name)}: {comment_text(reason)}"
    yield ""


def _candidates(n_rows: int, n_features: int, n_classes: int) -> Iterator[str]:
    yield "[select]"
    yield 'by = "stack"  # a mixture that predicts left-out rows best; "evidence": the one of the highest'
    yield ""
    yield "# Each candidate is a mixture over its prior's scale and, where there are several, its widths."
    for candidate in map(Candidate.stated, default_candidates(n_rows, n_features, n_classes)):
        yield "[[candidate]]"
        basis = candidate.basis.model_dump(exclude_defaults=True, mode="json")
        yield f"basis = {{ {', '.join(f'{key} = {json.dumps(value)}' for key, value in basis.items())} }}"
        if candidate.transform != "none":
            yield f"transform = {toml_text(candidate.transform)}"
        yield ""
