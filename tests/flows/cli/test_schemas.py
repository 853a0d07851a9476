"""The schemas describe what commands print with --json and the files that they leave: every key, and nothing else."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from jsonschema import Draft202012Validator

import flows
from flows.cli._schemas import DOCUMENTS, VERSION, schema_of
from flows.cli.app import run
from flows.runs.progress import Listener, amount, listening, speed
from tests.flows.children import python
from tests.flows.verbs import train

KEYS = Path(__file__).with_name("keys.txt")


def closed(schema: Any) -> Any:
    """Return a schema in which an object has no keys but those that are described."""
    if isinstance(schema, list):
        return [closed(part) for part in schema]
    if not isinstance(schema, dict):
        return schema
    shut = {key: closed(part) for key, part in schema.items()}
    return shut | {"additionalProperties": False} if "properties" in shut else shut


def check(name: str, document: bytes) -> None:
    schema = closed(schema_of(name))
    Draft202012Validator.check_schema(schema)
    errors = list(Draft202012Validator(schema).iter_errors(document))
    assert not errors, errors[0]


@pytest.fixture
def work(trained: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    shutil.copytree(trained, tmp_path, dirs_exist_ok=True)
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def printed(capsys: pytest.CaptureFixture[str]) -> Any:
    def ask(*words: str, status: int = 0) -> Any:
        capsys.readouterr()
        assert run([*words, "--json"]) == status
        return json.loads(capsys.readouterr().out)

    return ask


def keys(name: str, schema: dict[str, Any]) -> dict[str, list[str]]:
    """Return the keys of each type in a document; those that may be absent end with a question mark."""
    types = {name: schema} | schema.get("$defs", {})
    return {
        kind: [key if key in part.get("required", ()) else f"{key}?" for key in part["properties"]]
        for kind, part in types.items()
        if "properties" in part
    }


def test_the_keys_are_those_of_this_version() -> None:
    """A key that goes asks for another version.  `python -m tests.flows.cli.test_schemas` writes the list anew."""
    assert KEYS.read_text() == listed()


def listed() -> str:
    """Return the keys of all documents, a type a line."""
    found = {kind: names for name in DOCUMENTS for kind, names in keys(name, schema_of(name)).items()}
    return "".join(f"{kind}: {' '.join(names)}\n" for kind, names in sorted(found.items()))


def test_what_commands_print(work: Any, printed: Any) -> None:
    check("train", printed("train", "spec.toml", "--dry-run"))
    check("train", printed("train", "spec.toml", "--direct"))
    check("train", printed("train", "spec.toml", "--direct", "--limit", "300"))
    check("inspect-catalogue", printed("inspect", "survey.parquet", "--label", "type"))
    check("inspect-catalogue", printed("inspect", "survey.fits"))
    (model,) = work.glob("models/morphology/*/model.asdf")
    check("inspect-model", printed("inspect", str(model)))
    check("init", printed("init", "survey.parquet", "--label", "type"))
    check("models-list", printed("models", "list"))
    check("models-show", printed("models", "show", "morphology"))
    check("models-promote", printed("models", "promote", "morphology", "--dry-run"))


def test_what_a_classification_prints_and_leaves(work: Any, printed: Any) -> None:
    common = ["--model", "morphology", "--out", "out", "--direct"]
    check("classify", printed("classify", "survey.parquet", *common, "--dry-run"))
    check("classify", printed("classify", "survey.parquet", *common, "--limit", "5"))
    check("classify", printed("classify", "survey.parquet", *common))
    check("review", printed("review", "out", "--top", "3", "--direct"))
    drawn = printed("audit", "draw", "out", "--n", "40", "--by", "bmag > 15", "--threshold", "late=0.6")
    check("audit-draw", drawn)
    lines = (work / "out" / "audit.csv").read_text().splitlines()
    (work / "answers.csv").write_text("\n".join([lines[0], *(f"{line}late" for line in lines[1:-2])]))
    check("audit-estimate", printed("audit", "estimate", "out", "answers.csv"))
    check("audit", json.loads((work / "out" / "audit.json").read_text()))
    check("audit-design", json.loads((work / "out" / "audit_design.json").read_text()))
    for name in ("summary", "manifest"):
        check(name, json.loads((work / "out" / f"{name}.json").read_text()))


def test_what_a_release_prints_and_leaves(work: Any, printed: Any) -> None:
    (work / "night").mkdir()
    shutil.copy("survey.parquet", "night/a.parquet")
    text = (work / "spec.toml").read_text()
    stated = '\n[target]\npaths = ["night/*"]\n[output]\nfolder = "release"\n'
    (work / "release.toml").write_text(text + stated)
    again = ["reprocess", "release.toml", "--settle", "0", "--direct"]
    (work / "night" / "damaged.parquet").write_bytes((work / "survey.parquet").read_bytes()[:-9])
    check("reprocess", printed(*again, "--dry-run", status=3))
    check("reprocess", printed(*again, status=3))
    (work / "night" / "damaged.parquet").unlink()
    check("reprocess", printed(*again))
    shutil.copy("survey.fits", "night/b.fits")
    (work / "night" / "a.parquet").unlink()
    result = printed(*again)
    check("reprocess", result)
    check("release-report", json.loads((work / result["report"]).read_text()))
    check("manifest", json.loads((work / "release" / "manifest.json").read_text()))


def test_the_command(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["schema"]) == 0
    assert capsys.readouterr().out.split() == list(DOCUMENTS)
    assert run(["schema", "summary"]) == 0
    assert json.loads(capsys.readouterr().out)["$id"] == f"blr/summary-{VERSION}"
    assert run(["schema", "summery"]) == 2
    assert "NAME: got 'summery', expected one of train, " in capsys.readouterr().err


if __name__ == "__main__":
    KEYS.write_text(listed())


def test_every_long_part_of_a_training_has_a_bar(folder: Path, make: SimpleNamespace) -> None:
    parts: list[str] = []

    class Heard(Listener):
        def start(self, what: str, total: int, unit: str) -> None:
            parts.append(f"{what}, {total} {unit}")

    make.parquet(folder / "survey.parquet", make.survey(150))
    text = (folder / "spec.toml").read_text()
    (folder / "spec.toml").write_text(text + '\n[select]\nposterior = "refined"\n')
    with listening(Heard()):
        train(folder / "spec.toml", folder / "models")
    words = ["reading", "describing", "fitting candidates"]
    words += [f"{part} candidate {n}" for n in (1, 2) for part in ("fitting", "left-out rows of")]
    words += ["refining candidate", "refining candidate", "judging", "drawing"]
    found = [part for part in parts if not part.startswith("checking candidate")]
    assert len(found) == len(words)
    assert all(part.startswith(w) for part, w in zip(found, words, strict=True)), parts


HOME = Path(flows.__file__).parent.parent


def test_a_package_that_comes_first_on_the_path_is_named(tmp_path: Path) -> None:
    other = tmp_path / "first" / "catalogs"
    other.mkdir(parents=True)
    (other / "__init__.py").write_text("")
    script = f"import flows, sys; sys.path.insert(0, {str(other.parent)!r}); from flows.cli.app import "
    done = python("-c", script + "check_packages; check_packages()")
    said = f"got the package 'catalogs' in {other}, expected the one of galaxyblr in"
    assert said in done.stderr.splitlines()[-1]


def test_a_distribution_among_our_files_is_named(tmp_path: Path) -> None:
    """As pip leaves it: both in one folder, each with its record; by the command itself."""
    for package in ("blr", "catalogs", "flows"):
        shutil.copytree(HOME / package, tmp_path / package)
    record = tmp_path / "blr-0.4.dist-info" / "RECORD"
    record.parent.mkdir()
    record.write_text("blr-0.4.dist-info/RECORD,,\nblr/client.py,,\n")
    done = python("-m", "flows", "models", "list", cwd=tmp_path)
    assert done.returncode == 2
    (said,) = done.stderr.splitlines()
    assert said.startswith("blr: error: got the package 'blr' of the distribution blr 0.4, whose files")


def test_a_speed_is_of_rows_or_bytes_that_took_some_time() -> None:
    assert speed(10_063, 3.3e-5, "rows") == speed(2, 1.2, "parts") == ""
    assert speed(10_000, 2.0, "rows") == ", 5,000 rows/s"
    assert speed(12, 5.0, "rows") == ", 2.4 rows/s"
    counts = ((0, "steps"), (1, "parts"), (1, "rows"), (5, "parts"))
    assert [amount(*count) for count in counts] == ["", "", "1 row", "5 parts"]
