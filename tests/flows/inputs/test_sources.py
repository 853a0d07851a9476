"""Paths and URLs of users are resolved once; all later code takes the source or the catalogue."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from astropy.table import Table

from catalogs.formats import TableChoice
from flows.errors import UsageError
from flows.inputs.opening import find_files, opened
from flows.inputs.source import (
    InputCatalogue,
    LocalSource,
    RemoteSource,
    copy_name_of,
    resolve_one,
    resolve_sources,
)


@pytest.fixture
def release(tmp_path: Path) -> Path:
    folder = tmp_path / "release"
    folder.mkdir()
    for name, n in (("a", 3), ("b", 5)):
        Table({"x": np.arange(n, dtype=float)}).write(folder / f"{name}.fits")
    (folder / "README.txt").write_text("notes")
    return folder


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
    assert resolve_one(str(release / "*.fits")) == LocalSource(release / "*.fits", "pattern")
    assert resolve_one(release / "none.fits") == LocalSource(release / "none.fits")


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
