"""HATS: layouts read, annotated as a whole and partition by partition, damaged, written, and opened by others."""

from __future__ import annotations

import logging
import re
import shutil
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.dataset
import pyarrow.parquet as pq
import pytest

import catalogs
from catalogs import hats
from catalogs.catalog.catalog import Catalog
from catalogs.catalog.new_columns import Provenance, standard_columns
from catalogs.errors import CatalogError, DamagedFileError, FormatError, OutputExistsError
from catalogs.fits.healpix import centres
from catalogs.hats import parsed, updated, value_of, write_hats
from catalogs.writing import annotate, finish
from tests.catalogs.hats_samples import MARGIN, PIXELS, N, write_collection, write_table

COLUMNS = standard_columns(["early", "late"])
PROVENANCE = Provenance({"model": "m@1", "model_id": "7"})
SHARED = Path(__file__).parents[4] / "shared" / "data"
REAL = [
    *(f"hats_small_sky/{name}" for name in ("small_sky", "small_sky_nested", "small_sky_npix_alt_suffix")),
    *(f"hats_small_sky/{name}" for name in ("small_sky_npix_as_dir", "small_sky_o1_collection")),
    *(f"hats_small_sky/{name}" for name in ("small_sky_source", "square_map")),
    "openngc/openngc_hats",
    "openngc/openngc_hats/openngc_galaxies",
    "openngc/openngc_hats/openngc_galaxies_5arcs",
]


def compute(batch: pa.RecordBatch) -> Mapping[str, Any]:
    """Compute from the first column, so that a value in the wrong row shows."""
    first = batch.column(0)
    seed = np.array([hash(v) % 1000 for v in first.to_pylist()])
    return {
        c.name: np.array(["early", "late"])[seed % 2]
        if pa.types.is_string(c.datatype)
        else seed.astype(c.datatype.to_pandas_dtype())
        for c in COLUMNS
    }


def annotated(cat: Catalog, out: Path, **options: Any) -> Path:
    annotate(cat, out, COLUMNS, compute, read=["_healpix_29"], provenance=PROVENANCE, **options)
    return out / cat.path.name


def tree(root: Path) -> dict[str, bytes]:
    return {p.relative_to(root).as_posix(): p.read_bytes() for p in sorted(root.rglob("*")) if p.is_file()}


def rows(cat: Catalog) -> pa.Table:
    return pa.Table.from_batches(list(cat.batches(cat.names)))


@pytest.fixture
def collection(tmp_path: Path) -> Path:
    return write_collection(tmp_path / "in" / "collection")


@pytest.fixture(params=REAL)
def real(request: pytest.FixtureRequest) -> Path:
    path = SHARED / request.param
    if not path.is_dir():
        pytest.skip(f"no {path}: not part of the checkout")
    return path


@pytest.mark.parametrize(
    "name", ["collection.properties", "stars/properties", "stars/hats.properties", "stars"]
)
def test_a_table_or_a_file_of_properties_may_be_named(collection: Path, name: str) -> None:
    cat = catalogs.open(collection / name)
    assert (cat.format, cat.n_rows) == ("hats", N)


@pytest.mark.parametrize("suffix", [".parquet", ".parq", ".snappy.parquet", "/"])
def test_suffixes_and_folders_as_pixels(tmp_path: Path, suffix: str) -> None:
    root = write_table(tmp_path / "in" / "stars", PIXELS, suffix=suffix)
    new = annotated(hats.open(root), tmp_path / "out")
    assert tree(new).keys() == tree(root).keys()
    old = rows(hats.open(root))
    assert str(rows(hats.open(new)).select(old.column_names).to_pydict()) == str(old.to_pydict())


def test_a_margin_alone_has_rows_that_do_not_count(collection: Path) -> None:
    cat = hats.open(collection / "stars_7200arcs")
    assert cat.n_rows == 0
    assert list(cat.batches(["id"])) == []
    assert pa.Table.from_batches(list(cat.partitions[0].batches(["id"]))).num_rows == 2


def test_all_of_a_collection_is_annotated_or_kept(collection: Path, tmp_path: Path) -> None:
    """The same files; rows, margins and schemas with the new columns, maps and index to the byte."""
    new = annotated(hats.open(collection), tmp_path / "out")
    old_tree, new_tree = tree(collection), tree(new)
    assert old_tree.keys() == new_tree.keys()
    same = {name for name in old_tree if old_tree[name] == new_tree[name]}
    maps = {"stars/skymap.fits", "stars/point_map.fits", "stars/partition_info.csv"}
    assert same == maps | {"stars_7200arcs/partition_info.csv", "stars_id_index/properties"}
    old, cat = hats.open(collection), hats.open(new)
    assert cat.names == (*old.names, *(c.name for c in COLUMNS))
    assert str(rows(cat).select(old.names).to_pydict()) == str(rows(old).to_pydict())  # NaN is NaN
    whole = rows(cat)
    by_id = dict(zip(whole["id"].to_pylist(), whole["blr_flags"].to_pylist(), strict=True))
    for margin in (p for p in cat.partitions if not p.counted):
        for batch in margin.batches(["id", "blr_flags"]):
            assert [by_id[i] for i in batch["id"].to_pylist()] == batch["blr_flags"].to_pylist()


def test_schemas_and_footers_are_those_of_the_files(collection: Path, tmp_path: Path) -> None:
    new = annotated(hats.open(collection), tmp_path / "out")
    for name, pixels in (("stars", PIXELS), ("stars_7200arcs", MARGIN)):
        dataset = new / name / "dataset"
        merged = pq.read_metadata(dataset / "_metadata")
        assert merged.num_rows == sum(map(len, pixels.values()))
        for i in range(merged.num_row_groups):
            group = merged.row_group(i)
            file = pq.read_metadata(dataset / group.column(0).file_path).row_group(0)
            assert (
                group.column(group.num_columns - 1).data_page_offset
                == file.column(file.num_columns - 1).data_page_offset
            )
        schema = pq.read_schema(dataset / "_common_metadata")
        assert schema.names[-len(COLUMNS) :] == [c.name for c in COLUMNS]
        assert schema.field("blr_p_early").metadata[b"ucd"] == b"stat.probability;src.class"
        assert schema.metadata[b"blr.model"] == b"m@1"


def test_partition_by_partition_and_finish_give_the_same(collection: Path, tmp_path: Path) -> None:
    """As flows do it, on several machines or after an interruption."""
    cat = hats.open(collection)
    whole = annotated(cat, tmp_path / "whole")
    for partition in reversed(cat.partitions):
        annotated(replace(cat, partitions=(partition,)), tmp_path / "parts")
    assert not (tmp_path / "parts" / "collection" / "collection.properties").exists()
    for _ in range(2):
        finish(cat, tmp_path / "parts", COLUMNS, provenance=PROVENANCE)
    assert tree(tmp_path / "parts" / "collection") == tree(whole)


def test_annotating_again_gives_the_same_bytes(collection: Path, tmp_path: Path) -> None:
    first = annotated(hats.open(collection), tmp_path / "one")
    again = annotated(hats.open(first), tmp_path / "two")
    assert tree(again) == tree(first)


def test_a_slim_copy_is_a_catalogue_of_hats(collection: Path, tmp_path: Path) -> None:
    """Position and pixel are kept though nobody named them."""
    new = annotated(hats.open(collection), tmp_path / "slim", mode="slim", keep=("id",))
    cat = hats.open(new)
    assert set(cat.names) == {"id", "ra", "dec", "_healpix_29", *(c.name for c in COLUMNS)}
    assert cat.n_rows == N
    assert set(pq.read_schema(new / "stars" / "dataset" / "_common_metadata").names) == set(cat.names)


def test_a_slim_copy_keeps_what_the_properties_of_a_margin_name(collection: Path, tmp_path: Path) -> None:
    properties = collection / "stars" / "properties"
    text = properties.read_text()
    assert "hats_col_ra" in text
    properties.write_text(re.sub("hats_col_(ra|dec|healpix)=.*\n", "", text))
    new = annotated(hats.open(collection), tmp_path / "slim", mode="slim", keep=("id",))
    assert {"ra", "dec", "_healpix_29"} <= set(hats.open(new).names)


def test_nothing_is_left_of_a_failure(collection: Path, tmp_path: Path) -> None:
    calls = iter(range(3))

    def fail_later(batch: pa.RecordBatch) -> Mapping[str, Any]:
        if next(calls) == 2:
            raise RuntimeError("third")
        return compute(batch)

    with pytest.raises(RuntimeError, match="third"):
        annotate(hats.open(collection), tmp_path / "out", COLUMNS, fail_later, read=["id"], threads=1)
    assert list((tmp_path / "out").iterdir()) == []


def test_what_is_there_is_replaced_only_if_it_is_such_a_catalogue(collection: Path, tmp_path: Path) -> None:
    cat = hats.open(collection)
    first = tree(annotated(cat, tmp_path / "out"))
    with pytest.raises(OutputExistsError, match=r"exists already; choose another output folder, or ask to"):
        annotated(cat, tmp_path / "out")
    (tmp_path / "out" / "collection" / "stars" / "skymap.fits").unlink()
    assert tree(annotated(cat, tmp_path / "out", overwrite=True)) == first
    assert [p.name for p in (tmp_path / "out").iterdir()] == ["collection"]
    (tmp_path / "other" / "collection").mkdir(parents=True)
    (tmp_path / "other" / "collection" / "thesis.tex").write_text("years of work")
    with pytest.raises(OutputExistsError, match="is something else"):
        annotated(cat, tmp_path / "other", overwrite=True)
    with pytest.raises(CatalogError, match="replaced by its own annotated copy"):
        annotated(cat, collection.parent, overwrite=True)


def edit(path: Path, old: str, new: str) -> None:
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new))


STARS = Path("stars", "dataset", "Norder=1", "Dir=0")
DAMAGES: dict[str, Callable[[Path], Any]] = {
    "file": lambda c: (c / STARS / "Npix=45.parquet").unlink(),
    "extra": lambda c: shutil.copy(c / STARS / "Npix=45.parquet", c / STARS / "Npix=46.parquet"),
    "count": lambda c: edit(c / "stars" / "hats.properties", "hats_nrows=100", "hats_nrows=1000"),
    "list": lambda c: (c / "stars" / "partition_info.csv").write_text("Norder,Npix\n1,many\n"),
    "margin": lambda c: shutil.rmtree(c / "stars_7200arcs"),
    "kind": lambda c: edit(c / "stars" / "hats.properties", "=object", "=index"),
    "primary": lambda c: (c / "collection.properties").write_text("obs_collection=stars\n"),
    "outside": lambda c: edit(c / "collection.properties", "url=stars", "url=.."),
    "binary": lambda c: (c / "stars" / "hats.properties").write_bytes(bytes(range(256))),
    "columns": lambda c: pq.write_table(
        pq.read_table(c / STARS / "Npix=45.parquet", partitioning=None).cast(
            pq.read_schema(c / STARS / "Npix=45.parquet").remove(4).append(pa.field("mag", pa.string()))
        ),
        c / STARS / "Npix=45.parquet",
    ),
}


WHY = {
    "file": r"lists 3 pixels, 1 of them without a file, the first Norder=1 Npix=45",
    "extra": r"lists 3 pixels, but not 1 of the files, the first Norder=1 Npix=46",
    "count": r"hats_nrows says 1,000 rows, its files have 100; fetch",
    "list": r"does not list pixels",
    "margin": r"names the table 'stars_7200arcs', expected a folder of that name.*; fetch it too",
    "kind": r"dataproduct_type is 'index', expected one of object",
    "primary": r"names no hats_primary_table_url",
    "outside": r"names the table '\.\.', expected a folder",
    "binary": r"is not a properties file of HATS",
    "columns": r"Npix=45.parquet cannot be read as one catalogue: 'mag' is float in the first and string",
}


@pytest.mark.parametrize("what", DAMAGES)
def test_what_is_not_whole_is_refused(collection: Path, what: str) -> None:
    DAMAGES[what](collection)
    error = DamagedFileError if what in {"file", "extra", "count", "list"} else FormatError
    with pytest.raises(error, match=WHY[what]):
        hats.open(collection)


def test_a_table_name_is_refused(collection: Path) -> None:
    with pytest.raises(FormatError, match=r"got table='stars' .*open the folder of the other table"):
        hats.open(collection, "stars")


def test_properties_keep_what_is_not_changed() -> None:
    """Comments, order, odd separators, continued lines and escapes."""
    text = "# a comment\n! another\nkey = value\na:b\nlong=one \\\n  two\nempty=\nuni=\\u00e9t\\u00e9\nkey=last\n"
    properties = parsed(text)
    assert updated(properties, {}) == text
    expected = {"key": "last", "a": "b", "long": "one two", "empty": "", "uni": "été", "absent": ""}
    assert {key: value_of(properties, key) for key in expected} == expected
    changed = updated(properties, {"a": "c", "long": None, "new": "x"})
    assert changed == text.replace("a:b", "a=c").replace("long=one \\\n  two\n", "") + "new=x\n"


def test_real_catalogues_lose_nothing(real: Path, tmp_path: Path) -> None:
    """Every old column of every partition equal, every other file there, valid as `hats` sees it."""
    old = catalogs.open(real)
    new = annotated(old, tmp_path / "out") if "_healpix_29" in old.names else None
    assert new is not None
    cat = hats.open(new)
    assert tree(new).keys() == tree(real).keys()
    assert (cat.n_rows, len(cat.partitions)) == (old.n_rows, len(old.partitions))
    for a, b in zip(old.partitions, cat.partitions, strict=True):
        before, after = pq.ParquetFile(a.path).read(), pq.ParquetFile(b.path).read()
        assert str(after.select(before.column_names).to_pydict()) == str(before.to_pydict())
        batches = before.select(["_healpix_29"]).combine_chunks().to_batches()
        expected = compute(batches[0]) if len(before) else {}
        for name, values in expected.items():
            assert after[name].to_pylist() == values.tolist()


@pytest.fixture
def quiet(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Keep what other packages say of themselves out of the way."""
    logging.disable(logging.WARNING)
    monkeypatch.setenv("TQDM_DISABLE", "1")
    yield
    logging.disable(logging.NOTSET)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.usefixtures("quiet")
def test_hats_takes_them_for_valid(real: Path, tmp_path: Path) -> None:
    validation = pytest.importorskip("hats.io.validation", reason="hats is not installed")
    cat = catalogs.open(real)
    assert validation.is_valid_catalog(
        annotated(cat, tmp_path / "out"), strict=True
    ) == validation.is_valid_catalog(real, strict=True)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.usefixtures("quiet")
@pytest.mark.parametrize("mode", ["annotated", "slim"])
def test_lsdb_opens_them(tmp_path: Path, mode: Any) -> None:
    lsdb = pytest.importorskip("lsdb", reason="lsdb is not installed: pip install galaxyblr[hats]")
    path = SHARED / "openngc" / "openngc_hats"
    if not path.is_dir():
        pytest.skip(f"no {path}: not part of the checkout")
    cat = catalogs.open(path)
    new = annotated(cat, tmp_path / "out", mode=mode, keep=("Name",))
    opened = lsdb.open_catalog(new)
    frame = opened.compute()
    assert (len(frame), opened.margin is not None) == (cat.n_rows, True)
    whole = rows(hats.open(new)).to_pandas().set_index("Name")
    found = frame.set_index("Name")
    assert (found["blr_p_late"].sort_index() == whole["blr_p_late"].sort_index()).all()
    assert str(found["blr_class"].dtype) == str(whole["blr_class"].dtype) or set(found["blr_class"]) == {
        "early",
        "late",
    }
    cone = opened.cone_search(ra=187.7, dec=12.4, radius_arcsec=3600).compute()
    assert 0 < len(cone) < 1000


MAP_PIXELS = np.array([700, 3, 255, 256, 9])


def made(folder: Path) -> Path:
    ra, dec = centres(MAP_PIXELS, 3)
    fields = [pa.field("ra", pa.float64(), metadata={"unit": "deg"}), pa.field("dec", pa.float64())]
    fields.append(pa.field("density", pa.float64(), metadata={"unit": "deg-2"}))
    table = pa.table([ra, dec, MAP_PIXELS.astype(float)], schema=pa.schema(fields))
    write_hats(folder / "map", table, MAP_PIXELS, order=3, extra={"blr.map": "a test"})
    return folder / "map"


def test_written_again_it_replaces_itself(tmp_path: Path) -> None:
    made(tmp_path)
    root = made(tmp_path)
    assert catalogs.open(root).n_rows == 5
    assert pa.dataset.parquet_dataset(root / "dataset/_metadata").count_rows() == 5
    assert [path.name for path in tmp_path.iterdir()] == ["map"]


def test_hats_reads_it(tmp_path: Path) -> None:
    hats = pytest.importorskip("hats")
    catalogue = hats.read_hats(made(tmp_path))
    assert len(catalogue) == 5
    assert {pixel.pixel for pixel in catalogue.get_healpix_pixels()} == {*(MAP_PIXELS >> 6).tolist()}
