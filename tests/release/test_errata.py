"""Errors that surveys have published are stopped, by a check that names them and their place."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.flows.verbs import reprocess
from tests.release.conftest import draft, publish, release, working_folder
from tests.release.faults import FAULTS, File, stamp
from tests.release.planting import checked, planted

QUICK = {
    ("fits", "a file damaged by input/output"),
    ("fits", "a boolean became int8"),
    ("fits", "probabilities of another model"),
    ("fits", "texts of other rows"),
    ("parquet", "a companion with other rows"),
    ("parquet", "flags of an earlier stage"),
    ("parquet", "null stored as 0"),
    ("parquet", "a boolean inverted"),
    ("parquet", "numbers in another byte order"),
    ("fits", "columns in another order"),
    ("fits", "infinite magnitudes"),
    ("parquet", "positions an arcsecond off"),
    ("parquet", "a field of the last release as input"),
    ("parquet", "objects of an overlap with new names"),
    ("parquet", "texts in lower case"),
    ("parquet", "texts padded with blanks"),
    ("fits", "an image behind the table"),
    ("parquet", "a stale block in an input"),
    ("fits", "two fields with each other's names"),
    ("parquet", "a summary that expects more objects"),
    ("fits", "a manifest that names another model"),
}
"""Errors that the ordinary run plants: of each kind of check some, in either format."""


CASES = [
    pytest.param(what, form, marks=() if (form, what) in QUICK else pytest.mark.long)
    for form in ("fits", "parquet")
    for what, fault in FAULTS.items()
    if form in fault.forms
]


@pytest.mark.parametrize(("what", "form"), CASES)
def test_each_error_is_stopped_by_name_and_place(
    what: str, form: str, survey: Path, drafted: Callable[[str], Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = working_folder(survey, drafted(form))
    monkeypatch.chdir(folder)
    fault = FAULTS[what]
    found = planted(fault, survey, folder, form)
    stops = [c for c in found if c["verdict"] == "stop" and c["name"] == fault.check]
    mine = [c for c in stops if fault.words in str(c["found"])]
    assert mine, [(c["verdict"], c["name"], c["found"], c.get("file")) for c in found]
    assert any(str(c.get("file", "")).startswith(fault.place) for c in mine), mine
    assert release("sign", form, "2", "--by", "Ada") == 1
    monkeypatch.undo()
    shutil.rmtree(folder)


def test_small_faults_deserve_a_look_at_their_place(here: Path) -> None:
    """A zero point of 0.15 mag, three objects that are lost, a card and a file of another release."""
    shutil.copytree(here / "parquet-2", "changed", ignore=shutil.ignore_patterns("run"))
    for k, change in (
        (4, lambda file: file.set("bmag", slice(None), file.columns["bmag"] + 0.15)),
        (5, lambda file: file.take(np.r_[0:100, 103 : len(file)])),
    ):
        file = File(Path(f"changed/survey/field-{k}.parquet"))
        change(file)
        file.write()
    reprocess(Path("changed/spec.toml"), here / "models", out=Path("changed/run"), quiet_seconds=0)
    draft("parquet", "2", Path("changed/run"), here)
    folder = Path("releases/parquet/.2.draft")
    file = File(folder / "data" / "field-6.parquet")
    file.set_metadata("TELESCOP", "another one")
    file.write()
    stamp(folder / "data")
    (folder / "old").mkdir()
    (folder / "old" / "field-4.parquet").write_bytes(b"of the last release")
    keys = ("verdict", "name", "file", "field")
    found = {tuple(c.get(key, "") for key in keys) for c in checked("parquet", "2")}
    assert {
        ("look", "values", "field-4.parquet", "bmag"),
        ("look", "objects", "field-5.parquet", ""),
        ("look", "metadata", "field-6.parquet", "TELESCOP"),
        ("stop", "partitions", "old/field-4.parquet", ""),
    } <= found


def with_other_types(table: pa.Table) -> pa.Table:
    """Return a table with a time, a vector, whole numbers beyond doubles, bytes, and numbers called "class"."""
    n = table.num_rows
    hours = np.datetime64("2026-01-01T00:00:00", "us") + np.arange(n) * np.timedelta64(3_600_000_000, "us")
    fluxes = np.linspace(1, 9, 3 * n)
    return (
        table.append_column("observed", pa.array(hours))
        .append_column("fluxes", pa.FixedSizeListArray.from_arrays(pa.array(fluxes), 3))
        .append_column("source_id", pa.array(2**60 + np.arange(n)))
        .append_column("class", pa.array(np.arange(n) % 3))
        .append_column("file", pa.array(np.linspace(0, 1, n)))
        .append_column("tile", pa.array([b"tile %d" % (i % 7) for i in range(n)], pa.binary()))
    )


def spoilt(table: pa.Table) -> pa.Table:
    """Return the same with times of another zone, some other fluxes, rounded numbers, and bytes of other rows."""
    hour, fluxes = np.timedelta64(3_600_000_000, "us"), table["fluxes"].combine_chunks().flatten().to_numpy()
    for name, values in {
        "observed": pa.array(table["observed"].to_numpy() + hour),
        "fluxes": pa.FixedSizeListArray.from_arrays(pa.array(np.where(fluxes < 5, fluxes, 5)), 3),
        "source_id": pa.array(table["source_id"].to_numpy().astype(float).astype(np.int64)),
        "tile": pa.array(np.roll(np.array(table["tile"].to_pylist(), object), 1).tolist(), pa.binary()),
    }.items():
        place = table.schema.get_field_index(name)
        table = table.set_column(place, table.schema.field(place), values)
    return table


def test_times_vectors_long_numbers_and_bytes_are_compared_with_the_last_release(here: Path) -> None:
    for k in (1, 2):
        shutil.copytree(here / f"parquet-{k}", f"types-{k}", ignore=shutil.ignore_patterns("run"))
        for path in sorted(Path(f"types-{k}/survey").glob("*.parquet")):
            table = with_other_types(pq.read_table(path))
            pq.write_table(spoilt(table) if (k, path.stem) == (2, "field-4") else table, path)
        run_folder = Path(f"types-{k}/run")
        reprocess(Path(f"types-{k}/spec.toml"), here / "models", out=run_folder, quiet_seconds=0)
    publish("types", "1", Path("types-1/run"), here)
    draft("types", "2", Path("types-2/run"), here)
    found = checked("types", "2")
    told = {(c["verdict"], c.get("field")) for c in found if c.get("file") == "field-4.parquet"}
    assert {("look", "observed"), ("look", "fluxes[0]"), ("stop", "source_id"), ("stop", "tile")} <= told
    assert {c["file"] for c in found if c.get("file", "").startswith("field")} == {"field-4.parquet"}


@pytest.mark.parametrize("what", ["duplicates after a resume", "objects of an overlap with new names"])
def test_what_lies_on_the_disk_is_found_too(what: str, here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a large release, identifiers and what was elsewhere before lie in files."""
    monkeypatch.setattr("flows.release._differences.IN_MEMORY", 900)
    fault = FAULTS[what]
    found = planted(fault, here, Path.cwd(), "parquet")
    assert any(c["name"] == fault.check and fault.words in str(c["found"]) for c in found)
    others = {"objects", "positions", "identifiers of the inputs"} if what.startswith("objects") else set()
    assert not others & {c["name"] for c in found}
