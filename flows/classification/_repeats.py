"""Objects that two files of a release have: equal files, and identifiers that occur in both.

Each copy leaves a sketch beside the outputs: the 64-bit hashes of its identifiers, in sorted runs, 8 bytes a row.
Sketches are compared range by range of the hashes, so that memory does not grow with the release, and no file is read
again.  Where hashes collide, the identifiers themselves are read from the two copies and compared.
"""

from __future__ import annotations

import math
import os
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from itertools import islice, pairwise
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from catalogs.arrays.texts import FULL, hashed
from catalogs.arrays.values import batch_values
from catalogs.errors import brief
from catalogs.files.array_file import atomic_write_array
from catalogs.files.atomic import own_folder, sweep
from catalogs.formats import annotated_table
from flows.classification._tally import object_columns
from flows.labels.reader import label_texts
from flows.runs.outputs import Output
from flows.runs.staging import Staging
from flows.specification.specification import Specification

FOLDER = ".blr-identifiers"
RUN = 2**22
"""Most hashes in memory at a time, and in a sorted run of a sketch."""
MOST_PAIRS = 20
"""Most pairs of files whose identifiers are compared and named."""
MOST_HASHES = 64
"""Most colliding hashes of a pair of files whose identifiers are compared."""

Hashes = NDArray[np.uint64]
Pairs = dict[tuple[int, int], tuple[int, Hashes]]


def keep_sketch(
    copy: Path, output: Output, specification: Specification, out: Path, *, run: int = RUN
) -> list[Path]:
    """Write the sketch of a copy, unless it is there; return its files, none where no column names the objects.

    `run` is the most hashes in memory at a time.
    """
    folder, key = out / FOLDER, output.sha256[:16]
    if (folder / f"{key}-0000.npy").is_file():  # it is named last: the others are there
        return sorted(folder.glob(f"{key}-*.npy"))
    if not copy.is_file():
        return []
    own_folder(folder, out)
    runs: list[Path] = []
    parts: list[Hashes] = []

    def write() -> None:
        path = folder / f"{key}-{len(runs):04d}.npy.{os.getpid()}.part"
        atomic_write_array(path, np.unique(np.concatenate(parts)))
        runs.append(path)
        parts.clear()

    for _, hashes in _identifiers(copy, specification):
        parts.append(hashes)
        if sum(map(len, parts)) >= run:
            write()
    if parts:
        write()
    return [path.replace(path.with_suffix("").with_suffix("")) for path in reversed(runs)]


def _identifiers(copy: Path, specification: Specification) -> Iterator[tuple[NDArray[np.object_], Hashes]]:
    """Yield the identifiers (n,) in a copy and their hashes (n,), batch by batch; missing ones are left out."""
    column = object_columns(specification).id
    table = annotated_table(specification.output.prefix).open(copy)
    if column is None or column not in table.names:
        return
    for batch in table.batches([column]):
        names = label_texts(batch_values(batch, [column])[column])
        names = names[names != ""]
        if len(names):
            yield names, hashed(names)


def repeats(
    outputs: Sequence[Output], staging: Staging, specification: Specification, *, run: int = RUN
) -> tuple[str, ...]:
    """Return a sentence for each set of equal files, and for each pair of files with identifiers in common.

    Margins of HATS catalogues are left out: they repeat rows.  `run` is the most hashes in memory at a time.
    """
    once = [o for o in outputs if o.summary.counted]
    by_input: dict[str, list[Output]] = defaultdict(list)
    for output in sorted(once, key=lambda o: o.name):
        by_input[output.input.sha256].append(output)
    said = [
        f"{', '.join(o.name for o in same)} are copies of one file, byte for byte: each of its {same[0].n_rows:,} rows "
        f"is in the release {len(same)} times"
        for same in by_input.values()
        if len(same) > 1 and same[0].n_rows
    ]
    different = [same[0] for same in by_input.values()]
    if specification.catalog.id is None or len(different) < 2:
        return tuple(said)
    copies = [
        staged if (staged := staging.file(o.name)).is_file() else staging.out / o.name for o in different
    ]
    sketches = [
        keep_sketch(copy, o, specification, staging.out, run=run)
        for copy, o in zip(copies, different, strict=True)
    ]
    pairs = _colliding(sketches, run)
    for (a, b), (n, hashes) in islice(pairs.items(), MOST_PAIRS):
        both = _named(copies[a], hashes, specification) & _named(copies[b], hashes, specification)
        if both:
            said.append(
                f"{different[a].name} and {different[b].name} have {n:,} identifiers in common, such as "
                f"'{brief(min(both))}': these objects are in the release twice"
            )
    if len(pairs) > MOST_PAIRS:
        said.append(f"{len(pairs) - MOST_PAIRS:,} more pairs of files have identifiers in common")
    return tuple(said)


def _colliding(sketches: Sequence[Sequence[Path]], run: int) -> Pairs:
    """Return, by the places of two files, how many hashes both have, and some of these; the largest pairs first."""
    files = [(k, path) for k, paths in enumerate(sketches) for path in paths]
    total = sum(path.stat().st_size for _, path in files) // 8
    rounds = math.ceil(total / run)
    edges = [FULL * i // max(1, rounds) for i in range(rounds + 1)]
    found: Pairs = {}
    for low, high in pairwise(edges):
        parts, owners = [], []
        for k, path in files:
            kept = np.load(path, mmap_mode="r", allow_pickle=False)
            first = np.searchsorted(kept, np.uint64(low), side="left" if low == 0 else "right")
            part = np.array(kept[first : np.searchsorted(kept, np.uint64(high), side="right")])
            parts.append(part)
            owners.append(np.full(len(part), k, np.int32))
        hashes, owner = np.concatenate(parts), np.concatenate(owners)
        order = np.lexsort((owner, hashes))
        hashes, owner = hashes[order], owner[order]
        twice = np.flatnonzero((hashes[1:] == hashes[:-1]) & (owner[1:] != owner[:-1]))
        both = np.stack([owner[twice], owner[twice + 1]])
        for a, b in sorted({*map(tuple, both.T.tolist())}):
            here = hashes[twice[(both[0] == a) & (both[1] == b)]]
            n, some = found.get((a, b), (0, here[:0]))
            found[a, b] = n + len(here), np.concatenate([some, here])[:MOST_HASHES]
    return dict(sorted(found.items(), key=lambda pair: -pair[1][0]))


def _named(copy: Path, hashes: Hashes, specification: Specification) -> set[str]:
    """Return the identifiers in a copy that have one of these hashes."""
    found: set[str] = set()
    for names, of_names in _identifiers(copy, specification):
        found.update(names[np.isin(of_names, hashes)].tolist())
    return found


def sweep_sketches(out: Path, outputs: Mapping[str, Output]) -> None:
    """Remove the sketches of other copies than the outputs, and what killed runs left."""
    folder, keys = out / FOLDER, {o.sha256[:16] for o in outputs.values()}
    if folder.is_symlink() or not folder.is_dir():
        return
    sweep(folder)
    for path in folder.iterdir():
        if path.name[:16] not in keys or path.suffix == ".part":
            path.unlink(missing_ok=True)
