"""Catalogues at URLs through inspect, init, train, classify and reprocess; servers that are good, and bad ones."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from catalogs.errors import CatalogError
from catalogs.remote.urls import UnreachableError
from flows.cli.app import run
from flows.documents import to_document
from flows.errors import OutputFolderError, SpecificationError, UsageError
from flows.inputs.source import FETCHED, RemoteSource, fetching
from flows.runs.manifest import Manifest, file_sha256
from flows.runs.results import ReleaseResult
from flows.specification.toml_file import load_specification
from flows.training._gather import handed_out
from tests.catalogs.web import Web, serving
from tests.flows.elsewhere import Elsewhere
from tests.flows.verbs import classify, reprocess, train
from tests.lasting import output_bytes

pytest.importorskip("aiohttp", reason="fsspec reads http with aiohttp")

PARTS = ("a.parquet", "b.parquet", "c.parquet")
ALL_BUT_B = {"a.parquet", "c.parquet", "report.html"}
Survey = SimpleNamespace


@pytest.fixture
def web(tmp_path: Path) -> Iterator[Web]:
    (tmp_path / "www" / "release").mkdir(parents=True)
    with serving(tmp_path / "www", ("parquet|fits|csv", "tagged")) as web:
        yield web


@pytest.fixture
def survey(
    trained: Path, tmp_path: Path, make: SimpleNamespace, web: Web, monkeypatch: pytest.MonkeyPatch
) -> Survey:
    """Return a model, a release of three files at a URL, and what to do with them."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "models").symlink_to(trained / "models")
    (tmp_path / "spec.toml").write_text(make.specification + f'\n[target]\npaths = ["{web.url}/release"]\n')

    def write(name: str, seed: int = 0, n: int = 60) -> Path:
        columns = make.survey(n, seed=seed)
        columns["name"] = np.array([f"{name}-{i}" for i in range(n)])
        path = web.folder / "release" / name
        path.parent.mkdir(exist_ok=True)
        path.unlink(missing_ok=True)
        return (make.fits if name.endswith(".fits") else make.parquet)(path, columns)

    def direct(*urls: str, **options: object) -> dict:
        return classify(urls, model="morphology", store="models", **({"out": "out"} | options))

    def again(**options: object) -> ReleaseResult:
        web.asked.clear()
        result = reprocess("spec.toml", store="models", quiet_seconds=0, **({"out": "out"} | options))
        json.dumps(to_document(result), allow_nan=False)
        assert not list(Path("out").glob(".blr-[!i]*"))
        return result

    for seed, name in enumerate(PARTS):
        write(name, seed)
    return Survey(
        out=tmp_path / "out", write=write, classify=direct, reprocess=again, url=f"{web.url}/release"
    )


def why(told: dict) -> dict[str, str]:
    return {name: file["why"] for name, file in told.files.items() if file["why"]}


def test_the_same_as_the_files_here(survey: Survey, web: Web) -> None:
    here: dict[frozenset[str], dict[str, bytes]] = {}
    for number, named in enumerate(("", "/", "/*.parquet", "/a.parquet", "/[ab].parquet")):
        out = Path(f"out{number}")
        told = survey.classify(survey.url + named, out=out)
        names = frozenset(told.files)
        if names not in here:
            pattern = "release/" + (named.strip("/") or "*")
            copy = Path(f"here{number}")
            classify([str(web.folder / pattern)], model="morphology", store="models", out=copy)
            here[names] = output_bytes(copy)
        assert output_bytes(out) == here[names], named
        manifest = Manifest.read(out)
        assert manifest is not None
        for output in manifest.outputs:
            assert output.input_path == told.files[output.name]["input"] == f"{survey.url}/{output.name}"
            assert output.input.sha256 == file_sha256(web.folder / "release" / output.name)
            assert output.input.tag.startswith("ETag: ")
        assert not list(out.glob(".blr-[!i]*"))
    assert {*here} == {frozenset(PARTS), frozenset(PARTS[:1]), frozenset(PARTS[:2])}


def test_only_what_is_new_or_changed_is_fetched(survey: Survey, web: Web) -> None:
    assert why(survey.reprocess()) == dict.fromkeys(PARTS, "new")
    before = output_bytes(survey.out)
    again = survey.reprocess()
    assert (again.status, web.bodies(), set(again.files)) == ("nothing to do", [], set(PARTS))
    survey.write("b.parquet", 9)
    survey.write("d.parquet", 4)
    (web.folder / "release" / "c.parquet").unlink()
    planned = survey.reprocess(dry_run=True)
    assert why(planned) == {"b.parquet": "changed", "d.parquet": "new"}
    assert output_bytes(survey.out) == before
    told = survey.reprocess()
    assert (why(told), told.retired) == (why(planned), ("_retired/0002/c.parquet",))
    assert sorted(web.bodies()) == ["/release/b.parquet", "/release/d.parquet"]
    classify([web.folder / "release"], model="morphology", store="models", out="here")
    found, here = output_bytes(survey.out), output_bytes(Path("here"))
    for name in ("report.html", "_retired/0002/c.parquet"):  # of a release
        del found[name]
        here.pop(name, None)
    assert found == here
    assert survey.reprocess().status == "nothing to do"
    assert survey.reprocess(verify=True).status == "nothing to do"
    assert len(web.bodies()) == 3, "to verify, all are fetched and hashed"


@pytest.mark.parametrize("word", ["plain", "weak"])
def test_without_a_word_that_can_be_trusted_all_is_fetched_and_hashed(
    survey: Survey, web: Web, word: str
) -> None:
    web.odd = [("release", word)]
    survey.reprocess()
    assert survey.reprocess().status == "nothing to do"
    assert len(web.bodies()) == 3
    seen = survey.write("d.fits").stat()
    survey.classify(f"{survey.url}/d.fits")
    path = survey.write("d.fits", 9)
    os.utime(path, ns=(seen.st_atime_ns, seen.st_mtime_ns))
    assert path.stat().st_size == seen.st_size
    assert why(survey.classify(f"{survey.url}/d.fits", overwrite=True)) == {"d.fits": "changed"}


def test_a_word_that_is_new_is_learned(survey: Survey, web: Web) -> None:
    """The same bytes under another tag, or after the minute in which a time is not trusted: fetched once more."""
    web.odd = []
    survey.reprocess()
    web.odd = [("parquet", "ages")]
    told = survey.reprocess()
    assert (told.status, told.release, why(told), len(web.bodies())) == ("done", 1, {}, 3)
    assert (survey.reprocess().status, web.bodies()) == ("nothing to do", [])


@pytest.mark.parametrize(
    ("word", "reason"),
    [
        ("500", "b.parquet cannot be read: the server answered 500; try again later"),
        ("403", "b.parquet may not be read: the server answered 403"),
        ("cut", "b.parquet cannot be read: .*; try again later"),
        ("fewer", "b.parquet gave [0-9,]+ bytes, expected [0-9,]+; the file changed or the connection broke"),
    ],
)
def test_one_that_does_not_come_is_set_aside(
    survey: Survey, web: Web, says: Any, word: str, reason: str
) -> None:
    tagged = web.odd[0]
    web.odd = [tagged, ("b.parquet", word)]
    command = ["reprocess", "spec.toml", "--out", "out", "--direct", "--json", "-q", "--settle", "0"]
    told = json.loads(says(3, *command).out)
    assert re.search(rf"^{survey.url}/{reason}", told["quarantined"]["b.parquet"])
    assert {name for name in output_bytes(survey.out) if name[0] != "_"} == ALL_BUT_B
    web.odd = [tagged]
    assert why(survey.reprocess()) == {"b.parquet": "new"}
    web.odd = [tagged, ("b.parquet", word)]
    survey.write("b.parquet", 9)
    before = output_bytes(survey.out)
    if word in {"cut", "fewer"}:
        assert survey.reprocess().quarantined.keys() == {"b.parquet"}
        kept = output_bytes(survey.out)
        assert kept.keys() == before.keys()
        assert {n for n in kept if kept[n] != before[n]} <= {"report.html"}, "the last annotated copy stays"


def test_a_damaged_one_is_tried_again_once_it_has_changed(survey: Survey, web: Web) -> None:
    path = web.folder / "release" / "b.parquet"
    whole = path.read_bytes()
    path.write_bytes(whole[:-200])
    told = survey.reprocess()
    assert told.quarantined["b.parquet"].startswith(f"{survey.url}/b.parquet")
    again = survey.reprocess()
    assert (again.status, web.bodies(), [*again.quarantined]) == ("nothing to do", [], ["b.parquet"])
    path.write_bytes(whole)
    assert why(survey.reprocess()) == {"b.parquet": "new"}


def test_a_server_that_is_away_retires_nothing(survey: Survey, web: Web) -> None:
    survey.reprocess()
    before = output_bytes(survey.out)
    for word, error in (("500", UnreachableError), ("404", CatalogError), ("403", CatalogError)):
        web.odd = [("release", word)]
        with pytest.raises(error, match=re.escape(survey.url)):
            survey.reprocess()
    web.odd = []
    for name in PARTS:
        (web.folder / "release" / name).unlink()
    with pytest.raises(CatalogError, match=f"{survey.url} holds no catalogue; expected names ending in"):
        survey.reprocess()
    assert output_bytes(survey.out) == before


def test_one_that_changes_while_it_is_read_is_left_for_the_next_run(survey: Survey, web: Web) -> None:
    web.odd = [*web.odd, ("b.parquet", "moving")]
    told = survey.reprocess()
    assert told.deferred == {"b.parquet": "it changed while it was read"}
    assert {name for name in output_bytes(survey.out) if name[0] != "_"} == ALL_BUT_B


def test_files_named_by_hand_are_told_of_at_once(survey: Survey, web: Web) -> None:
    web.odd = [*web.odd, ("b.parquet", "404")]
    with pytest.raises(CatalogError, match=f"there is no {survey.url}/b.parquet; correct the URL"):
        survey.classify(f"{survey.url}/a.parquet", f"{survey.url}/b.parquet")
    with pytest.raises(UsageError, match=r"whose outputs would have the name a.parquet"):
        survey.classify(f"{survey.url}/a.parquet", survey.url)
    with pytest.raises(UsageError, match=r"whose outputs would have the same name"):
        survey.classify(f"{survey.url}/a.parquet", str(web.folder / "release" / "a.parquet"))
    with pytest.raises(UsageError, match=r"twice, with different queries or users"):
        survey.classify(f"{survey.url}/a.parquet?1", f"{survey.url}/a.parquet?2")
    assert not survey.out.exists()


def test_a_killed_run_goes_on_from_what_it_had_fetched(survey: Survey, web: Web) -> None:
    web.odd = [*web.odd, ("c.parquet", "silent")]
    command = [sys.executable, "-m", "flows", "reprocess", "spec.toml", "--out", "out", "--direct", "-q"]
    environment = os.environ | {"PYTHONPATH": str(Path(__file__).parents[2])}
    with subprocess.Popen(command, env=environment, stderr=subprocess.PIPE) as process:
        end = time.monotonic() + 60
        while "GET /release/c.parquet" not in web.asked and process.poll() is None and time.monotonic() < end:
            time.sleep(0.01)
        assert process.poll() is None
        with pytest.raises(OutputFolderError, match="another run is writing to"):
            survey.classify(survey.url)
        process.send_signal(signal.SIGKILL)
    assert web.bodies() == [f"/release/{name}" for name in PARTS]
    web.odd.pop()
    assert why(survey.reprocess()) == dict.fromkeys(PARTS, "new")
    assert web.bodies() == ["/release/c.parquet"]
    classify([web.folder / "release"], model="morphology", store="models", out="here")
    assert output_bytes(survey.out) == output_bytes(Path("here"))


def test_what_a_killed_run_had_fetched_is_of_its_time(survey: Survey, web: Web) -> None:
    """Other bytes, and files that are gone, are not taken for what is there now."""
    with suppress(KeyboardInterrupt), fetching(survey.out) as bring:
        bring([RemoteSource(survey.url)])
        raise KeyboardInterrupt
    assert len(list((survey.out / FETCHED).rglob("*.parquet"))) == 3
    (web.folder / "release" / "a.parquet").unlink()
    survey.write("b.parquet", 9)
    assert set(why(survey.reprocess())) == {"b.parquet", "c.parquet"}
    assert web.bodies() == ["/release/b.parquet"]
    classify([web.folder / "release"], model="morphology", store="models", out="here")
    assert output_bytes(survey.out) == output_bytes(Path("here"))


def test_what_a_killed_run_had_fetched_goes_with_any_next_run(survey: Survey, web: Web) -> None:
    for error, kept in ((SystemExit, True), (ValueError, False)):  # Prefect's own signals are no Exception
        with suppress(error), fetching(survey.out) as bring:
            bring([RemoteSource(survey.url)])
            raise error
        assert (survey.out / FETCHED).is_dir() == kept
        survey.classify(str(web.folder / "release"))
        assert not (survey.out / FETCHED).exists()


def test_estimated_shares(survey: Survey, web: Web) -> None:
    told = survey.classify(survey.url, class_prior="em")
    classify([web.folder / "release"], model="morphology", store="models", out="here", class_prior="em")
    here = json.loads(Path("here/summary.json").read_text())
    assert told.summary.shift.class_priors == here["shift"]["class_priors"]
    web.asked.clear()
    assert survey.classify(survey.url, class_prior="em").status == "nothing to do"


def test_secrets_are_kept_nowhere(
    survey: Survey, web: Web, capsys: pytest.CaptureFixture[str], says: Any, tmp_path: Path
) -> None:
    web.odd = [*web.odd, ("release", "password")]
    url = survey.url.replace("//", "//user:secret@") + "/a.parquet?X-Amz-Signature=SIGNED"
    command = ["classify", url, "--model", "morphology", "--out", "out"]
    with pytest.MonkeyPatch.context() as configured:
        configured.setenv("PREFECT_API_URL", "http://127.0.0.1:9/api")
        assert run([*command]) == 2, "Prefect keeps parameters"
    assert "add --direct" in capsys.readouterr().err
    assert run([*command, "--direct", "--json"]) == 0
    said = capsys.readouterr()
    assert f"{survey.url}/a.parquet?..." in said.out
    kept = [path.read_bytes() for path in survey.out.rglob("*") if path.is_file()]
    assert not any(word in text for text in (said.out, said.err) for word in ("user:", "secret@", "SIGNED"))
    assert not any(word in content for content in kept for word in (b"secret@", b"SIGNED", b"X-Amz"))
    assert "Nothing to do" in says(0, *command, "--direct", "-q").out
    assert "SIGNED" not in says(0, "inspect", url, "--json").out
    assert "kept in models" in says(2, "init", url, "--label", "hubble").err
    text = (tmp_path / "spec.toml").read_text()
    for secret in (url, survey.url.replace("//", "//user:secret@"), f"{survey.url}?SIGNED"):
        (tmp_path / "secret.toml").write_text(text.replace(survey.url, secret))
        with pytest.raises(SpecificationError, match=r"target.paths.*expected a URL without") as caught:
            load_specification(tmp_path / "secret.toml")
        assert not re.search("secret@|SIGNED", str(caught.value))


@pytest.mark.parametrize("name", ["survey.parquet", "survey.fits"])
@pytest.mark.usefixtures("survey")
def test_inspect_init_and_train(web: Web, trained: Path, says: Any, name: str) -> None:
    shutil.copy(trained / name, web.folder / name)
    told = {}
    for where in (f"{web.url}/{name}", str(trained / name)):
        told[where] = json.loads(says(0, "inspect", where, "--label", "hubble", "--json").out)
        assert told[where].pop("path") == where
    assert told[f"{web.url}/{name}"] == told[str(trained / name)]
    assert run(["init", f"{web.url}/{name}", "--label", "hubble", "--out", "started.toml"]) == 0
    assert f'paths = ["{web.url}/{name}"]' in Path("started.toml").read_text()
    text = Path("spec.toml").read_text().replace('"survey.parquet"', f'"{web.url}/{name}"')
    text += f'[shift]\ntarget = "{web.url}/{name}"\n'
    Path("there.toml").write_text(text)
    Path("here.toml").write_text(text.replace(web.url, str(trained)))
    here, there = (train(f"{where}.toml", f"models-{where}") for where in ("here", "there"))
    assert there.training.content_hash == here.training.content_hash
    assert there.training.inputs[0]["name"] == name
    assert there.training.inputs == here.training.inputs


@pytest.mark.usefixtures("survey")
def test_workers_read_labelled_files_that_were_fetched(
    web: Web, make: SimpleNamespace, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They wait in the model store, which all machines see; afterwards they are gone."""
    monkeypatch.setattr("flows.training._gather.MOST_IN_MEMORY", 500)
    monkeypatch.setattr("flows.training._rows.SHARD_ROWS", 300)
    seen: list[Path] = []

    def handed(engine: Any, pieces: Any, work: Any) -> Any:
        seen.extend(piece.partition.path for piece in pieces)
        return handed_out(engine, pieces, work)

    monkeypatch.setattr("flows.training._gather.handed_out", handed)
    columns = make.survey(1200)
    for i, rows in enumerate(np.array_split(np.arange(1200), 3)):
        make.parquet(web.folder / f"night-{i}.parquet", {name: c[rows] for name, c in columns.items()})
    text, _, _ = make.specification.partition("[[candidate]]\nfeatures")
    text = text.replace("[features]", '[select]\nposterior = "laplace"\n[features]')
    for name, where in (("there", web.url), ("here", str(web.folder))):
        Path(f"{name}.toml").write_text(text.replace("survey.parquet", f"{where}/night-*.parquet"))
    with monkeypatch.context() as patch:
        patch.setattr("flows.training.steps.chosen_engine", lambda *_: Elsewhere())
        there = train("there.toml", "models-there")
    here = train("here.toml", "models-here")
    assert [path.name for path in seen] == ["night-0.parquet", "night-1.parquet", "night-2.parquet"]
    assert all(path.is_relative_to(Path("models-there").absolute()) for path in seen)
    assert not [path for path in Path("models-there").rglob("*") if "night" in path.name]
    assert there.training.content_hash == here.training.content_hash
    assert there.training.inputs == here.training.inputs
    assert there.candidates == here.candidates


def test_inspect_of_several(survey: Survey, says: Any) -> None:
    survey.write("d.fits")
    survey.write("e.fits", 1)
    for named, files, n_rows in (("/*.parquet", 3, 180), ("/*.fits", 2, 120)):
        told = json.loads(says(0, "inspect", survey.url + named, "--json").out)
        assert (told["files"], told["n_rows"]) == (files, n_rows)
    assert "expected files of one format" in says(1, "inspect", survey.url).err


@pytest.mark.usefixtures("survey")
def test_labels_at_a_url(web: Web, make: SimpleNamespace, trained: Path) -> None:
    shutil.copy(trained / "survey.parquet", "survey.parquet")
    columns = make.survey()
    lines = [f"{name},{kind}\n" for name, kind in zip(columns["name"], columns["hubble"], strict=True)]
    (web.folder / "labels.csv").write_text("".join(["name,hubble\n", *lines]))
    table = f'column = "hubble"\ntable = {{ path = "{web.url}/labels.csv", id = "name" }}'
    Path("joined.toml").write_text(make.specification.replace('column = "hubble"', table))
    told = train("joined.toml", "models-joined")
    assert told.training.training_counts == train("spec.toml", "models-own").training.training_counts


def test_roots(survey: Survey, web: Web, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BLR_ROOTS", f"{tmp_path}:{Path('models').resolve()}:{web.url}/release")
    assert survey.reprocess().status == "done"
    with pytest.raises(UsageError, match="BLR_ROOTS"):
        survey.classify(f"{web.url}/other.parquet")
    with serving(tmp_path) as inside:
        survey.write("secret.parquet")
        web.odd = [*web.odd, ("b.parquet", f"to {inside.url}/www/release/secret.parquet")]
        with pytest.raises(CatalogError, match=r"b.parquet redirects to .*, expected an address below"):
            survey.classify(f"{survey.url}/b.parquet")
        assert run(["inspect", f"{survey.url}/b.parquet"]) == 1
        assert inside.asked == []


def test_no_driver(says: Any) -> None:
    said = says(1, "inspect", "oss://bucket/a.parquet").err
    assert re.search(r"oss://bucket/a.parquet cannot be reached: .*install", said)
    assert "expected one of" in says(1, "inspect", "nowhere://a.parquet").err
