"""Our classifier inside LSDB's `map_partitions`: the same numbers as from our own kernel."""

import logging
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

import blr
import catalogs
from blr.classifier import Classifier
from blr.member import Member
from catalogs.arrays import batch_values
from catalogs.catalog.new_columns import NewColumn, standard_columns
from catalogs.errors import ColumnNotFoundError
from catalogs.memory.pandas_frame import annotated_frame

ROOT = Path(__file__).parents[2] / "shared" / "data" / "openngc" / "openngc_hats" / "openngc_galaxies"
READ = ["B-Mag", "J-Mag", "K-Mag", "MajAx", "MinAx"]
CLASSES = ("early", "late")
COLUMNS = tuple(
    c for c in standard_columns(CLASSES) if c.name.startswith(("blr_p_e", "blr_p_l", "blr_flags"))
)


def features(values: Mapping[str, np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
    """Return X (N, 3) and what is missing: two colours and the axis ratio."""
    b, j, k, major, minor = (values[name].astype(float) for name in READ)
    X = np.stack([b - j, j - k, minor / major], axis=1)
    return np.nan_to_num(X), np.isnan(X)


@dataclass(frozen=True)
class Compute:
    classifier: Classifier

    def __call__(self, batch: pa.RecordBatch) -> Mapping[str, Any]:
        scores = self.classifier.score(*features(batch_values(batch, READ)))
        p = scores.probability.astype(np.float32)
        return {"blr_p_early": p[:, 0], "blr_p_late": p[:, 1], "blr_flags": scores.flags.astype(np.int32)}


def trained() -> Classifier:
    """Return a classifier of OpenNGC's ellipticals against its Sc."""
    table = pa.Table.from_batches(list(catalogs.open(ROOT).batches([*READ, "Hubble"])))
    kinds = np.array([str(h or "").strip() for h in table["Hubble"].to_pylist()])
    X, missing = features(batch_values(table.combine_chunks().to_batches()[0], READ))
    rows = np.isin(kinds, ["E", "Sc"]) & ~missing.any(axis=1)
    basis = blr.fit_basis("polynomial", X[rows], rng=np.random.default_rng(1))
    q = blr.fit_evidence(
        basis(X[rows]), (kinds[rows] == "Sc").astype(int), "logistic", classes=range(2), threads=1
    )
    member = Member(basis, q, (0, 1, 2), 1.0)
    return Classifier.build([member], X[rows], missing[rows], features=("a", "b", "c"), classes=CLASSES)


@pytest.mark.filterwarnings("ignore")
def test_lsdb_and_our_kernel_give_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lsdb = pytest.importorskip("lsdb", reason="lsdb is not installed: pip install galaxyblr[hats]")
    if not ROOT.is_dir():
        pytest.skip(f"no {ROOT}: not part of the checkout")
    logging.getLogger("lsdb").setLevel(logging.ERROR)
    monkeypatch.setenv("TQDM_DISABLE", "1")
    compute = Compute(trained())
    catalogs.annotate(catalogs.open(ROOT), tmp_path, COLUMNS, compute, read=READ)
    ours = pa.Table.from_batches(list(catalogs.open(tmp_path / ROOT.name).batches(["Name", *names(COLUMNS)])))
    mapped = (
        lsdb.open_catalog(ROOT)
        .map_partitions(partial(annotated_frame, columns=COLUMNS, compute=compute, read=READ))
        .compute()
    )
    theirs = mapped.set_index("Name").loc[ours["Name"].to_pylist()]
    assert len(theirs) == len(ours) == 10_481
    for name in names(COLUMNS):
        np.testing.assert_array_equal(theirs[name].to_numpy(), ours[name].to_numpy())
    assert 0.2 < np.mean(ours["blr_p_late"].to_numpy() > 0.5) < 0.98


def names(columns: tuple[NewColumn, ...]) -> list[str]:
    return [c.name for c in columns]


def test_frames_keep_index_and_types() -> None:
    """The index may be read too; what is not there is named."""
    column = NewColumn("blr_flags", pa.int32())

    def compute(batch: pa.RecordBatch) -> Mapping[str, Any]:
        return {"blr_flags": batch.column("pixel").to_numpy().astype(np.int32)}

    frame = pd.DataFrame({"x": [1.0, 2.0]}, index=pd.Index([7, 8], name="pixel"))
    found = annotated_frame(frame, (column,), compute, ["pixel", "x"])
    assert found["blr_flags"].tolist() == [7, 8]
    assert (found.index.name, str(found["blr_flags"].dtype)) == ("pixel", "int32[pyarrow]")
    assert len(annotated_frame(frame.iloc[:0], (column,), compute, ["pixel"])) == 0
    with pytest.raises(ColumnNotFoundError, match="the frame has no column 'y'"):
        annotated_frame(frame, (column,), compute, ["y"])
