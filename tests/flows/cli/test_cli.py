"""The command line: exit statuses, what goes to which stream, and what bad input gets.

Bad input gets one clear message, exit status 1 or 2, and nothing is written.
"""

from __future__ import annotations

import gc
import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from httpx import ConnectError

from flows.cli._printing import exit_status
from flows.cli.app import run
from flows.models.model import SCHEMA_VERSION
from flows.models.store import Store
from tests.flows.children import python
from tests.flows.models.test_store import changed

Run = Callable[..., tuple[int, str, str]]


@pytest.fixture
def work(trained: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the current folder, with the survey in both formats, its specification and a model."""
    for name in ("survey.fits", "survey.parquet", "spec.toml"):
        shutil.copy(trained / name, tmp_path)
    shutil.copytree(trained / "models", tmp_path / "models")
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture(scope="module")
def with_release(trained: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with the survey, a model and a release in `annotated`."""
    folder = tmp_path_factory.mktemp("with-release")
    shutil.copytree(trained, folder, dirs_exist_ok=True)
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        assert run(["classify", "survey.fits", *CLASSIFY[:3], "annotated", *CLASSIFY[4:]]) == 0
    return folder


@pytest.fixture
def blr(work: Path, capsys: pytest.CaptureFixture[str]) -> Run:
    """Return what runs a command: exit status, standard output, standard error."""
    assert work.samefile(".")

    def command(*arguments: str) -> tuple[int, str, str]:
        capsys.readouterr()
        status = run([str(a) for a in arguments])
        told = capsys.readouterr()
        return status, told.out, told.err

    return command


def snapshot(folder: Path) -> dict[str, tuple[int, int]]:
    return {
        str(p.relative_to(folder)): (p.stat().st_mtime_ns, p.stat().st_size if p.is_file() else 0)
        for p in folder.rglob("*")
    }


def change(file: str, old: str, new: str) -> None:
    text = Path(file).read_text()
    assert old in text
    Path(file).write_text(text.replace(old, new))


CLASSIFY = ("--model", "morphology", "--out", "out", "--direct", "-q")
TRAIN = ("train", "spec.toml", "--store", "new", "--direct", "-q")

# name: what is done before, if anything, the command, exit status and what the message says
BAD = {
    "no option of that name": (
        ("train", "spec.toml", "--xyzzy"),
        r"2 .*error: No such option: --xyzzy; `blr train --help` shows how to use it",
    ),
    "no value of an option": (
        ("classify", "survey.fits", *CLASSIFY, "--format", "csv"),
        r"2 .*Invalid value for '--format': 'csv' is not one of 'same', 'parquet', 'fits'; `blr classify --help`",
    ),
    "no specification": (
        ("train", "spce.toml"),
        r"2 .*spce.toml: there is no such file, expected a specification in TOML; did you mean 'spec.toml'",
    ),
    "no catalogue to train on": (
        lambda _: change("spec.toml", '"survey.parquet"', '"survye.parquet"'),
        TRAIN,
        r"2 .*catalog.paths: got '.*survye.parquet', which does not exist; did you mean",
    ),
    "no file of a pattern": (
        lambda _: change("spec.toml", '"survey.parquet"', '"release/*.parquet"'),
        TRAIN,
        r"2 .*catalog.paths: got '/.*/release/\*.parquet', .*there is no folder /.*/release: is its disk mounted\?$",
    ),
    "a disk that is not mounted": (
        lambda _: [Path("disk").mkdir(), change("spec.toml", '"survey.parquet"', '"disk/dr6/*.parquet"')],
        TRAIN,
        r"2 .*catalog.paths: got '/.*/disk/dr6/\*.parquet', .*; the folder /.*/disk is empty: is its disk mounted\?$",
    ),
    "no catalogue to classify": (
        ("classify", "survey.fist", *CLASSIFY),
        r"2 .*CATALOG: got '/.*/survey.fist', which does not exist; did you mean 'survey.fits'",
    ),
    "not a catalogue": (
        lambda _: Path("x.fits").write_bytes(b"\x00\x01" * 4000),
        ("classify", "x.fits", *CLASSIFY),
        r"1 .*x.fits.* begins with .*, expected .*SIMPLE",
    ),
    "no such column in training": (
        lambda _: change("spec.toml", "jmag - kmag", "jmag - kmga"),
        TRAIN,
        r"1 .*survey.parquet has no column 'kmga', expected by features.j_k = 'jmag - kmga'; did you mean 'kmag'",
    ),
    "no such column in the target": (
        lambda make: make.parquet(Path("survey.parquet"), {"bmag": np.zeros(3), "j_mag": np.zeros(3)}),
        ("classify", "survey.parquet", *CLASSIFY),
        r"1 .*survey.parquet has no column 'jmag', expected by features.b_j = 'bmag - jmag'; did you mean 'j_mag'",
    ),
    "one value": (
        lambda make: (
            make.parquet(Path("survey.parquet"), make.survey() | {"hubble": np.full(400, "E")}),
            change("spec.toml", 'classes = { early = ["E", "S0"], late = ["Sb", "Sc"] }', ""),
        ),
        TRAIN,
        r"1 .*label.column: got 'hubble' with the labels 'E' .*, expected at least two classes",
    ),
    "feature missing everywhere": (
        lambda make: make.parquet(Path("survey.parquet"), make.survey() | {"kmag": np.full(400, np.nan)}),
        TRAIN,
        r"1 .*features.j_k: got no value of \"jmag - kmag\" in any of the \d+ training rows, expected values in some",
    ),
    "feature of extreme values": (
        lambda make: make.parquet(Path("survey.parquet"), make.survey() | {"kmag": np.full(400, 1e300)}),
        TRAIN,
        r"1 .*features.j_k: got values from -1e\+300 to -1e\+300, expected sizes between 1e-100 and 1e\+100; state",
    ),
    "output folder below a file": (
        lambda _: Path("file").write_text(""),
        ("classify", "survey.fits", "--model", "morphology", "--out", "file/out", "--direct"),
        r"1 .*file/out: got 'Not a directory', expected an output folder that you may create and write to",
    ),
    "store below a file": (
        lambda _: Path("file").write_text(""),
        ("train", "spec.toml", "--store", "file/models", "--direct"),
        r"1 .*file/models.*: got 'Not a directory' on making the folder, expected a model store that you may write",
    ),
    "name clash": (
        lambda make: make.parquet(Path("survey.parquet"), make.survey() | {"Blr_Flags": np.zeros(400)}),
        ("classify", "survey.parquet", *CLASSIFY),
        r"1 .*column 'Blr_Flags' already, so 'blr_flags' cannot be added; choose another prefix",
    ),
    "newer model": (
        lambda _: changed(Store(Path("models")).find("morphology").path, schema_version=SCHEMA_VERSION + 1),
        ("classify", "survey.fits", *CLASSIFY),
        r"1 .*model.asdf: got a model file of schema 2, which a newer version of blr wrote, expected at most 1",
    ),
    "no such model": (
        ("classify", "survey.fits", "--model", "morfology", "--out", "out", "--direct"),
        r"1 .*models: got no model 'morfology', expected one of the store's; did you mean 'morphology'",
    ),
    "specification in Latin-1": (
        lambda _: Path("spec.toml").write_bytes(Path("spec.toml").read_bytes() + "# é".encode("latin-1")),
        TRAIN,
        r"2 .*spec.toml: got bytes that are not UTF-8 .*; save it as UTF-8",
    ),
    "identifier misspelt": (
        lambda _: change("spec.toml", 'id = "name"', 'id = "nane"'),
        TRAIN,
        r"1 .*survey.parquet has no column 'nane', expected by catalog.id; did you mean 'name'\?$",
    ),
    "classes of one column": (
        lambda _: [change("spec.toml", "early = ", '"a b" = '), change("spec.toml", "late = ", '"a-b" = ')],
        TRAIN,
        r"2 .*spec\.toml: label: class 'a-b' would clash with class 'a b', .* 'blr_p_a_b'",
    ),
    "no folder for a specification, before a damaged file is read": (
        lambda _: Path("damaged.fits").write_bytes(b"no catalogue"),
        ("init", "damaged.fits", "--label", "hubble", "--out", "nowhere/spec.toml"),
        r"1 .*nowhere/spec.toml cannot be written: there is no folder nowhere; create it first",
    ),
    "no command": ((), r"2 .*blr --help"),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_input(work: Path, blr: Run, make: SimpleNamespace, case: str) -> None:
    *before, command, message = BAD[case]
    for step in before:
        step(make)
    found = snapshot(work)
    got, out, err = blr(*command)
    assert out == ""
    assert "Traceback" not in err
    error = f"{got} {err[err.index('blr: error: ') :]}"  # what went before is progress
    assert re.search(message, error, re.DOTALL), error
    assert snapshot(work) == found


def test_a_server_that_went_away_is_no_error_of_ours(capsys: pytest.CaptureFixture[str]) -> None:
    """As when `blr ui` ends in another terminal while a training is at work."""
    assert exit_status(ConnectError("[Errno 111] Connection refused")) == 1
    told = capsys.readouterr().err
    assert "Prefect's server no longer answers ([Errno 111] Connection refused); every file" in told
    assert "error in blr" not in told


ENDS = """
import sys, threading
from flows.cli import app
app.LONGEST_END, app.run, sys.modules["prefect"] = 0.5, lambda _: 1, sys
threading._register_atexit(lambda: threading.Event().wait(500))
app.main()
"""


def test_a_command_that_failed_does_not_wait_for_what_cannot_be_sent() -> None:
    """Prefect waited for minutes at the end of a process whose server was gone."""
    assert python("-c", ENDS, timeout=100).returncode == 1


@pytest.mark.usefixtures("work")
def test_lines_that_nobody_reads_any_more_stop_nothing() -> None:
    """As of a terminal that was closed: no file is left out for it."""
    reader, writer = os.pipe()
    os.close(reader)
    words = ["classify", "survey.fits", "survey.parquet", "--model", "morphology", "--out", "out", "--json"]
    told = subprocess.run(
        [sys.executable, "-m", "flows", *words], stdout=subprocess.PIPE, stderr=writer, check=False
    )
    os.close(writer)
    assert told.returncode == 0
    assert json.loads(told.stdout)["quarantined"] == {}


def test_a_command_looks_for_garbage_though_its_start_does_not(blr: Run) -> None:
    gc.disable()
    try:
        assert blr("models", "list", "--store", "models")[0] == 0
        assert gc.isenabled()
    finally:
        gc.enable()


def test_text_where_numbers_were(blr: Run, make: SimpleNamespace) -> None:
    make.parquet(Path("survey.parquet"), make.survey() | {"bmag": np.full(400, "faint")})
    status, _, err = blr("classify", "survey.parquet", *CLASSIFY)
    said = "feature 'b_j' = 'bmag - jmag': the column 'bmag' holds text (no number, but 'faint'), expected numbers; "
    assert (status, said in err, "parentheses" in err) == (1, True, False)


def test_a_mark_that_nobody_stated_is_named(work: Path, blr: Run, make: SimpleNamespace) -> None:
    """-999 is known of no column in training, and 99 is of jmag; the report says how much of b_j is missing."""
    columns = make.survey()
    columns["bmag"][:40], columns["bmag"][200:] = -999, np.nan
    make.parquet(Path("survey.parquet"), columns)
    _, out, _ = blr("classify", "survey.parquet", *CLASSIFY)
    said = re.search(r"A mark for 'no value'\? bmag = -999 in (\d+) of the objects that are unlike", out)
    assert said is not None, out
    assert 30 < int(said[1]) <= 40
    page = (work / "out" / "report.html").read_text()
    assert re.search(r"b_j \(missing for \d\d%, \d+% in training\)", page)
    assert "suspected marks for &#39;no value&#39; (bmag = -999)" in page


def test_train_classify_and_show(work: Path, blr: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("flows.training.steps.SECONDS_BETWEEN_LINES", 0.0)
    change("spec.toml", 'id = "name"\n', "")
    change("spec.toml", "[label]", '[split]\nby = "bmag"\n[label]')
    status, out, err = blr("train", "spec.toml", "--store", "new", "--direct", "--json")
    told = json.loads(out)
    assert (status, told["status"]) == (0, "trained")
    assert ("fitting candidates" in err, "fitting candidate 1" in err) == (True, False)
    assert not re.search(r"rows in 0\.\d s", err), "the end of short work is no news"
    assert re.search(r"\d+ rows, \d+ features, 2 classes, \d candidates: some \d+ s of a processor", err)
    assert re.search(r"candidate 1 of \d is fitted; some \d+ s left", err)
    chosen = ("--store", "new", "--model", told["model"], "--out", "out", "--direct")
    status, out, _ = blr("classify", "survey.fits", *chosen)
    assert (status, "Classes in all files" in out) == (0, True)
    assert "Next: blr review out --store new --id COLUMN" in out
    assert (work / "out/survey.fits").exists()
    status, out, err = blr("classify", "survey.fits", "--store", "new", *CLASSIFY, "--json")
    assert (status, json.loads(out)["status"]) == (0, "nothing to do")
    assert json.loads(blr("models", "list", "--store", "new", "--json")[1])["models"][0]["champion"]
    assert told["version"] in blr("models", "list", "--store", "new")[1]
    show = ("models", "show", "morphology", "--store", "new")
    assert json.loads(blr(*show, "--json")[1])["model"] == told["model"]
    assert "Candidates" in blr(*show)[1]
    assert json.loads(blr("inspect", told["path"] + "/model.asdf", "--json")[1])["kind"] == "model"


@pytest.mark.usefixtures("work")
def test_a_terminal_has_one_bar_and_none_at_the_end(blr: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """A training left twenty, of parts of a second each, above its answers."""
    for name, value in (("FORCE_COLOR", "1"), ("COLUMNS", "200")):
        monkeypatch.setenv(name, value)
    status, _, err = blr("train", "spec.toml", "--store", "new", "--direct")
    assert (status, "fitting candidate 1 of" in err, err.count("\x1b[1A")) == (0, True, 1)  # up to delete it


def test_inspect_a_catalogue(blr: Run, make: SimpleNamespace) -> None:
    status, out, _ = blr("inspect", "survey.fits", "--json")
    told = json.loads(out)
    assert (status, told["kind"], told["format"], told["n_rows"]) == (0, "catalogue", "fits", 400)
    columns = {c["name"]: c for c in told["columns"]}
    expected = make.survey()
    assert columns["bmag"]["minimum"] == expected["bmag"].min()
    assert columns["hubble"]["missing"] == np.mean(expected["hubble"] == "")
    assert "bmag" in blr("inspect", "survey.parquet", "--limit", "10")[1]


def test_dry_runs_and_trials_write_nothing(work: Path, blr: Run) -> None:
    before = snapshot(work)
    for command in (
        ("train", "spec.toml", "--store", "new", "--dry-run"),
        ("train", "spec.toml", "--store", "new", "--limit", "300", "--direct"),
        ("classify", "survey.fits", "--model", "morphology", "--out", "out", "--dry-run"),
        ("classify", "survey.fits", "--model", "morphology", "--out", "out", "--limit", "5", "--direct"),
    ):
        assert blr(*command)[0] == 0
        _, out, err = blr(*command, "--json")
        assert (json.loads(out)["status"] in ("planned", "trial"), "is fitted" in err) == (True, False)
    assert snapshot(work) == before


def test_debug_shows_where_and_the_version_is_the_one_that_models_name(blr: Run, work: Path) -> None:
    status, _, err = blr("--debug", "train", "none.toml")
    assert status == 2
    assert "Traceback" in err
    assert err.splitlines()[-1].startswith("blr: error: none.toml")
    store = Store(work / "models")
    (model,) = store.models()
    status, out, _ = blr("--version")
    assert (status, out) == (0, f"blr {store.load(model.label).code_version}\n")


@pytest.mark.parametrize("compiled", [False, True])
def test_ctrl_c(blr: Run, monkeypatch: pytest.MonkeyPatch, *, compiled: bool) -> None:
    """In compiled code too, which makes an error of its own of it."""

    def interrupted(*_: object, **__: object) -> None:
        if compiled:
            said = "a function returned a result with an exception set"
            raise SystemError(said) from KeyboardInterrupt()
        raise KeyboardInterrupt

    monkeypatch.setattr("flows.classification.steps.classify", interrupted)
    status, out, err = blr("classify", "survey.fits", *CLASSIFY)
    assert (status, out) == (130, "")
    assert "run the same command again" in err


SLOW = {"matplotlib", "pandas", "astropy.table", "astropy.units", "asdf", "jinja2", "prefect"}
SLOW |= {"scipy.optimize", "scipy.spatial"}


@pytest.mark.parametrize(
    ("command", "wanted", "most"),
    [
        ("--help", set(), 250),
        ("classify survey.fits --model morphology --out out", {"jinja2", "scipy.spatial"}, 1250),
        ("census annotated", {"jinja2", "scipy.spatial"}, 1250),
    ],
)
def test_modules_load_when_used(with_release: Path, command: str, wanted: set[str], most: int) -> None:
    """What a command loads and has no use for is a second of each start."""
    loaded = loaded_by(command, with_release, status=0)
    assert SLOW & {*loaded} <= wanted
    assert len(loaded) < most
    assert sum(name.split(".")[0] in ("blr", "catalogs", "flows") for name in loaded) <= 150
    assert command != "--help" or not {"numpy", "pyarrow"} & {*loaded}


def loaded_by(command: str, folder: Path, *, status: int) -> list[str]:
    """Return the modules that a process has at the end of a command, which leaves with that status."""
    code = f"""
import atexit, json, sys
sys.argv = ["blr", *{command.split()}]
atexit.register(lambda: print(json.dumps([*sys.modules]), file=sys.stderr))
from flows.cli.app import main
main()
"""
    done = python("-c", code, cwd=folder)
    assert done.returncode == status, done.stderr
    names: list[str] = json.loads(done.stderr.splitlines()[-1])
    return names


def test_an_error_of_the_users_is_told_without_loading_prefect(tmp_path: Path) -> None:
    """To say that a file is not there took two seconds more than to look into one that is."""
    assert not {"prefect", "httpx"} & {*loaded_by("inspect nothing.fits", tmp_path, status=1)}


def test_a_command_says_that_it_starts_before_it_loads_anything_slow() -> None:
    """The first words come before NumPy and Prefect are loaded."""
    script = """
import io, os, sys
class Heard(io.StringIO):
    def write(self, text):
        print('numpy' in sys.modules, 'prefect' in sys.modules, file=sys.stdout, flush=True)
        os._exit(0)
sys.stderr = Heard()
from flows.cli.app import run
run(['train', 'nothing.toml', '--direct'])
"""
    assert python("-c", script).stdout.split() == ["False", "False"]


HERE = ("s3://bucket/out", "expected a path on this machine")
STORE = ("sftp://host/out", "expected a folder on this machine, or a URL of s3://")


@pytest.mark.parametrize(
    ("command", "told"),
    [
        ("classify survey.fits --model morphology --out out --store URL", HERE),
        ("demo --out URL", HERE),
        ("models list --store URL", HERE),
        ("deployments --out URL", HERE),
        ("classify survey.fits --model morphology --out URL", STORE),
        ("reprocess spec.toml --out URL", STORE),
    ],
)
def test_outputs_at_urls_are_refused_at_once(
    blr: Run, work: Path, command: str, told: tuple[str, str]
) -> None:
    """Also before Prefect is started, and nothing is made of the name: `s3:` was a folder here once."""
    before = sorted(work.rglob("*"))
    status, out, err = blr(*command.replace("URL", told[0]).split())
    assert (status, out) == (2, "")
    assert f"got '{told[0]}', {told[1]}" in err
    assert err.count("\n") == 1
    assert sorted(work.rglob("*")) == before
