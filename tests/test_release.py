"""The parts of a release agree: version, dependencies, papers, notes; and the workflow asks for no secret."""

from __future__ import annotations

import json
import re
import runpy
import tomllib
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).resolve().parent.parent
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
CONDA_NAMES = {"astropy": "astropy-base"}

release_notes = runpy.run_path(str(ROOT / "release" / "notes.py"))["release_notes"]


def text_of(name: str) -> str:
    return (ROOT / name).read_text(encoding="utf-8")


def test_the_conda_recipe_asks_for_what_the_wheel_asks_for() -> None:
    recipe = yaml.safe_load(text_of("release/conda/recipe.yaml"))
    assert recipe["context"]["version"] == PROJECT["version"]
    expected = set()
    for requirement in PROJECT["dependencies"]:
        name, bounds = re.fullmatch(r"([\w-]+)(?:\[\w+\])?(.*)", requirement).groups()
        expected.add(f"{CONDA_NAMES.get(name, name)} {bounds}")
    assert set(recipe["requirements"]["run"]) == expected | {"greenlet", "python >=${{ python_min }}"}
    (least,) = yaml.safe_load(text_of("release/conda/variants.yaml"))["python_min"]
    assert PROJECT["requires-python"] == f">={least}"
    assert recipe["build"]["python"]["entry_points"] == [f"blr = {PROJECT['scripts']['blr']}"]


def test_citation_and_archive_are_of_this_version_and_these_papers() -> None:
    citation, archive = yaml.safe_load(text_of("CITATION.cff")), json.loads(text_of(".zenodo.json"))
    assert citation["version"] == PROJECT["version"]
    assert citation["license"] == archive["license"] == PROJECT["license"]
    assert citation["title"] == archive["title"]
    methods = text_of("docs/methods.md")
    cited = [reference["doi"] for reference in citation["references"] if "doi" in reference]
    assert len(cited) > 5
    assert [doi for doi in cited if doi not in methods] == []
    assert {related["identifier"] for related in archive["related_identifiers"]} <= set(cited)


def test_every_python_that_is_claimed_is_tried() -> None:
    claimed = {c.rsplit(" ", 1)[1] for c in PROJECT["classifiers"] if re.search(r"Python :: 3\.\d+$", c)}
    workflow = yaml.safe_load(text_of(".github/workflows/ci.yml"))
    assert set(workflow["jobs"]["run"]["strategy"]["matrix"]["python"]) == claimed
    assert min(claimed, key=lambda v: int(v.split(".")[1])) == PROJECT["requires-python"].removeprefix(">=")


def test_the_release_workflow_publishes_by_trust_and_only_tags() -> None:
    workflow = yaml.safe_load(text_of(".github/workflows/release.yml"))
    assert workflow[True]["push"].keys() == {"tags"}  # YAML takes `on` for a truth value
    assert workflow["permissions"] == {"contents": "read"}
    assert workflow["jobs"]["publish"]["permissions"] == {"id-token": "write"}
    assert workflow["jobs"]["publish"]["environment"] == "release"
    assert "secrets." not in text_of(".github/workflows/release.yml")


CHANGELOG = """# Changelog

## [Unreleased]

## [1.2.0] - 2027-01-05

### Added

- A thing.

## [1.1.0] - 2026-12-01

- Another.
"""


def test_the_notes_of_a_release_are_its_section_of_the_changelog() -> None:
    assert release_notes("v1.2.0", CHANGELOG, "1.2.0") == "### Added\n\n- A thing."
    assert release_notes("v1.1.0", CHANGELOG, "1.1.0") == "- Another."


@pytest.mark.parametrize(
    ("tag", "version", "message"),
    [
        ("v1.2.1", "1.2.0", "got the tag v1.2.1, expected v1.2.0"),
        ("v1.3.0", "1.3.0", r"CHANGELOG.md has no section \[1.3.0\]; rename \[Unreleased\]"),
    ],
)
def test_a_release_without_notes_or_of_another_version_stops(tag: str, version: str, message: str) -> None:
    with pytest.raises(SystemExit, match=message):
        release_notes(tag, CHANGELOG, version)
