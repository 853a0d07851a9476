"""HATS catalogues classified: from disk, from the web and from S3, the copies are catalogues that others open."""

from __future__ import annotations

import shutil
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import catalogs
from flows.runs.manifest import Manifest
from tests.catalogs import hats_samples
from tests.catalogs.web import serving
from tests.flows.conftest import SKY
from tests.flows.verbs import classify, reprocess, train
from tests.lasting import lasting_contents

SPECIFICATION = f"""{SKY.format(name="stars", feature="mag")}
[[candidate]]
basis = {{ kind = "linear" }}
[target]
paths = ["TARGET"]
"""


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with a model of stars by their magnitude, and a collection of them."""
    folder = tmp_path_factory.mktemp("stars")
    rng = np.random.default_rng(1)
    mag = rng.normal(50, 30, 200).astype(np.float32)
    kind = np.where(mag + rng.normal(0, 10, 200) > 50, "faint", "bright")
    columns = {"id": np.arange(200), "ra": mag * 2.0, "dec": mag - 50.0, "mag": mag, "kind": kind}
    pq.write_table(pa.table(columns), folder / "survey.parquet")
    (folder / "spec.toml").write_text(SPECIFICATION)
    train(folder / "spec.toml", folder / "models")
    hats_samples.write_collection(folder / "collection")
    return folder


@pytest.fixture
def work(store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    """Return what classifies the collection at some place into a folder; reports are not drawn."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("flows.classification._publishing.write_classification_report", lambda *_, **__: None)
    shutil.copytree(store / "collection", tmp_path / "collection")

    def again(target: str, out: str) -> Any:
        Path("spec.toml").write_text(SPECIFICATION.replace("TARGET", target))
        return reprocess("spec.toml", store=store / "models", out=Path(out), quiet_seconds=0)

    def once(target: str, out: str, **options: Any) -> Any:
        return classify([target], model="stars", store=store / "models", out=out, **options)

    return SimpleNamespace(classify=once, reprocess=again)


def content(out: str | Path) -> dict[str, bytes]:
    """Return the files of a copy, without what says where the input was."""
    return {k: v for k, v in lasting_contents(Path(out)).items() if k.startswith("collection/")}


def test_a_collection_on_the_web_is_the_same_as_one_here(work: SimpleNamespace) -> None:
    """Nothing is fetched where nothing has changed; else all of it is, and what has not changed is kept."""
    pytest.importorskip("aiohttp", reason="fsspec reads http with aiohttp")
    work.reprocess("collection", "here")
    assert len(content("here")) == len([p for p in Path("collection").rglob("*") if p.is_file()])
    with serving(Path(), ("collection", "tagged")) as web:
        told = work.reprocess(f"{web.url}/collection", "out")
        assert content("out") == content("here")
        assert all(file["input"].startswith(f"{web.url}/collection/") for file in told.files.values())
        web.asked.clear()
        assert work.reprocess(f"{web.url}/collection", "out").status == "nothing to do"
        assert web.bodies() == []
        changed = Path("collection/stars/dataset/Norder=1/Dir=0/Npix=45.parquet")
        magnitudes = pa.array(np.linspace(20, 80, 50, dtype=np.float32))
        pq.write_table(hats_samples.rows(range(40, 90)).set_column(4, "mag", magnitudes), changed)
        told = work.reprocess(f"{web.url}/collection", "out")
        assert {name for name, file in told.files.items() if file["to_do"]} == {changed.as_posix()}
    work.reprocess("collection", "here")
    assert content("out") == content("here")
    assert not list(Path("out").glob(".blr-[!i]*"))


def test_what_a_copy_of_a_collection_cannot_have_is_said(work: SimpleNamespace) -> None:
    """One footer cannot describe files with different columns, as those of a survey that goes on may have."""
    more = hats_samples.rows(range(40, 90)).append_column("note", pa.array(["seen"] * 50))
    pq.write_table(more, "collection/stars/dataset/Norder=1/Dir=0/Npix=45.parquet")
    told = work.classify("collection", "out")
    (said,) = (sentence for sentence in told.repeats if "_metadata" in sentence)
    assert "is left out: one footer cannot describe files with different columns" in said
    assert catalogs.open("out/collection").n_rows == 100


def test_a_collection_in_an_object_store_becomes_one_in_an_object_store(
    work: SimpleNamespace, s3: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("BLR_STAGING", "staging")
    s3.put("collection", "survey/collection", recursive=True)
    told = work.classify("s3://survey/collection", "s3://survey/out")
    work.classify("collection", "here")
    assert content(told.out) == content("here")
    (files,) = (path for path in s3.ls("survey/out") if not path.endswith(".json"))
    s3.get(f"{files}/collection", "fetched", recursive=True)
    assert catalogs.open("fetched").n_rows == catalogs.open("collection").n_rows


def test_a_file_of_a_collection_that_does_not_come_ends_the_run(work: SimpleNamespace) -> None:
    pytest.importorskip("aiohttp", reason="fsspec reads http with aiohttp")
    with serving(Path(), ("Npix=44", "404")) as web, pytest.raises(catalogs.CatalogError, match="Npix"):
        work.classify(f"{web.url}/collection", "out")
    assert Manifest.read(Path("out")) is None


@pytest.mark.filterwarnings("ignore")  # of LSDB and of what it reads with
def test_the_copy_is_strictly_valid_and_lsdb_opens_it(work: SimpleNamespace) -> None:
    """Where hats and lsdb are installed (`galaxyblr[hats]`): their own check, and their users' own reader."""
    validation = pytest.importorskip("hats.io.validation", reason="hats is not installed")
    lsdb = pytest.importorskip("lsdb", reason="lsdb is not installed")
    collection = Path(__file__).parents[3] / "shared" / "data" / "openngc" / "openngc_hats"
    if not collection.is_dir():
        pytest.skip("the catalogue that LSDB wrote is not here")
    columns = '\ncolumns = { mag = "SurfBr", id = "Name", ra = "ra_deg", dec = "dec_deg" }'
    work.reprocess(f'{collection}"]{columns}\n#["', "out")
    assert validation.is_valid_collection(Path("out/openngc_hats"), strict=True, fail_fast=False)
    catalog = lsdb.open_catalog("out/openngc_hats")
    assert len(catalog) == catalogs.open(collection).n_rows
    assert {"blr_class", "blr_p_faint", "blr_flags"} <= set(catalog.columns)
    assert len(catalog.margin) > 0
    assert "blr_class" in catalog.margin.columns
    assert catalog.hc_structure.catalog_info.extra_dict()["blr.model"].startswith("stars@")
