"""Paths and URLs stay inside the configured roots: links, `..`, other hosts tried."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from flows.demo.steps import run_demo
from flows.errors import UsageError
from flows.inputs.source import LocalSource, RemoteSource, resolve_sources
from flows.models.store import Store
from flows.runs.references import check_inside, url_roots
from flows.specification.specification import Output
from flows.specification.toml_file import load_specification
from flows.tables import classify_table
from tests.flows.verbs import classify, promote, reprocess, review, train


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    inside = tmp_path / "survey"
    inside.mkdir()
    (tmp_path / "secret.fits").write_text("")
    (inside / "own.fits").write_text("")
    (inside / "link.fits").symlink_to(tmp_path / "secret.fits")
    (inside / "folder").symlink_to(tmp_path)
    monkeypatch.setenv("BLR_ROOTS", str(inside))
    return inside


def test_inside(root: Path) -> None:
    for name in ("own.fits", "new/folder", "a/../own.fits", "."):
        assert check_inside(root / name, key="x") == root / name


@pytest.mark.parametrize(
    "name",
    ["../secret.fits", "../survey2", "link.fits", "folder/secret.fits", "a/../../secret.fits", "/etc/passwd"],
)
def test_outside(root: Path, name: str) -> None:
    with pytest.raises(UsageError, match=r"out: got .*, expected a path inside .*survey.*\(BLR_ROOTS\)"):
        check_inside(root / name, key="out")
    with pytest.raises(UsageError, match="BLR_ROOTS"):
        resolve_sources([name], root, key="target.paths")


def test_what_a_pattern_finds_is_looked_at_too(root: Path) -> None:
    with pytest.raises(UsageError, match=r"link.fits', which leads to .*secret.fits"):
        resolve_sources(["*.fits"], root, key="target.paths")


@pytest.mark.usefixtures("root")
def test_a_trials_store_lies_with_temporary_files(tmp_path: Path) -> None:
    elsewhere = tmp_path / "temporary"
    with pytest.raises(UsageError, match="store: got"):
        Store.named(elsewhere)
    assert Store(elsewhere).make_folder("model", "0123456789ab").is_dir()


URLS = "https://survey.org:8443/release:s3://bucket/data/:http://[::1]:80"


@pytest.fixture
def mixed(root: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setenv("BLR_ROOTS", f"{root}:{URLS}:{root.parent / 'models'}")
    return root


def test_roots_are_told_apart_though_urls_have_colons(mixed: Any) -> None:
    assert url_roots() == ("https://survey.org:8443/release", "s3://bucket/data/", "http://[::1]:80")
    for inside in (mixed / "own.fits", mixed.parent / "models" / "x"):
        assert check_inside(inside, key="x") == inside


@pytest.mark.parametrize(
    "url", ["https://survey.org:8443/release/a.parquet", "s3://bucket/data/*.parquet", "http://[::1]/a"]
)
def test_a_url_below_a_root(mixed: Any, url: str) -> None:
    assert resolve_sources([url], mixed, key="target.paths") == (RemoteSource(url),)


@pytest.mark.parametrize(
    "url",
    [
        "https://survey.org/release/a.parquet",
        "https://survey.org:8443/release2/a.parquet",
        "https://survey.org:8443/release/../secret.parquet",
        "http://169.254.169.254/latest/meta-data/a.parquet",
        "http://localhost:4200/api/a.parquet",
        "memory://a.parquet",
        "https://survey.org:8443@169.254.169.254/release/a.parquet",
    ],
)
def test_a_url_elsewhere(mixed: Any, url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A form of the server would else fetch whatever it is told to, from inside the network."""
    with pytest.raises(
        UsageError, match=r"target.paths: got '.*', expected a path or a URL below .*\(BLR_ROOTS\)"
    ):
        resolve_sources([url], mixed, key="target.paths")
    monkeypatch.setenv("BLR_ROOTS", str(mixed))
    with pytest.raises(UsageError, match="expected a path or a URL below"):
        resolve_sources([url], mixed, key="target.paths")
    monkeypatch.delenv("BLR_ROOTS")
    assert resolve_sources([url], mixed, key="target.paths") == (RemoteSource(url),)


def test_urls_alone_allow_no_folder(mixed: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BLR_ROOTS", URLS)
    with pytest.raises(UsageError, match="expected a path inside"):
        check_inside(mixed / "own.fits", key="out")


@pytest.mark.parametrize("scheme", ["file", "local"])
def test_a_url_of_this_machine_is_a_path(mixed: Any, scheme: str) -> None:
    assert resolve_sources([f"{scheme}://{mixed}/own.fits"], mixed, key="x") == (
        LocalSource(mixed / "own.fits"),
    )
    for name in ("../secret.fits", "link.fits", "folder/*.fits"):
        with pytest.raises(UsageError, match=r"expected a path inside .*BLR_ROOTS"):
            resolve_sources([f"{scheme}://{mixed}/{name}"], mixed, key="x")


@pytest.mark.parametrize("with_roots", [True, False])
def test_a_chain_of_urls_is_refused(mixed: Any, monkeypatch: pytest.MonkeyPatch, *, with_roots: bool) -> None:
    """The inner one may be of anywhere, this machine's files included."""
    if not with_roots:
        monkeypatch.delenv("BLR_ROOTS")
    for url in ("simplecache::file:///etc/passwd", "zip://a.parquet::https://survey.org:8443/release/a.zip"):
        with pytest.raises(UsageError, match="a file inside an archive"):
            resolve_sources([url], mixed, key="x")


def test_a_file_is_one_however_it_is_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("b.fits", "a.fits"):
        (tmp_path / name).touch()
    monkeypatch.chdir(tmp_path)
    (tmp_path / "link.fits").symlink_to("b.fits")
    patterns = ["b.fits", "./b.fits", str(tmp_path / "b.fits"), f"../{tmp_path.name}/b.fits", "*.fits"]
    found = resolve_sources(patterns, Path(), key="target.paths")
    assert found == tuple(LocalSource(Path(name)) for name in ("b.fits", "a.fits", "link.fits"))


STORE_URL = "s3://user:secret@bucket/out"
WRITERS: dict[str, tuple[str, Callable[[Path], object]]] = {
    "classify": ("out", lambda folder: classify(["x"], model="m", store=folder, out=STORE_URL)),
    "classify's store": (
        "store",
        lambda folder: classify(["x"], model="m", store=Path(STORE_URL), out=folder),
    ),
    "reprocess": ("out", lambda folder: reprocess(folder / "spec.toml", store=folder, out=Path(STORE_URL))),
    "reprocess's store": ("store", lambda folder: reprocess(folder / "spec.toml", store=STORE_URL)),
    "train": ("store", lambda folder: train(folder / "spec.toml", STORE_URL)),
    "review": ("out", lambda _: review(Path(STORE_URL))),
    "promote": ("store", lambda _: promote("m@1234", store=STORE_URL)),
    "classify_table": ("store", lambda _: classify_table(None, model="m", store=STORE_URL)),
    "demo": ("out", lambda _: run_demo(Path(STORE_URL))),
}


@pytest.mark.parametrize(("key", "work"), WRITERS.values(), ids=WRITERS)
def test_work_writes_to_no_url_with_a_password(folder: Path, key: str, work: Callable[..., Any]) -> None:
    """It is refused before anything is read or made, and its password is not shown; a release needs no password."""
    before = sorted(folder.rglob("*"))
    with pytest.raises(UsageError, match=f"^{key}: got 's3://user@bucket/out'(,| with a password,) expected"):
        work(folder)
    assert sorted(folder.rglob("*")) == before


def test_an_output_folder_of_a_specification_is_no_url(folder: Path) -> None:
    text = (folder / "spec.toml").read_text()
    specification = load_specification(folder / "spec.toml")
    there = specification.model_copy(update={"output": Output(folder=STORE_URL)})
    with pytest.raises(UsageError, match=r"^output\.folder: got 's3://user@bucket/out'"):
        reprocess(there, store=folder)
    (folder / "spec.toml").write_text(f'{text}\n[output]\nfolder = "{STORE_URL}"\n')
    with pytest.raises(UsageError, match=r"spec\.toml: output\.folder: got 's3://user@bucket/out'"):
        load_specification(folder / "spec.toml")
