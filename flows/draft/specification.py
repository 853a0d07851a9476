"""A first specification from a catalogue: `blr init`."""

from __future__ import annotations

import json
import os
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow.types as pt
from numpy.typing import NDArray

from blr.arrays import Floats
from blr.candidates.candidate import HELD_OUT, HELD_OUT_FROM, default_candidates
from catalogs.arrays import plain_texts
from catalogs.catalog.catalog import Catalog, Element, annotated_names
from catalogs.column_names import column_names, using, with_names_of
from catalogs.errors import brief, counted, printable
from catalogs.files import atomic_path
from catalogs.formats import TableChoice, all_suffixes
from catalogs.profile import quality, split
from catalogs.profile.columns import (
    Profile,
    as_numbers,
    profile,
    shares_of_one,
    suspected_texts,
    uneven_presence,
)
from catalogs.profile.leaks import is_number_of_votes, label_numbers
from catalogs.remote.urls import is_remote
from catalogs.sky.photometry import flux_unit
from catalogs.sky.positions import NeighbourCounter, find_position_columns, positions
from flows.documents import template
from flows.draft import _exclusions as exclusions
from flows.draft import inspection
from flows.draft._bands import is_inverse_variance
from flows.draft._columns import Chosen, choose_columns, quoted
from flows.draft.inspection import PositionSummary, StartedSpecification, StartingClasses
from flows.errors import OutputFolderError, TrainingError, UsageError
from flows.inputs.opening import opened_together
from flows.inputs.source import RemoteSource, resolve_one
from flows.labels.reader import found_leaks, without_sentinels
from flows.labels.source import RARE, LabelSource, with_labels
from flows.request import InitRequest
from flows.runs.references import check_no_secret
from flows.specification.specification import Candidate, Specification
from flows.specification.toml_file import parse_specification, toml_text

SAME_ORDER = 0.9995
"""Rank correlation from which one of two columns says nothing new: a velocity of recession and its redshift."""
MOST_COMPARED, ROWS_COMPARED, FEWEST_COMPARED = 60, 2000, 50


FEWEST = 2  # least number of sampled rows of each class on each side of the best split
MOST_TOLD = 4  # columns that an error names
FEW_OTHERS = 0.01
"""Share of the rows without a label that have a value, beside that of labelled rows, below which it came with them."""
COLUMNS_FILE = "blr-columns.toml"  # a team's names of columns, beside the specification that is written


def start_file(request: InitRequest) -> StartedSpecification:
    """Return the first specification of a catalogue, here or at a URL; it is written where the request says so."""
    out, columns = request.out, request.columns
    if out is not None and out.exists() and not request.overwrite:
        raise OutputFolderError(
            f"--out: got '{out}', which exists, expected a new file; choose another name, or add --overwrite"
        )
    folder = Path() if out is None else out.parent
    if columns is None and (folder / COLUMNS_FILE).exists():
        columns = folder / COLUMNS_FILE
    names = column_names() if columns is None else with_names_of(columns)
    source = resolve_one(request.file)
    kept, remedy = "since a specification is kept in models", "fetch the file first"
    check_no_secret([request.file], kept=kept, remedy=remedy)
    url = source.url if isinstance(source, RemoteSource) else None
    with (
        nullcontext() if out is None else atomic_path(out) as temporary,
        using(names),
        opened_together(
            source, TableChoice(request.table, () if request.labels else (request.label,))
        ) as catalog,
    ):
        join = None if request.labels is None else _join(catalog, request.label, request.labels, folder)
        start = starting_specification(
            catalog,
            request.label,
            folder=folder,
            limit=request.limit,
            table=request.table,
            url=url,
            join=join,
        )
        if temporary is not None:
            temporary.write_text(start.text, encoding="utf-8")
    start = replace(start, columns_file=str(columns) if columns else None)
    return start if out is None else replace(start, status="written", path=str(out))


def _join(catalog: Catalog, label: str, labels: str, folder: Path) -> Specification:
    """Return how the labels of another file are joined: by the column that names its objects, or by position.

    Of the specification what joins is read alone: its feature is any column.
    """
    check_no_secret([labels], kept="since a specification is kept in models", remedy="fetch the file first")
    with opened_together(resolve_one(labels), TableChoice(None, (label,))) as table:
        inspection.check_label(table, label)
        seen = profile(table)
        theirs = quality.naming_column(seen) or quality.repeating_column(seen)
        ours = next((name for name in catalog.names if theirs and name.lower() == theirs.lower()), None)
        there, here = find_position_columns(table), find_position_columns(catalog)
    if ours is not None:
        keys = {"id": (theirs, ours)}
    elif there is not None and here is not None:
        keys = {"ra": (there[0], here[0]), "dec": (there[1], here[1])}
    else:
        its = f"its column of names, '{theirs}'," if theirs else "a column that names its objects,"
        raise UsageError(
            f"--labels: got '{labels}', expected {its} in {catalog.path} too, or positions in both; rename the column, "
            "or write under [label] of your own specification: table = { path = 'labels.fits', id = 'name' }"
        )
    path = labels if is_remote(labels) else _relative(Path(labels), folder)
    tree = {
        "name": "join",
        "base_folder": str(folder),
        "catalog": {"paths": [str(catalog.path)], **{key: ours for key, (_, ours) in keys.items()}},
        "label": {"column": label, "table": {"path": path, **{key: its for key, (its, _) in keys.items()}}},
        "features": {"any": quoted(catalog.names[0])},
        "split": {"by": "id" if "id" in keys else "healpix"},
    }
    return Specification.model_validate(tree)


def _relative(path: Path, folder: Path) -> str:
    """Return a path as a specification in `folder` has it."""
    return Path(os.path.relpath(path.resolve(), folder.resolve())).as_posix()


def starting_specification(
    catalog: Catalog,
    label: str,
    *,
    folder: Path,
    limit: int | None = None,
    table: str | None = None,
    url: str | None = None,
    join: Specification | None = None,
) -> StartedSpecification:
    """Return a specification that lies in `folder`, for the classes in the column `label`.

    `table` was asked for, of several in the file; `url` is where the catalogue is, if it is not here; `join` says how
    the labels were joined, if they are from another file.
    """
    source = LabelSource(label)
    if join is not None:
        catalog, source = with_labels(catalog, join)
    inspection.check_label(catalog, label)
    if catalog.n_rows == 0:
        raise TrainingError(f"{catalog.path} has no rows, expected labelled objects; name another file")
    seen, counts = inspection.seen_profile(catalog, label, limit=limit)
    source.require_match()
    texts = plain_texts(seen.chosen[label])
    place = inspection.described_positions(catalog, seen)
    classes = _enough(inspection.starting_classes(counts), counts, label)
    by, classes = _split(seen, label, classes.named(texts), place, classes)
    named = None if join is None else join.catalog.id
    if named is not None and by.identifier not in (None, named):  # catalog.id is what joins the labels
        by = by._replace(by=by.identifier, identifier=None)
    classes = _enough(classes, counts, label)
    chosen = choose_columns(seen, _evidence(catalog, seen, label, classes.named(texts)))
    if chosen.bare:
        # What has no feature cannot be classified: the classes of such objects are left out.
        classes = _enough(classes.without(chosen.bare, bare=True), counts, label)
        chosen = choose_columns(seen, _evidence(catalog, seen, label, classes.named(texts)))
    notes = {}
    for c in catalog.columns:
        if c.name not in seen.columns and f"{c.name}[0]" not in seen.columns:
            vector = pt.is_fixed_size_list(c.datatype) or pt.is_list(c.datatype)
            remedy = f"an element is written {quoted(c.name)}[0]" if vector else "no number of the object"
            notes[c.name] = f"holds {c.datatype}: {remedy}"
    left_out = {name: text for name, (text, _) in chosen.left_out.items()}
    if not chosen.features:
        why = [f"'{brief(name)}': {brief(reason)}" for name, reason in (left_out | notes).items()]
        shown = "; ".join(why[:MOST_TOLD]) + "; ..." * (len(why) > MOST_TOLD)
        raise TrainingError(
            f"got no column of {catalog.path} that could be a feature ({shown or 'the label is its only column'}), "
            "expected numbers that carry information but do not give the class away; convert texts to numbers, write "
            "[features] of your own, or name the table with the measurements, and this one with --labels"
        )
    unlabelled = counts[""] + sum(classes.doubtful.values())
    path = url or _relative(catalog.path, folder)
    more = {"path": path, "table": table, "place": place, "unlabelled": unlabelled, "join": join}
    summary, text = _written(catalog, seen, label, chosen, classes, by, notes, more)
    parse_specification(text, source="the specification that `blr init` wrote")
    return StartedSpecification(
        status="printed",
        path=None,
        columns_file=None,
        text=text,
        classes=classes.rows,
        groups=_alike_groups(chosen, classes),
        features={name: expression for name, (expression, _) in chosen.features.items()},
        left_out=left_out,
        suspects=chosen.suspects,
        summary=summary,
    )


def _enough(classes: StartingClasses, counts: Mapping[str, int], label: str) -> StartingClasses:
    if len(classes.kept) < 2:
        some = ((t, n) for t, n in Counter(counts).most_common() if t and t not in classes.doubtful)
        shown = ", ".join(f"{brief(text)!r} ({n})" for text, n in islice(some, 6)) or "none"
        rows, longest = inspection.fewest_rows(counts), inspection.LONGEST_NAME
        raise TrainingError(
            f"--label: got '{label}' with the labels {shown}, expected at least two of them with {rows} "
            f"rows or more, printable and of {longest} letters at most; choose the column of the class, or name "
            'the classes in your own specification, as classes = { name = ["label"] } under [label]'
        )
    return classes


def _evidence(catalog: Catalog, seen: Profile, label: str, labels: Any) -> exclusions.Evidence:
    leaks, gains = found_leaks(catalog, seen, label, labels)
    others = ((name, c) for name, c in seen.columns.items() if name != label)
    numbers = [name for name, c in others if c.is_number or suspected_texts(seen, name)]
    rows = {name: as_numbers(without_sentinels(seen, name))[labels != ""] for name in numbers}
    numbered = label_numbers(seen.chosen[label][labels != ""])
    evidence = exclusions.Evidence(
        label=label,
        rows=rows,
        classes=labels[labels != ""],
        identifiers=[name for name, _ in quality.suspected_identifiers(seen)],
        ours=annotated_names(catalog.metadata),
        alone={leak.columns[0]: leak for leak in leaks if len(leak.columns) == 1},
        derived=inspection.leaking_column(leaks),
        gains=gains,
        presence=uneven_presence(rows, labels[labels != ""]),
        with_label=_of_labelled_rows(seen, label, numbers),
        shares=shares_of_one(rows),
        totals={name for name in numbers if is_number_of_votes(rows[name], numbered)},
        duplicates={name: group[0] for group in seen.duplicate_columns() for name in group[1:]},
        on_the_sky=exclusions.on_the_sky(seen),
    )
    against = {
        name: exclusions.reason_against(seen, name, evidence) for name in seen.columns if name != label
    }
    usable = [name for name in numbers if against[name] is None]
    # Magnitudes first, so that fluxes are copies of them.
    usable.sort(key=lambda name: not quality.about_a_magnitude(seen.columns[name].column))
    # A column that orders the rows as an earlier one does, which has values in nearly all of its rows.
    distinct: dict[str, Floats] = {}
    for name in usable[:MOST_COMPARED]:
        mine = rows[name][:ROWS_COMPARED]
        fewest = max(FEWEST_COMPARED, 0.9 * np.isfinite(mine).sum())
        order = {other: exclusions.same_order(mine, theirs, fewest) for other, theirs in distinct.items()}
        found = (other for other, alike in order.items() if alike > SAME_ORDER)
        if (copied := next(found, None)) is None:
            distinct[name] = mine
        else:
            against[name] = exclusions.reason_against_copy(seen, name, copied)
    return replace(evidence, against=against)


def _of_labelled_rows(seen: Profile, label: str, numbers: Sequence[str]) -> set[str]:
    """Return the columns that hardly any row without a label has, in a file of many such rows."""
    known, every = plain_texts(seen.sample[label]) != "", replace(seen, chosen=seen.sample)
    if not (~known).sum() > LEAST_OF_TARGET * known.sum():
        return set()
    present = {name: np.isfinite(as_numbers(without_sentinels(every, name))) for name in numbers}
    return {name for name, x in present.items() if x[~known].mean() < FEW_OTHERS * x[known].mean()}


def _split(
    seen: Profile, label: str, labels: Any, place: PositionSummary | None, classes: StartingClasses
) -> tuple[Split, StartingClasses]:
    """Return a split that leaves rows of each class on both sides, and the classes that it does so for."""
    tried: list[tuple[int, Split, set[str]]] = []
    for option, keys in _options(seen, label, place):
        untaught: set[str] = set()
        if classes.n_rows < HELD_OUT_FROM:  # none is held out
            # Of a class whose rows are all in one group, a fit without it would know nothing.
            n_missed = sum(len({*keys[labels == name]}) < 2 for name in classes.kept)
        else:
            held_out = split.held_out_keys(keys, HELD_OUT)
            held, taught = (Counter(labels[side].tolist()) for side in (held_out, ~held_out))
            n_missed = sum(min(held[name], taught[name]) < FEWEST for name in classes.kept)
            untaught = {n for n in classes.kept if not taught[n] or (not held[n] and taught[n] >= RARE)}
        tried.append((n_missed, option, untaught))
        if not n_missed:
            break
    _, option, untaught = min(tried, key=lambda one: one[0])
    return option, classes.without(untaught)


MOST_OF_SPLIT = 4  # columns whose values together tell rows apart, where no column names the objects
TOLD_APART = 0.9
"""Share of the rows that differ from each other in these columns, from which there are enough of them."""


class Split(NamedTuple):
    """What [split] says: by 'id', by columns, or by pixels of an order; `identifier` is catalog.id if that splits."""

    by: str | Sequence[str]
    remark: str = ""
    identifier: str | None = None
    order: int | None = None


Way = tuple[Split, NDArray[np.uint64]]
"""A way to split, and the keys (n,) of the chosen rows that it goes by."""


def _options(seen: Profile, label: str, place: PositionSummary | None) -> Iterator[Way]:
    """Yield the ways to split, the best first."""
    ways: list[Way] = []
    few_places: list[Way] = []
    repeating, named = quality.repeating_column(seen), quality.naming_column(seen)
    if repeating is not None and repeating != label:
        distinct, known = seen.columns[repeating].distinct.estimate, seen.columns[repeating].distinct.n
        remark = f"{distinct:,} values in {known:,} rows: repeats of an object stay together"
        # by = "id" means catalog.id, whatever the columns are called
        is_id = named is None or repeating == "id"
        by = Split("id", remark, repeating) if is_id else Split(repeating, remark)
        ways.append((by, split.name_keys([seen.chosen[repeating]])))
    if named is not None:
        ways.append((Split("id", identifier=named), split.name_keys([seen.chosen[named]])))
    if place is not None and place.unit and place.ra and place.dec:
        sky = positions(seen.chosen[place.ra], seen.chosen[place.dec], place.unit)
        neighbours = NeighbourCounter()
        neighbours.add(sky.ra, sky.dec)
        shared = named is not None and neighbours.near_another > quality.FEW_REPEATS * len(sky.ra)
        why = "rows share a place" if shared else "no column names the objects"
        pixels = split.healpix_pixels(sky.ra, sky.dec, order=split.FINEST_ORDER)
        order, shares = split.split_by_pixels(pixels, HELD_OUT)
        by = Split("healpix", f"{why}, so neighbours on the sky stay together", order=order)
        found = ways if split.is_about(shares[order], HELD_OUT) else few_places
        # Names of rows that share a place tell no objects apart.
        found.insert(len(found) - shared, (by, split.healpix_keys(pixels, order)))
    yield from ways
    others = [c for c in seen.columns.values() if c.name != label and not isinstance(c.name, Element)]
    if not others and not ways and not few_places:
        raise TrainingError(
            "got no column with one number or text in each row beside the label, expected columns that describe the "
            "objects; name the catalogue that has them, and join these labels to it: table = { ... } under [label]"
        )
    if others:
        remark = "of many values" if ways else "no column names the objects, and none says where they are"
        names: list[str] = []
        keys = np.empty(0, np.uint64)
        for column in sorted(others, key=lambda c: -c.distinct.estimate)[:MOST_OF_SPLIT]:
            names.append(column.name)
            keys = split.name_keys([seen.chosen[name] for name in names])
            if len(np.unique(keys)) >= TOLD_APART * len(keys):
                break
        yield Split(names[0] if len(names) == 1 else names, remark), keys
    yield from few_places


# The text of the file: TOML with comments that say what was found.


def _toml_mark(value: float | str) -> str:
    """Return a mark of a missing value as TOML has it."""
    return toml_text(value) if isinstance(value, str) else repr(value)


MOST_NAMED = 6  # labels that a line names, and suspects
LEAST_OF_TARGET = 0.5  # rows without a label for each labelled row, from which a file is the target too


def _alike_groups(chosen: Chosen, classes: StartingClasses) -> dict[str, tuple[str, ...]]:
    """Return groups of classes that are alike, by name, as the spellings of their labels; rare classes stay alone."""
    known = {name for some in chosen.groups.values() for name in some}
    groups = chosen.groups | {c: [c] for c in classes.kept if chosen.groups and c not in known}
    return {name: tuple(text for c in some for text in classes.kept[c]) for name, some in groups.items()}


def _written(
    catalog: Catalog,
    seen: Profile,
    label: str,
    chosen: Chosen,
    classes: StartingClasses,
    split: Split,
    other: Mapping[str, str],
    more: Mapping[str, Any],
) -> tuple[tuple[str, ...], str]:
    """Return the summary of what is left out and what is suspect, and the text of the file, which begins with it.

    `other` are columns of which no number a row can be taken.  `more` are further values of the templates, by their
    names there: the `path` or URL of the catalogue, its `table`, the `place`, the number of `unlabelled` rows, and the
    `join` of labels from another file.
    """
    join = more["join"]
    joined = {join.catalog.id: "the labels are joined by it"} if join and join.catalog.id else {}
    name, n_rows, dropped = catalog.path.name, classes.n_rows, classes.dropped
    ending = max((s for s in all_suffixes() if name.lower().endswith(s)), key=len, default="")
    stem = re.sub(r"[^A-Za-z0-9_-]+", "-", name[: len(name) - len(ending)]).strip("-_")
    bare = {text: n for text, n in dropped.items() if text in classes.bare}
    many = (
        f": a first training takes the {inspection.MOST_CLASSES} most frequent; [label.classes] can have 100"
    )
    kinds = Counter(kind for _, kind in chosen.left_out.values()) + Counter({"no number a row": len(other)})
    candidates = map(Candidate.stated, default_candidates(n_rows, len(chosen.features), len(classes.kept)))
    about = {
        "file": name,
        "name": (stem or "survey")[:60],
        "seen": seen,
        "label": label,
        "chosen": chosen,
        "classes": classes,
        "split": split,
        "most": MOST_NAMED,
        "labels_left_out": (
            (
                "",
                {text: n for text, n in dropped.items() if text not in bare},
                many * (len(classes.kept) == inspection.MOST_CLASSES),
            ),
            ("", bare, ": hardly any of these rows has a feature"),
            (" of doubt", classes.doubtful, ""),
        ),
        "n_labelled": n_rows + sum(dropped.values()) + sum(classes.doubtful.values()),
        "kinds": kinds.most_common(),
        "n_columns": sum(c != label for c in seen.columns) + len(other),
        "identifiers": {**joined, **dict(quality.suspected_identifiers(seen))}.items(),
        "identifier": next(iter(joined), split.identifier)
        or quality.naming_column(seen)
        or quality.repeating_column(seen),
        "sentinels": [*_sentinels(seen, label)],
        "groups": _alike_groups(chosen, classes),
        "held_out": 0 if n_rows < HELD_OUT_FROM else HELD_OUT,
        "left_out": _left_out(seen, chosen) | dict(other),
        "candidates": [
            (c.basis.model_dump(exclude_defaults=True, mode="json"), c.transform) for c in candidates
        ],
        "is_target": more["unlabelled"] > LEAST_OF_TARGET * n_rows,
        **more,
    }
    filters = {"line": printable, "toml": toml_text, "json": json.dumps, "quoted": quoted, "spelt": _spelt}
    filters |= {"brief": lambda text: repr(brief(text)), "flux_unit": lambda unit: str(flux_unit(unit))}
    filters |= {"error_key": lambda error: "inverse_variance" if is_inverse_variance(error) else "error"}
    summary = template("specification-summary.txt.j2", **filters).render(about).splitlines()
    return tuple(summary), template("specification.toml.j2", **filters).render(about, summary=summary)


def _spelt(spellings: Mapping[str, int]) -> str:
    """Return what is said of several spellings of a class."""
    each = ", ".join(f"{toml_text(text)} {n:,}" for text, n in spellings.items())
    return f" ({each}): upper and lower case alone do not make a class" if len(spellings) > 1 else ""


def _sentinels(seen: Profile, label: str) -> Iterator[tuple[str, str, str]]:
    """Yield the columns with marks of missing values, the marks as TOML has them, and what was seen of them."""
    marks = {n: quality.suspected_sentinels(seen, n) for n in seen.columns if n != label}
    texts = {n: suspected_texts(seen, n) for n in seen.columns if n != label}
    marked = dict.fromkeys(n for found in (marks, texts) for n, some in found.items() if some)
    for vector in sorted({e.vector for e in marked if isinstance(e, Element) and marks[e]}):
        elements = (e for e in marked if isinstance(e, Element) and e.vector == vector)
        those_of = [s for e in elements for s in marks[e]]
        values = ", ".join(map(_toml_mark, sorted({s.value for s in those_of}, key=str)))
        yield vector, values, f"{sum(s.count for s in those_of):,} elements"
    for name in (n for n in marked if not isinstance(n, Element)):
        values = ", ".join([*map(toml_text, texts[name]), *(_toml_mark(s.value) for s in marks[name])])
        a_limit, a_text = "a limit, better as not_detected", "a text among numbers"
        why = [f"{t}: {n:,} rows, {a_limit if t[0] in '<>' else a_text}" for t, n in texts[name].items()]
        why += [f"{s.value}: {counted(s.count, 'row')}, {s.why}" for s in marks[name]]
        yield name, values, "; ".join(why)


def _left_out(seen: Profile, chosen: Chosen) -> dict[str, str]:
    """Return the reasons by column; a vector's name stands once where all of its elements have the same one."""
    texts = {name: text for name, (text, _) in chosen.left_out.items()}
    of_vector: dict[str, set[str | None]] = {}
    for name in seen.columns:
        of_vector.setdefault(exclusions.vector_name(name), set()).add(texts.get(name))
    whole = {name: exclusions.vector_name(name) for name in texts}
    return {whole[n] if of_vector[whole[n]] == {text} else n: text for n, text in texts.items()}
