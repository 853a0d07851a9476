"""Releases published in object stores: real servers; whole releases or none, whoever is killed or comes second."""

from __future__ import annotations

import io
import json
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import fsspec
import pyarrow.parquet as pq
import pytest

from catalogs.errors import CatalogError
from catalogs.remote.remote_file import STORES, ObjectStore
from flows.classification.census_taking import take_census
from flows.cli.app import run as command_line
from flows.errors import OutputFolderError, UsageError
from flows.request import CensusRequest
from flows.runs.manifest import MANIFEST, file_sha256
from flows.runs.release_store import STAGING, folder_here
from tests.flows.children import free_port
from tests.flows.conftest import S3_SECRET, make_bucket
from tests.flows.verbs import classify, reprocess, review

PARTS = ("p0.parquet", "p1.parquet")
OUT = "s3://survey/products/release"
KEY = "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="
"""Azurite's, which is the same everywhere."""


@pytest.fixture
def work(trained: Path, make: SimpleNamespace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a folder with a store of models, and a release of two files that is to be published."""
    shutil.copytree(trained / "models", tmp_path / "models")
    (tmp_path / "release").mkdir()
    for seed, name in enumerate(PARTS):
        make.parquet(tmp_path / "release" / name, make.survey(60, seed=seed))
    (tmp_path / "spec.toml").write_text(make.specification + '\n[target]\npaths = ["release"]\n')
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(
        "flows.classification._publishing.write_classification_report",
        lambda _, plan, *__: (plan.out / "report.html").write_text("a report"),
    )
    monkeypatch.setenv(STAGING, str(tmp_path / "here"))
    return tmp_path


def run(out: str = OUT, **options: object) -> Any:
    return classify(["release"], model="morphology", store="models", out=out, **options)


def published(out: str = OUT) -> tuple[dict[str, Any], dict[str, bytes]]:
    """Return the manifest that is published, and the files of its folder."""
    store = ObjectStore(out)
    manifest = json.loads(store.read(MANIFEST)[0])
    names = store.sizes(manifest["files"])
    return manifest, {name: store.read(f"{manifest['files']}/{name}")[0] for name in names}


def check_replaced_on_condition(out: str) -> None:
    """Check that a manifest is put in the place of the one that was read, and of no other."""
    store = ObjectStore(out)
    content, tag = store.read(MANIFEST)
    assert tag is not None
    assert not store.replace(MANIFEST, b"{}", before=None)
    assert store.replace(MANIFEST, content, before=tag)
    assert not store.replace(MANIFEST, b"{}", before=tag)


def folders(out: str = OUT) -> set[str]:
    return {key.partition("/")[0] for key in ObjectStore(out).sizes("") if "/" in key}


def outputs(manifest: dict[str, Any], files: dict[str, bytes]) -> dict[str, str]:
    table = pq.read_table(io.BytesIO(files[manifest["table"]["path"]]))
    return dict(zip(table["name"].to_pylist(), table["sha256"].to_pylist(), strict=True))


@pytest.mark.usefixtures("work", "s3")
def test_a_release_is_published_whole_and_its_files_are_those_of_a_folder() -> None:
    told = run()
    run("annotated")
    manifest, files = published()
    assert (told.status, told.published, told.out) == ("done", OUT, folder_here(OUT))
    assert outputs(manifest, files) == {name: file_sha256(Path("annotated", name)) for name in PARTS}
    for name in PARTS:
        assert files[name] == Path("annotated", name).read_bytes()
    assert {"SHA256SUMS", "summary.json", "report.html", MANIFEST} <= files.keys()
    listed = dict(reversed(line.split("  ")) for line in files["SHA256SUMS"].decode().splitlines())
    assert set(listed) == set(files) - {"SHA256SUMS", MANIFEST}
    assert run().status == "nothing to do"
    assert published() == (manifest, files)
    assert folders() == {manifest["files"]}


def test_a_next_release_takes_the_place_of_the_one_before(
    work: Path, s3: Any, make: SimpleNamespace, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The old one is readable until then, what has not changed is not sent again, and left-overs are swept."""
    options = {"store": "models", "quiet_seconds": 0, "out": OUT}
    reprocess("spec.toml", **options)
    before, _ = published()
    s3.pipe_file("survey/products/release/files-0123456789abcdef/p0.parquet", b"of a run that was killed")
    s3.pipe_file("survey/products/release/notes.txt", b"somebody's own")
    make.parquet(work / "release/p1.parquet", make.survey(70, seed=9))
    (work / "release/p2.parquet").write_bytes((work / "release/p0.parquet").read_bytes())
    (work / "release/p0.parquet").unlink()
    sent, replace, upload = [], ObjectStore.replace, ObjectStore.upload

    def watched(store: ObjectStore, key: str, content: bytes, **others: Any) -> bool:
        assert published()[0] == before
        assert set(PARTS) <= published()[1].keys()
        return replace(store, key, content, **others)

    monkeypatch.setattr(ObjectStore, "replace", watched)
    monkeypatch.setattr(
        ObjectStore, "upload", lambda *a: (sent.append(a[2].partition("/")[2]), upload(*a))[1]
    )
    told = reprocess("spec.toml", **options)
    manifest, files = published()
    assert told.release == manifest["release"] == 2
    assert set(outputs(manifest, files)) == {"p1.parquet", "p2.parquet"}
    assert {"p1.parquet", "p2.parquet", "summary.json"} <= set(sent)
    assert "_releases/0001.json" not in sent, "it was copied within the store"
    assert "_releases/0001.json" in files
    assert folders() == {manifest["files"]}
    assert s3.cat_file("survey/products/release/notes.txt") == b"somebody's own"


@pytest.mark.usefixtures("work", "s3")
def test_of_two_runs_one_is_told_that_the_other_was_first(
    make: SimpleNamespace, monkeypatch: pytest.MonkeyPatch
) -> None:
    upload, others = ObjectStore.upload, []

    def meanwhile(store: ObjectStore, local: Path, key: str) -> None:
        if not others:
            others.append(key)
            monkeypatch.setenv(STAGING, "there")  # as another machine, whose folders are its own
            make.parquet(Path("release/p1.parquet"), make.survey(50, seed=8))
            run()
            monkeypatch.setenv(STAGING, "here")
        upload(store, local, key)

    with monkeypatch.context() as patched:
        patched.setattr(ObjectStore, "upload", meanwhile)
        said = f"{OUT}: got a changed release: another run has published one"
        with pytest.raises(OutputFolderError, match=said):
            run()
    manifest, _ = published()
    told = run()
    assert told.status == "nothing to do", "the release of the other run was brought"
    assert published()[0] == manifest
    assert folders() == {manifest["files"]}


@pytest.mark.usefixtures("work", "s3")
def test_the_answer_of_a_store_that_was_lost_is_no_other_run(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The driver asks again, and finds its own manifest there.  What comes next is said of the store, too."""
    put = STORES["s3"]
    monkeypatch.setitem(STORES, "s3", lambda *given: [put(*given) for _ in range(2)])
    words = ["--model", "morphology", "--store", "models", "--out", OUT, "--direct", "-q"]
    assert command_line(["classify", "release", *words]) == 0
    assert f"Next: blr review {OUT} " in capsys.readouterr().out


@pytest.mark.usefixtures("work", "s3")
def test_a_run_that_is_killed_while_it_sends_is_gone_on_with(monkeypatch: pytest.MonkeyPatch) -> None:
    upload, sent = ObjectStore.upload, []

    def killed(store: ObjectStore, local: Path, key: str) -> None:
        if len(sent) == 2:
            raise KeyboardInterrupt
        sent.append(key)
        upload(store, local, key)

    with monkeypatch.context() as patched:
        patched.setattr(ObjectStore, "upload", killed)
        patched.setattr("flows.runs.release_store.AT_ONCE", 1)
        with pytest.raises(KeyboardInterrupt):
            run()
    assert ObjectStore(OUT).read(MANIFEST) == (b"", None)
    again = []
    with monkeypatch.context() as patched:
        patched.setattr(ObjectStore, "upload", lambda *a: (again.append(a[2]), upload(*a))[1])
        assert run().status == "nothing to do"
    assert not set(again) & set(sent), "what was sent is not sent again"
    manifest, files = published()
    assert set(outputs(manifest, files)) == set(PARTS)
    assert set(PARTS) <= files.keys()


@pytest.mark.usefixtures("work", "s3")
def test_another_machine_goes_on_from_what_is_published(monkeypatch: pytest.MonkeyPatch) -> None:
    run()
    before, files = published()
    monkeypatch.setenv(STAGING, "elsewhere")
    assert run(dry_run=True).up_to_date
    assert run().status == "nothing to do"
    assert published() == (before, files)
    census = take_census(CensusRequest(Path(OUT), store="models")).census
    listed = review(OUT)
    assert listed.status == "done"
    manifest, files = published()
    assert manifest["totals"]["census"] == json.loads(files["summary.json"])["census"]
    assert census is not None
    assert {path.name for path in listed.files} <= files.keys()
    monkeypatch.setenv(STAGING, "here")
    assert run().status == "nothing to do"
    assert {path.name for path in listed.files} <= {path.name for path in folder_here(OUT).iterdir()}


@pytest.mark.usefixtures("work")
def test_what_is_damaged_in_the_store_is_not_taken(s3: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    run()
    manifest, files = published()
    place = f"survey/products/release/{manifest['files']}/p0.parquet"
    s3.pipe_file(place, files["p0.parquet"][:-1] + b"?")
    monkeypatch.setenv(STAGING, "elsewhere")
    with pytest.raises(CatalogError, match=r"p0\.parquet: got other bytes than its SHA256SUMS says"):
        run()
    s3.rm_file(place)
    with pytest.raises(CatalogError, match="got other files than its SHA256SUMS lists"):
        run()
    s3.pipe_file("survey/products/release/manifest.json", b'{"files": "../elsewhere"}')
    with pytest.raises(CatalogError, match="got no manifest of a published release"):
        run()


@pytest.mark.usefixtures("s3")
def test_credentials_are_nowhere(work: Path, capfd: pytest.CaptureFixture[str]) -> None:
    command = f"classify release --model morphology --store models --out {OUT} --direct"
    assert command_line(command.split()) == 0
    _, files = published()
    here = [path.read_bytes() for path in work.rglob("*") if path.is_file()]
    assert len(here) > len(files)
    said = capfd.readouterr()
    assert OUT in said.out
    for content in [*files.values(), *here, said.out.encode(), said.err.encode()]:
        assert S3_SECRET.encode() not in content


@pytest.mark.parametrize(
    ("out", "why"),
    [
        ("s3://user:secret@bucket/out", "got 's3://user@bucket/out' with a password"),
        ("s3://bucket", "got 's3://bucket', expected a folder in it, such as s3://bucket/release"),
        ("https://example.org/out", "expected a folder on this machine, or a URL of s3://"),
        ("sftp://host/out", "expected a folder on this machine, or a URL of s3://"),
        ("zip://out::s3://bucket/a.zip", "expected a folder on this machine, or a URL of s3://"),
    ],
)
def test_where_nothing_can_be_published_is_said_before_anything_is_done(
    work: Path, out: str, why: str
) -> None:
    before = sorted(work.rglob("*"))
    with pytest.raises(UsageError, match=r"^out: ") as refused:
        run(out)
    assert why in str(refused.value)
    assert "secret" not in str(refused.value)
    assert sorted(work.rglob("*")) == before


@pytest.mark.usefixtures("s3")
def test_a_worker_publishes_only_below_urls_that_it_may_use(
    work: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("BLR_ROOTS", f"{work}:s3://survey/other")
    with pytest.raises(UsageError, match="expected a path or a URL below"):
        run()
    monkeypatch.setenv("BLR_ROOTS", f"{work}:s3://survey/products")
    assert run().status == "done"


@contextmanager
def serving_objects(scheme: str, program: str, *options: str | Path) -> Iterator[None]:
    """Run a store's server, with a bucket; skip the test where the program is not installed."""
    found = shutil.which(program)
    if found is None:
        pytest.skip(f"{program} is not on the PATH (npm installs azurite; fake-gcs-server is a Go program)")
    command = [found, *options]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as server:
        make_bucket(fsspec.filesystem(scheme, skip_instance_cache=True))
        yield
        server.terminate()


@pytest.fixture
def az(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[str]:
    """Run Azurite, which npm installs, the server for tests of Azure's makers; yield the URL of a release there."""
    pytest.importorskip("adlfs", reason="fsspec writes to Azure with adlfs")
    port = free_port()
    place = f"http://127.0.0.1:{port}/devstoreaccount1"
    account = f"DefaultEndpointsProtocol=http;AccountName=devstoreaccount1;AccountKey={KEY}"
    monkeypatch.setenv("AZURE_STORAGE_CONNECTION_STRING", f"{account};BlobEndpoint={place};")
    options = ["--blobHost", "127.0.0.1", "--blobPort", str(port), "--location", str(tmp_path / "azurite")]
    options += ["--skipApiVersionCheck", "--silent", "--disableTelemetry"]
    with serving_objects("az", "azurite-blob", *options):
        yield "az://survey/release"


@pytest.mark.usefixtures("work")
def test_a_release_is_published_in_azure(az: str) -> None:
    assert run(az).status == "done"
    manifest, files = published(az)
    assert set(PARTS) <= files.keys()
    check_replaced_on_condition(az)
    assert published(az) == (manifest, files)
    assert folders(az) == {manifest["files"]}


@pytest.fixture
def gs(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """Run fake-gcs-server, a program in Go; yield the URL of a folder."""
    # The server has no gRPC, which the driver asks for kinds of buckets.
    monkeypatch.setenv("GCSFS_EXPERIMENTAL_ZB_HNS_SUPPORT", "false")
    pytest.importorskip("gcsfs", reason="fsspec writes to Google's store with gcsfs")
    port = free_port()
    address = f"http://127.0.0.1:{port}"
    monkeypatch.setenv("STORAGE_EMULATOR_HOST", address)
    for name in ("gs", "gcs"):
        anonymous = {"token": "anon", "project": "survey", "endpoint_url": address}
        monkeypatch.setitem(fsspec.config.conf, name, anonymous)
    options = ["-scheme", "http", "-host", "127.0.0.1", "-port", str(port), "-backend", "memory"]
    options += ["-external-url", address, "-public-host", f"127.0.0.1:{port}"]
    with serving_objects("gs", "fake-gcs-server", *options):
        yield "gs://survey/products/release"


@pytest.mark.usefixtures("work")
def test_a_release_is_published_in_googles_store_and_read_again(gs: str, make: SimpleNamespace) -> None:
    """Its manifest is put on condition of the generation; its copies are catalogues that can be classified."""
    assert run(gs).status == "done"
    before, files = published(gs)
    run("annotated")
    assert all(files[name] == Path("annotated", name).read_bytes() for name in PARTS)
    check_replaced_on_condition(gs)
    assert run(gs).status == "nothing to do"
    make.parquet(Path("release/p1.parquet"), make.survey(70, seed=9))
    run(gs, overwrite=True)
    after, _ = published(gs)
    assert before["files"] != after["files"]
    assert folders(gs) == {after["files"]}
    url = f"gs://survey/products/release/{after['files']}/p1.parquet"
    told = classify([url], model="morphology", store="models", out="from-gs", overwrite=True)
    assert told.status == "done"
    assert told.summary.n_rows == 70
