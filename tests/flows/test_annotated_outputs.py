"""Three classes, all columns, every format, through the flows: slim, full, again, and where provenance goes."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from astropy.table import Table

import catalogs
from catalogs.arrays import batch_values
from catalogs.catalog.new_columns import standard_columns
from flows.classification._tally import read_census_rows
from flows.inputs.source import copy_name
from flows.runs.manifest import Manifest
from tests.catalogs.hats_samples import rows as hats_rows
from tests.catalogs.hats_samples import write_collection
from tests.flows.conftest import SKY
from tests.flows.verbs import classify, train

CLASSES = ("E", "S", "Irr")
TEXT = SKY.format(name="three", feature="mag") + 'classes = { E = ["E"], S = ["S"], Irr = ["Irr"] }\n'


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with a model of three classes, and the catalogue that it was trained on."""
    folder = tmp_path_factory.mktemp("three")
    table = hats_rows(range(400)).drop_columns(["_healpix_29", "ra", "dec"])
    rng = np.random.default_rng(2)
    kind = np.array(CLASSES)[np.clip((np.arange(400) / 34 + rng.normal(0, 1, 400)).astype(int), 0, 2)]
    table = table.append_column("kind", pa.array(kind))
    table = table.append_column("ra", pa.array(rng.uniform(0, 360, 400)))
    table = table.append_column("dec", pa.array(rng.uniform(-60, 60, 400)))
    pq.write_table(table, folder / "survey.parquet")
    (folder / "spec.toml").write_text(TEXT)
    train(folder / "spec.toml", folder / "models")
    return folder


def classified(store: Path, source: Path, out: Path, output: str) -> dict:
    spec = out.parent / f"{out.name}.toml"
    spec.write_text(f"{TEXT}[output]\n{output}\n")
    return classify([source], model="three", store=store / "models", out=out, specification=spec)


def columns_of(path: Path) -> dict[str, np.ndarray]:
    catalog = catalogs.open(path)
    (batch,) = [pa.Table.from_batches(catalog.batches(catalog.names)).combine_chunks().to_batches()[0]]
    return batch_values(batch, catalog.names)


def write(folder: Path, ending: str) -> Path:
    plain = pq.read_table(folder / "survey.parquet").slice(0, 120).drop_columns(["kind"])
    table = Table({name: plain[name].to_numpy() for name in plain.column_names})
    path = folder / f"t.{ending}"
    formats = {"fits": "fits", "vot": "votable", "ecsv": "ascii.ecsv", "csv": "csv"}
    if ending == "parquet":
        pq.write_table(plain, path)
    else:
        table.write(path, overwrite=True, format=formats[ending])
    return path


@pytest.mark.parametrize("ending", ["parquet", "fits", "vot", "ecsv", "csv"])
def test_full_columns_of_three_classes_and_again(store: Path, tmp_path: Path, ending: str) -> None:
    source = write(store, ending)
    classified(store, source, tmp_path / "one", 'columns = "full"')
    path = tmp_path / "one" / source.name
    found, names = columns_of(path), [c.name for c in standard_columns(CLASSES, columns="full")]
    assert [*found] == ["id", "mag", *names][:1] + [n for n in found if n not in ("id", *names)] + names
    p = np.stack([found[f"blr_p_{c}"] for c in CLASSES], axis=1).astype(float)
    known = np.isfinite(p[:, 0])
    assert known.any()
    assert not known.all(), "rows without any feature have none"
    np.testing.assert_allclose(p[known].sum(axis=1), 1, atol=1e-6)
    covariance = found["blr_logit_cov_E__S"][known].astype(float)
    variance = [found[f"blr_logit_cov_{c}__{c}"][known].astype(float) for c in ("E", "S")]
    assert (np.abs(covariance) <= np.sqrt(variance[0] * variance[1]) * (1 + 1e-5)).all()
    for c in CLASSES:
        low, high, mean = (found[f"blr_{k}_{c}"][known].astype(float) for k in ("low", "high", "p"))
        assert ((low <= mean + 1e-3) & (mean <= high + 1e-3)).all()
    total = sum(found[f"blr_logit_mean_{c}"][known].astype(float) for c in CLASSES)
    np.testing.assert_allclose(total, 0, atol=1e-4)

    # Annotated again: the standard columns take the place of all of these, which nobody's other column does.
    classified(store, path, tmp_path / "two", 'columns = "standard"')
    again = columns_of(tmp_path / "two" / source.name)
    standard = [c.name for c in standard_columns(CLASSES)]
    assert [n for n in again if n.startswith("blr_")] == standard
    assert np.array_equal(again["id"], found["id"])


def test_a_blank_separated_table_through_the_flow(store: Path, tmp_path: Path) -> None:
    """Its copy is ECSV, is listed as such, and is left alone by the next run."""
    source = tmp_path / "t.dat"
    Table.read(write(store, "ecsv"), format="ascii.ecsv").write(source, format="ascii.commented_header")
    first = classified(store, source, tmp_path / "out", "")
    written = (tmp_path / "out" / "t.ecsv").stat().st_mtime_ns
    assert [o.name for o in Manifest.read(tmp_path / "out").outputs] == ["t.ecsv"]
    assert catalogs.open(tmp_path / "out" / "t.ecsv").metadata["blr.model"] == first.model
    classified(store, source, tmp_path / "out", "")
    assert (tmp_path / "out" / "t.ecsv").stat().st_mtime_ns == written
    source.write_text("# id\n1 2\n")  # of a file that no longer opens, too
    assert copy_name("t.dat", None, source) == "t.ecsv"


@pytest.mark.parametrize("mode", ["slim", "annotated"])
def test_hats_through_the_flow(store: Path, tmp_path: Path, mode: str) -> None:
    root = write_collection(tmp_path / "collection")
    wanted = f'mode = "{mode}"\ncolumns = "full"\nselected = true\n[flags]\ncompleteness = {{ {CLASSES[0]} = 0.8 }}'
    told = classified(store, root, tmp_path / "out", wanted)
    assert told.summary.n_rows == 100
    out = tmp_path / "out" / "collection"
    found = columns_of(out)
    ours = [c.name for c in standard_columns(CLASSES, columns="full", selected=CLASSES[:1])]
    old = ["_healpix_29", "id", "ra", "dec", *(["mag"] if mode == "annotated" else [])]
    assert [*found] == [*old, *ours]
    assert np.array_equal(found["id"], np.arange(100) + 2**60)
    assert catalogs.open(out).format == "hats"
    assert (out / "stars" / "skymap.fits").read_bytes() == b"a map"
    assert (out / "stars" / "dataset" / "_metadata").is_file()
    text = (out / "stars" / "hats.properties").read_text()
    assert "hats_nrows=100" in text
    assert "three@" in text
    # The census is of the objects: rows of margins repeat others.
    assert told.summary.census.n_rows == told.summary.n_classified == 84
    kept = read_census_rows(tmp_path / "out", 6)
    assert sum(part[:, 0].sum() for part in kept.values()) == pytest.approx(84)
    assert len(kept) == 3
