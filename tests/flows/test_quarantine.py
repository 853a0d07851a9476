"""One damaged file among several: set aside with its reason, the others finish, the exit status says so."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import warnings
from collections.abc import Callable
from decimal import Decimal
from functools import partial
from itertools import product
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from astropy.io import fits
from astropy.table import Table

import catalogs
from flows.cli.app import run
from flows.runs.manifest import Manifest
from tests.catalogs.hats_samples import PIXELS, write_table
from tests.flows.conftest import write_fits
from tests.flows.verbs import classify

DAMAGED = "b.parquet"
HERE = ("--model", "morphology", "--out", "out", "--direct", "-q")
CLASSIFY = ("classify", "release", *HERE)
NIGHTLY = ("reprocess", "spec.toml", *HERE, "--settle", "0")
Told = Callable[..., dict[str, Any]]


@pytest.fixture
def told_by(says: Callable[..., Any]) -> Told:
    """Return what runs a command to its exit status, and returns its JSON."""
    return lambda command, status: json.loads(says(status, *command, "--json").out)


@pytest.fixture
def release(trained: Path, tmp_path: Path, make: SimpleNamespace, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a folder of three files, the second one cut."""
    folder = tmp_path / "release"
    folder.mkdir()
    for seed, name in enumerate(("a.parquet", DAMAGED, "c.parquet")):
        make.parquet(folder / name, make.survey(50, seed=seed))
    cut(folder / DAMAGED)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "models").symlink_to(trained / "models")
    return folder


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("d.fits", b""),
        ("d.fits", b"<html>404</html>"),
        ("d.fits", fits.PrimaryHDU().header.tostring().encode()),  # whose writer was ended before the table
        ("d.csv", b""),
        ("d.fits", None),
    ],
)
def test_files_that_hold_nothing_are_set_aside_too(
    release: Path, name: str, content: bytes | None, told_by: Told
) -> None:
    """An empty folder that is called as a file is one of them."""
    (release / DAMAGED).unlink()
    if content is None:
        (release / name).mkdir()
    else:
        (release / name).write_bytes(content)
    files = [f"release/{one}" for one in ("a.parquet", "c.parquet", name)]
    told = told_by(("classify", *files, *HERE), 3)
    assert (list(told["quarantined"]), len(told["files"])) == ([name], 2)


def test_an_empty_folder_called_as_a_file_does_not_stop_a_night(
    release: Path, make: SimpleNamespace, told_by: Told
) -> None:
    """Nor where a pattern names it; it is tried again once it is a file.  Nor does one with our report's name."""
    (release / DAMAGED).rename(release / "report.html")
    make.parquet(release / "report.html", make.survey(50))
    (release / "d.parquet").mkdir()
    text = make.specification.replace("survey.parquet", "release/a.parquet")
    Path("spec.toml").write_text(f'{text}\n[target]\npaths = ["release/*"]\n')
    told = told_by(NIGHTLY, 3)
    assert (list(told["quarantined"]), len(told["files"])) == (["d.parquet", "report.html"], 2)
    assert "holds no catalogue" in told["quarantined"]["d.parquet"]
    assert "would be called report.html" in told["quarantined"]["report.html"]
    (release / "report.html").unlink()
    (release / "d.parquet").rmdir()
    make.parquet(release / "d.parquet", make.survey(50, seed=5))
    assert told_by(NIGHTLY, 0)["summary"]["n_rows"] == 150
    for path in release.iterdir():
        path.unlink()
    assert run([*NIGHTLY]) != 0, "an empty folder of inputs is a disk that is not mounted"


def test_files_of_a_folder_with_other_types_or_units_are_set_aside(
    release: Path, make: SimpleNamespace, told_by: Told
) -> None:
    """Each file opens by itself; one with a further column, which goes with the others, is read."""
    table = make.survey(50, seed=3)
    name = next(name for name, values in table.items() if values.dtype.kind == "f")
    make.parquet(release / DAMAGED, table | {"further": np.arange(50)})
    decimals = pa.array([Decimal(k) for k in range(50)], pa.decimal128(38, 0))
    pq.write_table(pa.table(table | {name: decimals}), release / "d.parquet")
    for file, unit in (("e", "mag"), ("f", "mag"), ("g", "Jy")):
        make.parquet(release / f"{file}.parquet", table, **{name: unit})
    text = make.specification.replace("survey.parquet", "release/a.parquet")
    Path("spec.toml").write_text(f'{text}\n[target]\npaths = ["release"]\n')
    told = told_by(NIGHTLY, 3)
    assert {*told["quarantined"]} == {"d.parquet", "g.parquet"}
    said = f"'{name}' is double in the first and decimal128(38, 0) in the second"
    assert said in told["quarantined"]["d.parquet"]
    assert "in 'Jy' in the second" in told["quarantined"]["g.parquet"]


def unprivileged(*command: str) -> subprocess.CompletedProcess[str]:
    """Run `blr` as one who may not read what its mode forbids, which root may."""
    mortal: list[str] = []
    if os.geteuid() == 0:
        if shutil.which("setpriv") is None:
            pytest.skip("root may read anything, and there is no setpriv (Debian: util-linux)")
        without = "-dac_override,-dac_read_search"
        mortal = ["setpriv", f"--bounding-set={without}", f"--inh-caps={without}"]
    program = [sys.executable, "-m", "flows", *command, "--direct", "-q"]
    return subprocess.run([*mortal, *program], capture_output=True, text=True, check=False)


def test_a_file_that_may_not_be_read_is_set_aside_too(release: Path) -> None:
    """A model that may not be read is not called damaged."""
    (release / DAMAGED).chmod(0)
    command = ("classify", "release", "--model", "morphology", "--json")
    done = unprivileged(*command, "--out", "out")
    assert done.returncode == 3, done.stderr
    forbidden = "Permission denied; check its owner and permissions, and those of its folders"
    assert json.loads(done.stdout)["quarantined"] == {DAMAGED: f"{release / DAMAGED}: {forbidden}"}
    store = Path(shutil.copytree("models", "own"))
    (model,) = store.rglob("model.asdf")
    model.chmod(0)
    done = unprivileged(*command, "--out", "other", "--store", "own")
    assert (done.returncode, "damaged" in done.stderr) == (1, False)
    assert f"blr: error: {model}: {forbidden}" in done.stderr


@pytest.mark.parametrize("target", ["/nowhere/b.parquet", DAMAGED], ids=["nowhere", "a circle"])
def test_a_link_to_a_disk_that_is_not_mounted_is_set_aside_and_its_copy_stays(
    release: Path, trained: Path, told_by: Told, target: str
) -> None:
    """It is no file that was taken back: nothing is retired."""
    shutil.copy(release / "a.parquet", release / DAMAGED)
    paths = "[target]\npaths = ['release/*']\n\n[label]"
    Path("spec.toml").write_text((trained / "spec.toml").read_text().replace("[label]", paths))
    told_by(NIGHTLY, 0)
    (release / DAMAGED).unlink()
    (release / DAMAGED).symlink_to(target)
    told = told_by(NIGHTLY, 3)
    missing = f"it is a link to {target}, which is missing: is its disk mounted?"
    assert told["quarantined"] == {DAMAGED: f"there is no {release / DAMAGED}; {missing}"}
    assert told["retired"] == []
    assert (Path("out") / DAMAGED).is_file()


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-200])


@pytest.mark.parametrize(
    "named", [["release"], ["release/*.parquet"], ["release/a.parquet", f"release/{DAMAGED}"]]
)
@pytest.mark.usefixtures("release")
def test_classify_sets_it_aside_and_ends_with_status_3(told_by: Told, named: list[str]) -> None:
    told = told_by(("classify", *named, *HERE), 3)
    assert told["status"] == "done"
    assert list(told["quarantined"]) == [DAMAGED]
    manifest = Manifest.read(Path("out"))
    assert manifest is not None
    (set_aside,) = manifest.quarantined
    assert set_aside.name == DAMAGED
    assert "does not end as a Parquet file does; expected a whole file" in set_aside.reason
    outputs = [o.name for o in manifest.outputs]
    assert outputs == ["a.parquet", "c.parquet"][: len(outputs)]
    assert sorted(p.name for p in Path("out").glob("*.parquet")) == outputs
    assert manifest.totals.n_rows == 50 * len(outputs)
    assert run(["classify", *named, *HERE]) == 3, "still"


def test_status_lists_each_file_until_it_is_mended(
    release: Path, make: SimpleNamespace, told_by: Told, says: Any
) -> None:
    """A file without a copy, a stale copy of a file damaged later, and current copies; no row changes, no release."""

    def states(status: int) -> dict[str, tuple[str, str]]:
        files = told_by(("status", "out"), status)["files"]
        return {f["name"]: (f["state"], f["since"]) for f in files}

    assert told_by(CLASSIFY, 3)["release"] == 1
    first = states(3)
    states_of = {name: state for name, (state, _) in first.items()}
    assert states_of == {DAMAGED: "quarantined", "a.parquet": "current", "c.parquet": "current"}
    cut(release / "c.parquet")
    told = told_by(CLASSIFY, 3)
    assert (told["release"], told["stale"], told["summary"]["n_rows"]) == (1, ["c.parquet"], 100)
    second = states(3)
    assert second[DAMAGED] == first[DAMAGED], "quarantined since the first run"
    assert second["c.parquet"][0] == "stale"
    assert second["c.parquet"][1] >= first[DAMAGED][1] > "2026"
    said = says(3, "status", "out").out
    assert "1 quarantined, 1 stale, 1 current" in said
    assert "out is at release 1, 2 quarantined" in said
    page = Path("out/report.html").read_text()
    assert "Files of release 1" in page
    assert page.index("<td>quarantined") < page.index("<td>stale") < page.index("<td>current")
    for seed, name in enumerate(("b.parquet", "c.parquet")):
        make.parquet(release / name, make.survey(50, seed=7 + seed))
    assert states(3)["c.parquet"][0] == "stale", "until a run mends it"
    assert told_by((*CLASSIFY, "--overwrite"), 0)["release"] == 2
    assert {state for state, _ in states(0).values()} == {"current"}
    (release / "a.parquet").unlink()
    Path("out/b.parquet").unlink()
    states_of = {name: state for name, (state, _) in states(0).items()}
    assert states_of == {"a.parquet": "stale", "b.parquet": "missing", "c.parquet": "current"}
    assert "without a manifest, expected a folder that `blr classify`" in says(2, "status", release).err


def test_nothing_but_damaged_files_is_a_failure_and_a_hidden_one_is_refused_by_name(
    release: Path, says: Any
) -> None:
    assert "does not end as a Parquet file does" in says(1, "classify", f"release/{DAMAGED}", *HERE).err
    assert not Path("out").exists()
    (release / "a.parquet").rename(".a.parquet")
    assert ".a.parquet: got a hidden file" in says(2, "classify", ".a.parquet", *HERE).err
    assert not Path("out/manifest.json").exists()


@pytest.fixture
def sky(tmp_path: Path, make: SimpleNamespace) -> Path:
    """Return a table of HATS with the survey's columns."""
    root = write_table(tmp_path / "sky", PIXELS, merged=False)
    for seed, path in enumerate(sorted((root / "dataset").rglob("Npix=*.parquet"))):
        table = pq.read_table(path)
        for name, values in make.survey(len(table), seed=seed).items():
            table = table.append_column(name, pa.array(values))
        pq.write_table(table, path)
    return root


def without_pages(whole: bytes) -> bytes:
    """Return a file of which the footer alone is whole, so that it opens."""
    footer = int.from_bytes(whole[-8:-4], "little") + 8
    return whole[:4] + bytes(len(whole) - 4 - footer) + whole[-footer:]


DAMAGES: dict[str, Callable[[bytes], bytes]] = {
    "footer": lambda whole: whole[:-200],
    "pages": without_pages,
    "everything": lambda whole: whole[:0],
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_partition_of_the_sky(sky: Path, trained: Path, tmp_path: Path, damage: str) -> None:
    """It keeps its name, so that nothing is there twice once it is repaired; what lists the pixels is no partition."""
    bad = sky / "dataset/Norder=1/Dir=0/Npix=45.parquet"
    name = bad.relative_to(tmp_path).as_posix()
    chosen = {"model": "morphology", "store": trained / "models"}
    whole = bad.read_bytes()
    bad.write_bytes(DAMAGES[damage](whole))
    told = classify([sky], out=tmp_path / "out", **chosen)
    assert (told.status, list(told.quarantined)) == ("done", [name])
    assert told.summary.n_rows == 50
    assert np.all([(tmp_path / "out" / other).is_file() for other in told.files if other != name])
    bad.write_bytes(whole)
    again = classify([sky], out=tmp_path / "out", **chosen)
    assert (again.quarantined, again.summary.n_rows) == ({}, 100)
    assert [n for n, file in again.files.items() if file["to_do"]] == [name]
    fresh = classify([sky], out=tmp_path / "fresh", **chosen)
    assert fresh.summary == again.summary
    for path in fresh.files:
        assert (tmp_path / "fresh" / path).read_bytes() == (tmp_path / "out" / path).read_bytes()


def changed_bytes(path: Path, text: bytes) -> None:
    """Change the bytes of a text in a file, as a bad disk does: the file stays readable."""
    whole = path.read_bytes()
    assert text in whole
    path.write_bytes(whole.replace(text, text.swapcase()))


def summed_parquet(path: Path, columns: Any) -> None:
    options: dict[str, Any] = {"compression": "none", "use_dictionary": False}
    pq.write_table(pa.table(columns), path, write_page_checksum=True, **options)


summed_fits = partial(write_fits, checksum=True)
WRITERS = {"fits": summed_fits, "fits.gz": summed_fits, "parquet": summed_parquet}


@pytest.fixture
def tiles(tmp_path: Path, make: SimpleNamespace, form: str) -> Path:
    """Return a folder of two files with checksums; the second one was changed where no model reads it."""
    folder = tmp_path / "tiles"
    folder.mkdir()
    for seed, name in enumerate("ab"):
        note = np.array([f"tile {name}, row {i:02d}" for i in range(50)])
        WRITERS[form](folder / f"{name}.{form}", make.survey(50, seed=seed) | {"note": note})
    if form == "fits.gz":  # gzip has a checksum of its own: a card changes, its checksum stays
        with fits.open(folder / "b.fits.gz") as hdus:
            hdus[1].header["TTYPE1"] = "Name"
            hdus.writeto(folder / "b.fits.gz", overwrite=True, checksum=False, output_verify="ignore")
    else:
        changed_bytes(folder / f"b.{form}", b"tile b, row 33")
    return folder


def told_wrong(path: Path) -> list[str]:
    """Return what another reader says of a file's checksums."""
    if path.suffix == ".parquet":
        try:
            pq.read_table(path, page_checksum_verification=True)
        except OSError as error:
            return [str(error)]
        return []
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        with fits.open(path, checksum=True) as hdus:
            assert len(hdus[1].data)
    return [str(w.message) for w in caught]


@pytest.mark.parametrize(("form", "how"), [*product(WRITERS, ["quarantine", "warn"]), ("fits", "ignore")])
def test_a_file_that_has_other_checksums_than_it_states(
    tiles: Path, trained: Path, capsys: pytest.CaptureFixture[str], form: str, how: str
) -> None:
    """By default it is set aside; a copy of it never states checksums that match, and neither does a copy of that."""
    good, bad = f"a.{form}", f"b.{form}"
    text = (trained / "spec.toml").read_text()
    assert told_wrong(tiles / good) == []
    assert told_wrong(tiles / bad) != []
    text = text.replace("[label]", f'checksums = "{how}"\n[target]\npaths = ["tiles/*"]\n[label]')
    spec = tiles.parent / "spec.toml"
    spec.write_text(text.replace('"survey.parquet"', f'"{trained / "survey.parquet"}"'))
    status = run(["reprocess", str(spec), "--store", str(trained / "models"), "--direct"])
    said = capsys.readouterr()
    out = tiles.parent / "annotated"
    assert told_wrong(out / good) == []
    if how == "quarantine":
        assert status == 3
        assert "expected" in said.out
        assert not (out / bad).exists()
        return
    assert status == 0
    assert ("expected" in said.err) == (how == "warn")
    assert told_wrong(out / bad) != []

    def annotated(name: str, **options: Any) -> Any:
        opened = catalogs.open(out / bad)
        return catalogs.annotate(opened, tiles.parent / name, [], lambda _: {}, read=[], **options)

    (copy,) = annotated("copy", checksums="ignore")
    assert told_wrong(copy) != []
    with pytest.raises(catalogs.CatalogError, match="expected"):
        annotated("third")


def test_a_partition_of_the_sky_that_has_other_checksums(
    sky: Path, trained: Path, tmp_path: Path, says: Any
) -> None:
    """It is set aside as any file is, and `blr inspect` says so of the whole table."""
    bad = sky / "dataset/Norder=1/Dir=0/Npix=45.parquet"
    for path in sorted((sky / "dataset").rglob("Npix=*.parquet")):
        here = pq.read_table(path, partitioning=None)
        notes = [f"row {i:02d} of {path.stem}" for i in range(len(here))]
        summed_parquet(path, here.append_column("note", pa.array(notes)))
    changed_bytes(bad, b"row 03 of Npix=45")
    told = classify([sky], out=tmp_path / "out", model="morphology", store=trained / "models")
    assert list(told.quarantined) == [bad.relative_to(tmp_path).as_posix()]
    assert "has the CRC" in says(0, "inspect", str(sky)).out


@pytest.mark.parametrize("form", ["fits"])
def test_sums_that_astropy_copied_from_another_table_are_told_of_only_and_inspect_tells_of_others(
    tiles: Path, trained: Path, says: Any
) -> None:
    """Its most usual way to change a table leaves the sums of the old one, without the comments beside them."""
    table = Table.read(tiles / "a.fits")
    table["note"] = np.char.upper(table["note"])
    table.write(tiles / "c.fits")
    assert told_wrong(tiles / "c.fits") != []
    chosen = ["--model", "morphology", "--store", trained / "models", "--out", tiles.parent / "out"]
    told, said = says(3, "classify", tiles, *chosen, "--direct", "--json")
    assert list(json.loads(told)["quarantined"]) == ["b.fits"]
    assert "c.fits: the data of HDU 1 have the DATASUM" in said
    assert "copied from another table" in said
    assert told_wrong(tiles.parent / "out" / "c.fits") != []
    told = says(0, "inspect", tiles / "b.fits").out
    assert f"Altered or incomplete: {tiles / 'b.fits'}: the data of HDU 1 have the DATASUM" in told
    assert "wrong_checksums" not in json.loads(says(0, "inspect", tiles / "a.fits", "--json").out)


def test_training_refuses_a_catalogue_that_has_other_checksums(
    tmp_path: Path, make: SimpleNamespace, says: Any
) -> None:
    summed_fits(tmp_path / "survey.fits", make.survey(60) | {"note": np.full(60, "as it was")})
    changed_bytes(tmp_path / "survey.fits", b"as it was")
    spec = tmp_path / "spec.toml"
    spec.write_text(make.specification.replace("survey.parquet", "survey.fits"))
    command = ("train", spec, "--store", tmp_path / "models", "--direct", "-q", "--dry-run")
    assert "DATASUM" in (said := says(1, *command).err)
    assert 'checksums = "warn"' in said
    spec.write_text(spec.read_text().replace("[label]", 'checksums = "warn"\n[label]'))
    says(0, *command)


@pytest.mark.parametrize("named", ["release", "release/*.parquet", "release/d.parquet"])
def test_a_fifo_among_the_files_is_refused_by_name(release: Path, says: Any, named: str) -> None:
    """Opening it would wait for ever."""
    os.mkfifo(release / "d.parquet")
    assert "d.parquet is a FIFO, expected a file" in says(1, "classify", named, *HERE).err
    assert not Path("out").exists()


def test_a_fifo_that_takes_the_place_of_a_file_is_not_waited_for(
    tmp_path: Path, trained: Path, make: SimpleNamespace, says: Any
) -> None:
    """A process of its own classifies the files before it: the file has changed, and the next run says how."""
    folder, out = tmp_path / "tiles", tmp_path / "out"
    folder.mkdir()
    for i in range(12):
        make.fits(folder / f"t{i:02d}.fits", make.survey(20, seed=i))
    os.mkfifo(tmp_path / "fifo")
    command = ["classify", str(folder), "--model", "morphology", "--store", str(trained / "models")]
    command += ["--out", str(out), "--direct", "-q"]
    with subprocess.Popen([sys.executable, "-m", "flows", *command]) as process:
        while not [*out.glob(".blr-staging/*/*.fits")]:
            with pytest.raises(subprocess.TimeoutExpired):
                process.wait(0.02)
        (tmp_path / "fifo").rename(folder / "t11.fits")
        assert process.wait(120) in {0, 3}
    assert sorted(path.name for path in out.glob("*.fits")) == [f"t{i:02d}.fits" for i in range(11)]
    assert "t11.fits is a FIFO, expected a file" in says(1, *command).err


ANNOTATE = "classification.execution.annotate"
LIMIT = "this process got no more memory or threads"


@pytest.mark.parametrize(
    ("work", "error", "words"),
    [
        (ANNOTATE, RuntimeError("can't start new thread"), f"{LIMIT} (can't start new thread);"),
        (ANNOTATE, MemoryError("2 GB"), f"{LIMIT} (2 GB);"),
        (ANNOTATE, ImportError("x.so: failed to map segment"), f"{LIMIT} (x.so: failed to map segment);"),
        (ANNOTATE, OSError(30, "Read-only file system", "out/a.parquet"), "out/a.parquet"),
        ("models.row_files._loaded", OSError("Failed to launch worker thread"), f"{LIMIT} (Failed to"),
    ],
)
@pytest.mark.usefixtures("release")
def test_no_file_is_set_aside_for_a_limit_of_the_machine(
    work: str, error: Exception, words: str, monkeypatch: pytest.MonkeyPatch, says: Callable[..., Any]
) -> None:
    """As of a container that allows few processes, or of a job with little memory."""

    def limited(*_: object, **__: object) -> None:
        raise error

    monkeypatch.setattr(f"flows.{work}", limited)
    said = says(1, "classify", "release/a.parquet", "release/c.parquet", *HERE).err
    assert f"blr: error: {words}" in said
    assert not Path("out/manifest.json").exists()
