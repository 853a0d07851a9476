"""Paths stay inside the configured roots: links and `..` tried."""

from __future__ import annotations

import pytest

from flows.errors import UsageError
from flows.inputs import resolve_paths
from flows.roots import check_inside


@pytest.fixture
def root(tmp_path, monkeypatch):
    inside = tmp_path / "survey"
    inside.mkdir()
    (tmp_path / "secret.fits").write_text("")
    (inside / "own.fits").write_text("")
    (inside / "link.fits").symlink_to(tmp_path / "secret.fits")
    (inside / "folder").symlink_to(tmp_path)
    monkeypatch.setenv("BLR_ROOTS", str(inside))
    return inside


def test_inside(root):
    for name in ("own.fits", "new/folder", "a/../own.fits", "."):
        assert check_inside(root / name, key="x") == root / name


@pytest.mark.parametrize(
    "name", ["../secret.fits", "link.fits", "folder/secret.fits", "a/../../secret.fits", "..", "/etc/passwd"]
)
def test_outside(root, name):
    with pytest.raises(UsageError, match=r"out: got .*, expected a path inside .*survey.*\(BLR_ROOTS\)"):
        check_inside(root / name, key="out")
    with pytest.raises(UsageError, match="BLR_ROOTS"):
        resolve_paths([name], root, key="target.paths")


def test_what_a_pattern_finds_is_looked_at_too(root):
    with pytest.raises(UsageError, match=r"link.fits', which leads to .*secret.fits"):
        resolve_paths(["*.fits"], root, key="target.paths")


def test_a_root_whose_name_only_begins_the_same(root):
    (root.parent / "survey2").mkdir()
    with pytest.raises(UsageError):
        check_inside(root.parent / "survey2", key="out")


def test_without_roots_everything_goes(root, monkeypatch):
    monkeypatch.delenv("BLR_ROOTS")
    assert check_inside(root / "../secret.fits", key="x")


@pytest.mark.parametrize(
    "url", ["https://example.org/a.parquet", "s3://bucket/release/*.parquet", "file:///etc/passwd"]
)
def test_no_url_is_a_catalogue_of_a_flow(root, url):
    """Roots or none: a form of the server would else fetch whatever it is told to."""
    with pytest.raises(
        UsageError, match=r"target.paths: got '.*', expected a path: .*catalogs.annotate in Python"
    ):
        resolve_paths([url], root, key="target.paths")
