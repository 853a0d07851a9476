"""Two annotations of a file compared: against pandas, by row and by id, in one pass and in many."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from astropy.table import Table

from blr.decisions import Flag
from flows.classification import release_changes as difference
from flows.classification.release_changes import Annotation, compare
from flows.documents import from_document, to_document
from flows.runs.results import Difference

CLASSES = ("early", "late type")


def annotated(n: int, seed: int, ids: Any = None) -> pd.DataFrame:
    rng = np.random.default_rng(seed)
    p = rng.random(n).astype(np.float32)
    gone = rng.random(n) < 0.1
    return pd.DataFrame(
        {
            "name": [f"G{i}" for i in range(n)] if ids is None else ids,
            "blr_class": np.where(gone, "", np.where(p < 0.5, *CLASSES)),
            "blr_p_early": np.where(gone, np.nan, 1 - p).astype(np.float32),
            "blr_p_late_type": np.where(gone, np.nan, p).astype(np.float32),
            "blr_flags": np.where(gone, int(Flag.UNCLASSIFIABLE), rng.integers(0, 8, n)).astype(np.int32),
        }
    )


def written(path: Path, frame: pd.DataFrame) -> Annotation:
    if path.suffix == ".fits":
        Table.from_pandas(frame).write(path, overwrite=True)
    else:
        pq.write_table(pa.Table.from_pandas(frame, preserve_index=False), path, row_group_size=97)
    return Annotation(path, "blr_", CLASSES)


def expected(old: pd.DataFrame, new: pd.DataFrame) -> dict:
    """Return the counts of rows that are matched by position already."""
    changed = (old.blr_class.to_numpy() != new.blr_class.to_numpy()).sum()
    columns = ["blr_p_early", "blr_p_late_type"]
    moves = np.abs(old[columns].to_numpy() - new[columns].to_numpy()).max(axis=1)
    before, after = old.blr_flags.to_numpy(), new.blr_flags.to_numpy()
    return {
        "compared": len(old),
        "class_changed": changed,
        "moved": (np.nan_to_num(moves) > difference.MOVED).sum(),
        "flag_changed": (before != after).sum(),
        "flags_gained": {f.name: ((after & ~before) & int(f) > 0).sum() for f in Flag},
        "flags_lost": {f.name: ((before & ~after) & int(f) > 0).sum() for f in Flag},
    }


def counts(told: Difference) -> dict:
    return {
        k: getattr(told, k)
        for k in ("compared", "class_changed", "moved", "flag_changed", "flags_gained", "flags_lost")
    }


@pytest.mark.parametrize("suffix", [".parquet", ".fits"])
def test_by_row(tmp_path: Path, suffix: str) -> None:
    old, new = annotated(1000, 1), annotated(1000, 2)
    a, b = written(tmp_path / f"a{suffix}", old), written(tmp_path / f"b{suffix}", new)
    told = compare(a, b, id_column="name", by_row=True)
    assert told.matched_by == "row"
    assert counts(told) == expected(old, new)
    assert {(t["was"], t["now"]): t["objects"] for t in told.transitions} == {
        pair: n
        for pair, n in Counter(zip(old.blr_class, new.blr_class, strict=True)).items()
        if pair[0] != pair[1]
    }
    assert len(told.examples) == difference.MOST_EXAMPLES
    assert told.examples[0].moved == told.largest_move
    document = json.loads(json.dumps(to_document(told), allow_nan=False))
    assert from_document(Difference, document, source="a record") == told
    assert [*document["examples"][0]] == ["id", "was", "now", "moved"]


@pytest.mark.parametrize("rows_at_once", [10_000, 100])
@pytest.mark.parametrize("kind", ["text", "int64", "int32 and int64", "float"])
def test_by_id(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, rows_at_once: int, kind: str) -> None:
    monkeypatch.setattr(difference, "ROWS_AT_ONCE", rows_at_once)
    rng = np.random.default_rng(3)
    ids = rng.permutation(5000)[:1200] - 2500
    as_kind = {
        "text": (lambda x: [f"G{i}" for i in x],) * 2,
        "int64": (lambda x: x.astype(np.int64),) * 2,
        "int32 and int64": (lambda x: x.astype(np.int32), lambda x: x.astype(np.int64)),
        "float": (lambda x: x / 7,) * 2,
    }[kind]
    old = annotated(1000, 1, as_kind[0](ids[:1000]))
    new = annotated(1000, 2, as_kind[1](rng.permutation(ids[200:])))
    told = compare(
        written(tmp_path / "a.parquet", old),
        written(tmp_path / "b.parquet", new),
        id_column="name",
        by_row=False,
    )
    both = old.merge(new, on="name", suffixes=("_old", "_new"))
    columns = [c for c in old if c != "name"]
    one = both[[f"{c}_old" for c in columns]].set_axis(columns, axis=1)
    other = both[[f"{c}_new" for c in columns]].set_axis(columns, axis=1)
    assert told.matched_by == "id"
    assert counts(told) == expected(one, other)
    assert (told.appeared, told.vanished) == (200, 200)


def test_an_object_twice_is_compared_with_its_first(tmp_path: Path) -> None:
    old, new = annotated(4, 1, ["a", "b", "a", "c"]), annotated(4, 1, ["a", "b", "a", "a"])
    told = compare(
        written(tmp_path / "a.parquet", old),
        written(tmp_path / "b.parquet", new),
        id_column="name",
        by_row=False,
    )
    assert (told.compared, told.appeared, told.vanished) == (4, 0, 1)


@pytest.mark.parametrize("n", [0, 3])
def test_nothing_to_match_by(tmp_path: Path, n: int) -> None:
    a, b = written(tmp_path / "a.parquet", annotated(2, 1)), written(tmp_path / "b.parquet", annotated(n, 2))
    told = compare(a, b, id_column=None, by_row=False)
    assert (told.matched_by, told.compared, told.appeared, told.vanished) == ("nothing", 0, n, 2)
    told = compare(a, b, id_column="name", by_row=False)
    assert (told.compared + told.appeared, told.compared + told.vanished) == (n, 2)


def test_other_classes_and_another_prefix(tmp_path: Path) -> None:
    old, new = annotated(50, 1), annotated(50, 1)
    new = new.rename(columns=lambda c: c.replace("blr_", "x_")).rename(columns={"x_p_early": "x_p_E"})
    a = written(tmp_path / "a.parquet", old)
    b = Annotation(written(tmp_path / "b.parquet", new).path, "x_", ("E", "late type"))
    told = compare(a, b, id_column="name", by_row=True)
    assert (told.compared, told.moved, told.class_changed) == (50, 0, 0)
