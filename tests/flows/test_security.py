"""What a file, a catalogue or a parameter must not be able to do; what is its module's own is tested there.

Imports and calls that run what is read: test_architecture.  Roots: test_roots.  Files' claims: tests/catalogs.
Passwords, authentication and addresses of real servers: tests/e2e.
"""

from __future__ import annotations

import base64
import json
import pickle
import re
import shutil
import subprocess
import sys
import zlib
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import pytest
from prefect.filesystems import LocalFileSystem
from prefect.results import ResultStore
from prefect.serializers import JSONSerializer

from flows.classify import classify
from flows.cli import _serve as cli_serve
from flows.cli.app import run
from flows.errors import FlowError, ModelError, UsageError
from flows.models.description import InputFile
from flows.models.store import Store
from flows.orchestration.run_page import PREFECTS, RESULTS, read_json_only
from flows.promote import promote
from flows.reports.counts import run_tables
from flows.reports.tables import model_card, to_markdown
from flows.reprocess import reprocess
from flows.review import review
from flows.runs.results import ClassEstimate, Difference, FileWork, FlagCount, ReleaseResult, Transition
from flows.train import train
from tests.flows.reports.test_answers import summary
from tests.flows.reports.test_report import changed, make_model

ROOT = Path(__file__).resolve().parents[2]
HOSTILE = '<script>alert(1)</script> | `x` **b** [l](http://evil) </td>\n# one\n\n<img src=x onerror="y">'

# --- nothing is unpickled or evaluated


class Bomb:
    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[Any, ...]:
        return (Path.touch, (self.path,))


@pytest.fixture
def unrestricted(monkeypatch: pytest.MonkeyPatch) -> None:
    """Give this process Prefect's readers for the test: some other test may have taken them away."""
    for serializer, loads in PREFECTS.items():
        monkeypatch.setattr(serializer, "loads", loads)


FLOWS = (train, classify, reprocess, review, promote)


@pytest.mark.parametrize("flow", FLOWS, ids=lambda flow: flow.name)
def test_results_of_flows_are_json(flow: Any) -> None:
    assert (flow.persist_result, flow.result_serializer) == (True, RESULTS)
    assert RESULTS.type == "json"


@pytest.mark.parametrize("kind", ["subprocess.Popen", "flows.cli.app.run", "flows.version.code_version"])
def test_a_result_is_of_a_type_of_ours(kind: str) -> None:
    """A file of results names the type: nothing else is made of it, or called."""
    blob = json.dumps({"blr_kind": kind, "blr_document": {"args": "true"}}).encode()
    said = f"got a result of the type '{kind}', expected a type of the package 'flows'"
    with pytest.raises(FlowError, match=said):
        RESULTS.loads(blob)


@pytest.mark.usefixtures("unrestricted")
@pytest.mark.parametrize(
    "serializer",
    [
        {"type": "pickle"},
        {"type": "compressed/pickle", "compressionlib": "zlib"},
        {"type": "compressed", "serializer": {"type": "pickle"}, "compressionlib": "zlib"},
    ],
    ids=lambda s: s["type"],
)
def test_a_pickle_in_the_place_of_a_result_is_refused(tmp_path: Path, serializer: dict[str, Any]) -> None:
    """Prefect's own reader does run it: that is what the refusal is for."""
    storage, json_only = LocalFileSystem(basepath=str(tmp_path)), JSONSerializer()
    results = ResultStore(result_storage=storage, serializer=json_only, cache_result_in_memory=False)
    results.write(key="kept", obj={"status": "done"})
    assert results.read("kept").result == {"status": "done"}

    def put(name: str) -> None:
        written = base64.encodebytes(pickle.dumps(Bomb(tmp_path / name)))
        if "compressed" in serializer["type"]:
            written = base64.encodebytes(zlib.compress(written))
        told = json.loads((tmp_path / "kept").read_bytes())
        told["metadata"]["serializer"] = serializer
        (tmp_path / "kept").write_text(json.dumps(told | {"result": written.decode()}))

    put("bang")
    results.read("kept")
    assert (tmp_path / "bang").exists(), "the test's bomb is one"
    read_json_only()
    put("bang again")
    with pytest.raises(FlowError, match="expected JSON: another program wrote it"):
        results.read("kept")
    assert not (tmp_path / "bang again").exists()


@pytest.mark.usefixtures("unrestricted")
@pytest.mark.parametrize(
    "changed",
    [{"object_decoder": "os.system"}, {"jsonlib": "orjson"}, {"loads_kwargs": {"parse_float": "str"}}],
    ids=str,
)
def test_json_is_not_decoded_by_whatever_the_file_names(changed: dict[str, Any]) -> None:
    read_json_only()
    assert JSONSerializer().loads(b'{"a": 1}') == RESULTS.loads(b'{"a": 1}') == {"a": 1}
    with pytest.raises(FlowError, match="expected JSON"):
        JSONSerializer(**changed).loads(b"{}")


def test_what_prefect_loads_for_a_run_reads_json_only() -> None:
    """In a process of its own, as every run has: by the file that deployments name."""
    ask = "import flows.deployed; from prefect.serializers import PickleSerializer as P; print(P.loads.__module__)"
    command = [sys.executable, "-c", ask]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "flows.orchestration.run_page"


# --- links are not followed, and secrets are not shown


@pytest.fixture
def mine(trained: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a folder with a survey and a store, and a folder beside them that nothing may be written to."""
    shutil.copytree(trained, tmp_path / "survey")
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "survey")
    return tmp_path / "survey"


OWN = ("_labelled", "_census", "_report", "_releases", "_files", "_retired")
OWN += (".blr-staging", ".blr-lock", "manifest.json")
CLASSIFY = ("classify", "survey.parquet", "--model", "morphology", "--store", "models", "--direct", "--out")


def test_no_link_inside_the_output_folder_is_followed(mine: Path, says: Any) -> None:
    """Whatever is a link there: the run ends before any work, and nothing is written elsewhere."""
    elsewhere = mine.parent / "elsewhere"
    (mine / "out").mkdir()
    for name in OWN:
        place = mine / "out" / name
        place.symlink_to(elsewhere / "file" if name in OWN[-2:] else elsewhere)
        assert f"{name}: got a symbolic link" in says(1, *CLASSIFY, "out").err
        place.unlink()
        assert (list(elsewhere.iterdir()), list((mine / "out").iterdir())) == ([], []), name
    assert run([*CLASSIFY, "out"]) == 0
    for name in ("_census", "_labelled"):
        (mine / "out" / name).rename(elsewhere / name)
        (mine / "out" / name).symlink_to(elsewhere / name)
    before = {path: path.stat().st_mtime_ns for path in elsewhere.rglob("*")}
    for command in (["census", "out", "--store", "models"], ["review", "out"]):
        assert "got a symbolic link" in says(1, *command).err
    assert {path: path.stat().st_mtime_ns for path in elsewhere.rglob("*")} == before


def test_the_output_folder_itself_may_be_a_link(mine: Path) -> None:
    (mine / "out").symlink_to(mine.parent / "elsewhere")
    assert run([*CLASSIFY, "out"]) == 0
    assert (mine.parent / "elsewhere" / "manifest.json").is_file()


@pytest.mark.parametrize("name", ["", "champion", "VERSION", "VERSION/model.asdf"])
def test_no_link_inside_the_store_is_followed(mine: Path, says: Any, name: str) -> None:
    version = Store(mine / "models").champion("morphology")
    place = mine / "models" / "morphology" / name.replace("VERSION", str(version))
    place.rename(mine.parent / "elsewhere" / "moved")
    place.symlink_to(mine.parent / "elsewhere" / "moved")
    assert f"{place.relative_to(mine)}: got a symbolic link" in says(1, *CLASSIFY, "out").err
    assert not (mine / "out" / "manifest.json").exists()


def test_a_list_of_models_reads_no_description_through_a_link(mine: Path, says: Any) -> None:
    (place,) = (mine / "models" / "morphology").glob("*/description.json")
    place.rename(mine.parent / "elsewhere" / "moved")
    place.symlink_to(mine.parent / "elsewhere" / "moved")
    (line,) = json.loads(says(0, "models", "list", "--store", "models", "--json").out)["models"]
    assert "log_loss" not in line


@pytest.mark.parametrize(
    "place",
    [
        "https://example.org/x?secret=HUSH",
        "https://me:HUSH@example.org/x",
        "file:///x?secret=HUSH",
        "x?secret=HUSH",
        "zip://a::https://example.org/x?secret=HUSH",
    ],
)
def test_what_looks_like_a_secret_is_not_repeated(
    mine: Path, capsys: pytest.CaptureFixture[str], place: str
) -> None:
    """A URL may stand where a path, a store or an output folder is expected."""
    for command in (
        ["train", place, "--direct"],
        ["models", "show", "morphology", "--store", place],
        ["inspect", place] if place.startswith("x") else [*CLASSIFY, place],
    ):
        assert run(command) in (1, 2), command
        assert "HUSH" not in capsys.readouterr().err
    for command in (
        ["models", "list", "--store", place],
        ["models", "list", "--store", place, "--json"],
        ["models", "show", place, "--store", "models"],
    ):
        run(command)
        said = capsys.readouterr()
        assert "HUSH" not in said.out + said.err
    assert not (mine / "out").exists()


# --- parameters stay inside the roots


@pytest.fixture
def rooted(trained: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a survey's folder, the only one that may be used; links and `..` lead out of it."""
    inside, outside = tmp_path / "survey", tmp_path / "outside"
    shutil.copytree(trained, inside)
    shutil.copytree(trained, outside)
    (inside / "link").symlink_to(outside)
    text = (inside / "spec.toml").read_text()
    (inside / "spec-of-links.toml").write_text(text.replace('"survey.parquet"', '"link/survey.parquet"'))
    target = '\n[target]\npaths = ["../outside/survey.parquet"]\n'
    (inside / "spec-of-dots.toml").write_text(text + target)
    monkeypatch.setenv("BLR_ROOTS", str(inside))
    monkeypatch.chdir(inside)
    return inside


SURVEY, STORE, SPEC, OUT = Path("survey.parquet"), Path("models"), Path("spec.toml"), Path("out")
MODEL = "morphology"


@pytest.mark.parametrize(
    ("flow", "parameters"),
    [
        (train, (Path("link/spec.toml"), STORE)),
        (train, (Path("../outside/spec.toml"), STORE)),
        (train, (SPEC, Path("link/models"))),
        (train, (Path("spec-of-links.toml"), STORE)),
        (classify, ([Path("link/survey.parquet")], MODEL, STORE, OUT)),
        (classify, ([Path("../outside/*.parquet")], MODEL, STORE, OUT)),
        (classify, ([SURVEY], MODEL, Path("../outside/models"), OUT)),
        (classify, ([SURVEY], MODEL, STORE, Path("link/out"))),
        (classify, ([SURVEY], MODEL, STORE, Path("../out"))),
        (classify, ([SURVEY], MODEL, STORE, OUT, Path("link/spec.toml"))),
        (reprocess, (Path("spec-of-links.toml"), STORE)),
        (reprocess, (Path("spec-of-dots.toml"), STORE)),
        (reprocess, (SPEC, Path("link/models"))),
        (reprocess, (SPEC, STORE, None, Path("link/out"))),
        (review, (Path("link"),)),
        (promote, (MODEL, Path("link/models"), "now")),
    ],
    ids=lambda given: given.name if hasattr(given, "name") else None,
)
def test_no_parameter_leads_out_of_the_roots(rooted: Path, flow: Any, parameters: tuple[Any, ...]) -> None:
    before = {path: path.stat().st_mtime_ns for path in (rooted.parent / "outside").rglob("*")}
    with pytest.raises(UsageError, match="BLR_ROOTS"):
        flow.fn(*parameters)
    assert {path: path.stat().st_mtime_ns for path in (rooted.parent / "outside").rglob("*")} == before


@pytest.mark.parametrize("name", ["../../outside", "..", "a/../../../outside", "/etc", "link"])
def test_a_models_name_is_no_path(rooted: Path, name: str) -> None:
    with pytest.raises((ModelError, UsageError)):
        classify.fn([SURVEY], name, STORE, OUT)
    with pytest.raises((ModelError, UsageError)):
        promote.fn(f"{name}@0123456789ab", STORE, "now")
    assert not (rooted / "out").exists()


# --- texts of catalogues are texts


def unescaped(text: str) -> list[str]:
    """Return what Markdown would take for markup of a hostile text's parts."""
    return [part for part in ("<script", "<img", "</td", " **b**", "[l](", " `x`") if part in text]


def test_names_of_classes_flags_and_files_are_literal_on_the_pages_of_runs() -> None:
    estimate = ClassEstimate(assigned=3, expected=3.2, error=0.1, error_objects=0.1, error_weights=0.0)
    flag = FlagCount(bit=0, meaning=HOSTILE, count=1, share=0.5)
    found = summary(drifted=(HOSTILE,), classes={HOSTILE: estimate}, flags={HOSTILE: flag})
    ones = {field.name: 1 for field in fields(Difference)}
    moves = {"transitions": (Transition(was=HOSTILE, now=HOSTILE, objects=1),), "examples": ()}
    difference = Difference(**ones | moves | {"flags_gained": {HOSTILE: 1}, "flags_lost": {HOSTILE: 1}})
    result = ReleaseResult(
        status="done",
        model=HOSTILE,
        out=Path(),
        manifest=Path(),
        release=1,
        files={f"new {HOSTILE}": FileWork(input=HOSTILE, n_rows=3, to_do=True, why=HOSTILE)},
        retired=(HOSTILE,),
        quarantined={HOSTILE: HOSTILE},
        stale=(),
        deferred={HOSTILE: HOSTILE},
        summary=found,
        before=None,
        drifted=(HOSTILE,),
        difference=difference,
    )
    tables = run_tables(result)
    assert {*tables} == {"files", "classes", "flags", "drift", "difference", "troubles"}
    for name, table in tables.items():
        page = to_markdown(table)
        assert "alert" in page, name
        assert unescaped(page) == [], name
        rows = [line for line in page.splitlines() if line.startswith("|")]
        assert len({line.replace("\\|", "").count("|") for line in rows}) == 1, "a column more"


def test_the_card_of_a_model_takes_names_literally(trained: Path) -> None:
    model = Store(trained / "models").load("morphology")
    bad = changed(make_model((HOSTILE, "late")), inputs=(InputFile(name=HOSTILE, sha256=HOSTILE, n_rows=1),))
    trust = replace(model.trust, reasons=(HOSTILE,))
    card = model_card(replace(model, classes=(HOSTILE, "late"), trust=trust), bad, ())
    assert unescaped(card) == []
    assert card.count("alert") >= 4
    assert not re.search(r"^# one", card, flags=re.MULTILINE), "a new line makes a heading"


# --- secrets


def test_a_servers_address_is_told_without_its_password(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PREFECT_API_URL", "http://blr:secret@127.0.0.1:1/api")
    cli_serve.run_ui(opened=False)
    said = capsys.readouterr()
    assert "http://127.0.0.1:1" in said.out
    assert "secret" not in said.out + said.err
