"""Paths and URLs of users are resolved once; all later code takes the source or the catalogue."""

from __future__ import annotations

import ast
import os
import re
from pathlib import Path

import fsspec
import numpy as np
import pytest
from astropy.table import Table

from catalogs.formats import TableChoice
from flows.errors import UsageError
from flows.inputs import fetching
from flows.inputs.opening import find_files, open_source, opened, opened_together
from flows.inputs.source import (
    InputCatalogue,
    InputFile,
    LocalSource,
    Origin,
    RemoteSource,
    copy_name_of,
    resolve_one,
    resolve_sources,
)
from flows.runs import outputs
from flows.runs.outputs import file_sha256

FLOWS = Path(__file__).resolve().parents[3] / "flows"

DOORS = {
    "flows/classification/explanation.py",
    "flows/classification/steps.py",
    "flows/cli/_inspect.py",
    "flows/draft/inspection.py",
    "flows/labels/source.py",
    "flows/training/_target.py",
    "flows/training/steps.py",
}
"""Modules that turn a user's text into sources; `_target_rows` and `labels` have names of their own."""
RESOLVING = {"resolve_sources", "resolve_one"}
LOOKING = {
    "expanduser",
    "glob",
    "rglob",
    "is_dir",
    "sniff",
    "format_of",
    "tables_of",
    "files_below",
    "expand",
    "is_remote",
}
"""Calls that find out what a place is."""


@pytest.fixture
def release(tmp_path: Path) -> Path:
    folder = tmp_path / "release"
    folder.mkdir()
    for name, n in (("a", 3), ("b", 5)):
        Table({"x": np.arange(n, dtype=float)}).write(folder / f"{name}.fits")
    (folder / "README.txt").write_text("notes")
    return folder


def calls(path: Path, wanted: set[str]) -> set[str]:
    """Return which of some names a module calls; a module that has none of the words is not parsed."""
    text = path.read_text(encoding="utf-8")
    if wanted.isdisjoint(re.findall(r"\w+", text)):
        return set()
    called = (node.func for node in ast.walk(ast.parse(text)) if isinstance(node, ast.Call))
    return wanted & {getattr(func, "id", getattr(func, "attr", "")) for func in called}


def test_names_are_resolved_at_the_doors_alone() -> None:
    found = {
        path.relative_to(FLOWS.parent).as_posix() for path in FLOWS.rglob("*.py") if calls(path, RESOLVING)
    }
    assert found - {"flows/inputs/source.py"} == DOORS


@pytest.mark.parametrize("room", ["classification", "training", "draft", "reviews", "features"])
def test_behind_the_doors_nobody_asks_what_an_input_is(room: str) -> None:
    asking = {path.name: calls(path, LOOKING) for path in (FLOWS / room).glob("*.py")}
    asking.pop("_staging.py", None)  # looks for drafts of its own
    asking.pop("_repeats.py", None)  # looks for sketches of its own
    asking.pop("_rows.py", None)  # a worker looks whether it sees the folder of the rows
    asking.pop("explanation.py", None)  # looks whether the store that a manifest names is here
    assert {name: names for name, names in asking.items() if names} == {}


def test_the_kinds(release: Path) -> None:
    (release.parent / "sky").mkdir()
    (release.parent / "sky" / "hats.properties").write_text("obs_collection=sky\n")
    sources = resolve_sources(
        ["release", "release/*.fits", "sky", "s3://user:word@bucket/x"], release.parent, key="x"
    )
    assert sources[:-1] == (
        LocalSource(release, "folder"),
        LocalSource(release / "a.fits", "file"),
        LocalSource(release / "b.fits", "file"),
        LocalSource(release.parent / "sky", "hats"),
    )
    assert isinstance(sources[-1], RemoteSource)
    assert "word" not in repr(sources[-1])
    assert resolve_one(str(release / "*.fits"), key="FILE") == LocalSource(release / "*.fits", "pattern")
    assert resolve_one(release / "none.fits", key="FILE") == LocalSource(release / "none.fits")


def test_a_catalogue_is_the_same_without_the_list_of_its_files(release: Path) -> None:
    """A task opens what the plan has opened, without looking again, however many files there are."""
    (one, *_), failed = find_files(
        [InputCatalogue.of(LocalSource.at(release), TableChoice(None, ("x",)), form="parquet")],
        lambda _: None,
        tolerated=(),
    )
    there = one.catalogue.unlisted()
    assert (len(one.catalogue.files), there.files) == (2, ())
    assert (failed, there, one.name) == ({}, one.catalogue, "a.parquet")
    assert open_source(there) is open_source(one.catalogue)


def test_a_state_is_taken_once(release: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    catalogue = InputCatalogue.of(LocalSource.at(release), TableChoice())
    assert [file.path.name for file in catalogue.files] == ["a.fits", "b.fits"]
    first = catalogue.file(release / "a.fits")
    assert first.size == (release / "a.fits").stat().st_size
    state = first.state().hashed(first.path)
    assert first.looks_like(state)
    assert (first.state().sha256, state.sha256) == ("", file_sha256(first.path)), "read when asked for"
    monkeypatch.setattr(outputs, "file_sha256", None)
    assert first.state([None, state]) == state, "not hashed again"
    origin = Origin("a.fits", "https://survey.org/a.fits", "etag")
    assert InputFile.at(first.path, origin).state([state]).tag == "etag"
    os.utime(release / "a.fits", (1, 1))
    assert not InputFile.at(release / "a.fits").looks_like(state)
    assert InputCatalogue.of(LocalSource.at(release), TableChoice()) != catalogue


def test_files_that_are_left_out_are_not_opened(release: Path) -> None:
    (release / "b.fits").write_bytes(b"no table")
    whole = InputCatalogue.of(LocalSource.at(release), TableChoice())
    catalogue = whole.leaving_out(
        {release / "b.fits": "still written", release.parent / "c.fits": "another's"}
    )
    assert (catalogue.without, [f.path.name for f in catalogue.read()]) == (("b.fits",), ["a.fits"])
    found, failed = find_files([catalogue], lambda _: None, tolerated=())
    assert ([f.name for f in found], failed) == (["a.fits"], {})
    assert copy_name_of(release / "b.fits", [catalogue]) == "b.fits"


def test_a_link_in_a_folder_stays_inside_the_roots_whoever_opens_it(
    release: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A trial, or a target that rows are compared with, opens folders too."""
    secret = release.parent / "secret.fits"
    Table({"x": [1.0]}).write(secret)
    (release / "c.fits").symlink_to(secret)
    monkeypatch.setenv("BLR_ROOTS", str(release))
    leads_out = pytest.raises(UsageError, match=r"shift.target: got '.*c.fits', which leads to .*secret.fits")
    with leads_out, opened([LocalSource.at(release)], TableChoice(), key="shift.target"):
        pass
    with opened([LocalSource(release, "folder", fetched=True)], TableChoice()) as (catalog,):
        assert catalog.n_rows == 9


def test_a_server_is_asked_once_for_its_files(release: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """First whether they can be read in their place, which FITS cannot, then to fetch them."""
    filesystem = fsspec.filesystem("memory")
    filesystem.put(str(release / "a.fits"), "/sources-once/a.fits")
    asked: list[str] = []
    listed = fetching.remote_listing
    monkeypatch.setattr(
        fetching, "remote_listing", lambda url, *a, **k: asked.append(url) or listed(url, *a, **k)
    )
    source = RemoteSource("memory://sources-once/a.fits")
    try:
        with opened([source], TableChoice()) as (catalog,), opened_together(source, TableChoice()) as same:
            assert catalog.n_rows == same.n_rows == 3
    finally:
        filesystem.rm("/sources-once", recursive=True)
    assert asked == [source.url] * 2, "once by each"
