"""A release brought up to date: what is done, what is left alone, what is moved away, what is told; without Prefect."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from catalogs.errors import CatalogError, ColumnNotFoundError, OutputExistsError
from catalogs.files import StorageError
from flows.classification._plan import Job, Work
from flows.classification.execution import annotate_file
from flows.cli.app import run
from flows.documents import from_document, to_document
from flows.errors import ModelError, OutputFolderError, UsageError
from flows.models.store import Store
from flows.runs.manifest import MANIFEST, Manifest, Output, file_sha256
from flows.runs.results import ReleaseResult
from tests.flows.verbs import classify, reprocess

PARTS = tuple(f"p{i}.parquet" for i in range(4))
Release = SimpleNamespace


def folder_of(folder: Path, make: SimpleNamespace) -> Release:
    """Return a survey's folder and what to do with it: write a file, bring its release up to date."""

    def write(name: str, n: int = 60, *, seed: int = 0, **others: np.ndarray) -> Path:
        columns = make.survey(n, seed=seed) | others
        columns["name"] = np.array([f"{name}-{i}" for i in range(n)])
        return make.parquet(folder / "release" / name, columns)

    def run(**options: object) -> ReleaseResult:
        chosen = {"store": folder / "models", "quiet_seconds": 0} | options
        result = reprocess(folder / "spec.toml", **chosen)
        document = json.loads(json.dumps(to_document(result), allow_nan=False))
        assert from_document(type(result), document, source="the result") == result
        return result

    return Release(folder=folder, out=folder / "annotated", write=write, run=run, spec=folder / "spec.toml")


@pytest.fixture(scope="module")
def done_once(trained: Path, tmp_path_factory: pytest.TempPathFactory, make: SimpleNamespace) -> Path:
    """Return a folder with a model, a specification, four files and their release; not to be written to."""
    release = folder_of(tmp_path_factory.mktemp("done"), make)
    shutil.copytree(trained / "models", release.folder / "models")
    release.spec.write_text(make.specification + '\n[target]\npaths = ["release/*.parquet"]\n')
    (release.folder / "release").mkdir()
    for seed, name in enumerate(PARTS):
        release.write(name, seed=seed)
    release.run()
    return release.folder


@pytest.fixture
def release(done_once: Path, tmp_path: Path, make: SimpleNamespace) -> Release:
    """Return a survey's folder: a model, a specification, four files; nothing is annotated."""
    shutil.copytree(
        done_once, tmp_path, dirs_exist_ok=True, ignore=lambda *_: ["annotated"], copy_function=shutil.copy
    )
    return folder_of(tmp_path, make)


@pytest.fixture
def released(done_once: Path, tmp_path: Path, make: SimpleNamespace) -> Release:
    """Return the same, annotated."""
    shutil.copytree(done_once, tmp_path, dirs_exist_ok=True)
    return folder_of(tmp_path, make)


def champion(release: Release, version: str = "0123456789ab") -> str:
    """Let another model be the champion; return its label."""
    store = Store(release.folder / "models")
    model = store.load("morphology")
    intercept = replace(model.classifier, low_confidence=0.9)
    store.save(replace(model, version=version, classifier=intercept), card="")
    store.promote(store.find(f"morphology@{version}"), why="a test", who="a test")
    return f"morphology@{version}"


def looks(folder: Path) -> dict[str, tuple[int, int, bytes]]:
    """Return what would change if anything were written."""
    files = (p for p in sorted(folder.rglob("*")) if p.is_file())
    return {
        str(p.relative_to(folder)): (p.stat().st_mtime_ns, p.stat().st_ino, p.read_bytes()) for p in files
    }


def models_in(folder: Path) -> set[int]:
    """Return the models that made the rows in a folder."""
    return {m for p in folder.glob("*.parquet") for m in pq.read_table(p)["blr_model"].to_pylist()}


def why(told: dict) -> dict[str, str]:
    return {name: file["why"] for name, file in told.files.items() if file["why"]}


def test_it_is_what_classify_makes_and_a_second_run_does_nothing(release: Release) -> None:
    folder, first = release.folder, release.run()
    classify([folder / "release"], model="morphology", store=folder / "models", out=folder / "c")
    for name in PARTS:
        assert (release.out / name).read_bytes() == (folder / "c" / name).read_bytes()
    before = looks(release.out)
    for options in ({}, {"verify": True}, {"dry_run": True}):
        again = release.run(**options)
        assert again.status == ("planned" if options.get("dry_run") else "nothing to do")
        assert again.status != "planned" or again.up_to_date
        assert why(again) == {}
        assert again.summary == first.summary
    assert looks(release.out) == before


def test_a_dry_run_says_whether_there_is_work(release: Release, capsys: pytest.CaptureFixture[str]) -> None:
    command = ["reprocess", str(release.spec), "--store", str(release.folder / "models"), "--dry-run"]

    def said() -> str:
        assert run(command) == 0
        return " ".join(capsys.readouterr().out.split())

    assert f"{len(PARTS)} of {len(PARTS)} files would be annotated. By morphology@" in said()
    release.run()
    assert f"0 of {len(PARTS)} files would be annotated. By morphology@" in said()
    assert run([*command[:-1], "--direct"]) == 0
    idle = capsys.readouterr().out
    assert idle.startswith("Can I use it? Yes: the probabilities are computed rightly")
    assert f"\nNothing to do: {len(PARTS)} files, " in idle
    assert (idle.count("\n"), "+0.0" in idle) == (3, False)
    release.write(PARTS[0], seed=9)
    assert f"1 of {len(PARTS)} files would be annotated" in said()


def test_only_what_is_new_or_changed_and_not_what_was_touched_or_copied(released: Release) -> None:
    before = looks(released.out)
    for name in PARTS[:2]:
        os.utime(released.folder / "release" / name)
    copy = released.folder / "copy"
    shutil.copy(released.folder / "release/p2.parquet", copy)
    copy.replace(released.folder / "release/p2.parquet")
    assert released.run().status == "nothing to do"
    released.write("p1.parquet", seed=9)
    released.write("p7.parquet", seed=7)
    assert why(released.run(dry_run=True)) == {"p1.parquet": "changed", "p7.parquet": "new"}
    assert looks(released.out) == before
    told = released.run()
    assert (told.status, told.release) == ("done", 2)
    assert why(told) == {"p1.parquet": "changed", "p7.parquet": "new"}
    after = looks(released.out)
    assert all(after[name] == before[name] for name in ("p0.parquet", "p2.parquet", "p3.parquet"))
    assert after["p1.parquet"] != before["p1.parquet"]
    (released.folder / "more").mkdir()  # where inputs lie is no part of the specification
    shutil.copy(released.folder / "release/p0.parquet", released.folder / "more/p9.parquet")
    text = released.spec.read_text()
    released.spec.write_text(text.replace('["release/*.parquet"]', '["release/*.parquet", "more/*.parquet"]'))
    assert why(released.run()) == {"p9.parquet": "new"}


def test_what_a_killed_run_has_half_written_in_any_of_its_folders_goes(released: Release) -> None:
    """A run was killed while it wrote the report's document: the next one left its temporary for ever."""
    half = [folder / ".blr-0123456789abcdef.tmp" for folder in released.out.glob("_*")]
    assert "_report" in {path.parent.name for path in half}
    for path in half:
        path.write_bytes(b"half")
    released.write("p7.parquet", seed=7)
    assert released.run().status == "done"
    assert not any(path.exists() for path in half)


def test_a_change_that_keeps_size_and_time_is_found_by_verify(release: Release) -> None:
    release.run()
    path = release.folder / "release/p0.parquet"
    seen, content = path.stat(), bytearray(path.read_bytes())
    other = release.write("p0.parquet", seed=0, kmag=np.full(60, 11.0)).read_bytes()
    path.write_bytes(bytes(content))
    with path.open("r+b") as file:  # the same inode, size and time, another content
        file.write(other[: len(content)].ljust(len(content), b"\0"))
    os.utime(path, ns=(seen.st_atime_ns, seen.st_mtime_ns))
    state = Manifest.read(release.out).find("p0.parquet").input
    if not state.looks_like(path):
        pytest.skip("this file system has given the file another inode")
    assert release.run().status == "nothing to do"
    assert release.run(verify=True).status == "done"


def test_an_input_that_is_gone_is_retired_and_never_deleted_and_all_gone_are_no_reason(
    released: Release,
) -> None:
    content = (released.out / "p2.parquet").read_bytes()
    (released.folder / "release/p2.parquet").unlink()
    told = released.run()
    assert told.retired == ("_retired/0002/p2.parquet",)
    assert (released.out / "_retired/0002/p2.parquet").read_bytes() == content
    assert told.summary.n_rows == 180
    assert "p2.parquet" not in {o.name for o in Manifest.read(released.out).outputs}
    assert released.run().status == "nothing to do"
    released.write("p2.parquet", seed=2)
    assert released.run().release == 3
    (released.folder / "release/p2.parquet").unlink()
    assert released.run().retired == ("_retired/0004/p2.parquet",)
    before = looks(released.out)
    shutil.rmtree(released.folder / "release")  # as when its disk is not mounted
    with pytest.raises(UsageError, match=r"target.paths: got '.*release/\*.parquet', which no file matches"):
        released.run()
    assert looks(released.out) == before


def test_another_champion_makes_all_of_it_anew(released: Release) -> None:
    old, earlier = models_in(released.out), Store(released.folder / "models").find("morphology").label
    label = champion(released)
    assert released.run(model=earlier, dry_run=True).model == earlier
    with pytest.raises(ModelError, match="no model 'morfology'"):
        released.run(model="morfology")
    told = released.run()
    assert (told.model, told.release) == (label, 2)
    assert why(told) == dict.fromkeys(PARTS, "other model or specification")
    assert told.difference.matched_by == "row"
    assert len(models_in(released.out) | old) == 2
    assert len(models_in(released.out)) == 1
    assert released.run().status == "nothing to do"


def test_the_difference_report(released: Release) -> None:
    old = pq.read_table(released.out / "p1.parquet").to_pandas()
    released.write("p1.parquet", 50, seed=99)
    told = released.run()
    new = pq.read_table(released.out / "p1.parquet").to_pandas()
    both = old.merge(new, on="name", suffixes=("_old", "_new"))
    difference = told.difference
    assert (difference.matched_by, difference.compared) == ("id", 50)
    assert (difference.appeared, difference.vanished) == (0, 10)
    assert difference.class_changed == (both.blr_class_old != both.blr_class_new).sum()
    assert difference.moved == ((both.blr_p_late_old - both.blr_p_late_new).abs() > 0.1).sum()
    report = json.loads((released.out / "_releases/0002.json").read_text())
    assert report["difference"] == to_document(difference)
    nothing = {"files": 0, "rows": 0}
    assert report["files"] == {"unchanged": 3, "annotated": {"changed": 1}, "not_compared": nothing}
    assert report["annotated"]["p1.parquet"]["why"] == "changed"
    assert report["before"]["release"] == 1
    assert {e["file"] for e in difference.examples} == {"p1.parquet"}
    first = json.loads((released.out / "_releases/0001.json").read_text())
    assert first["files"]["not_compared"] == {"files": 4, "rows": 240}


def test_the_last_good_copy_of_a_file_that_was_damaged_since_stays(released: Release) -> None:
    copy = (released.out / "p1.parquet").read_bytes()
    path = released.folder / "release/p1.parquet"
    path.write_bytes(path.read_bytes()[:-50])
    told = released.run()
    assert list(told.quarantined) == ["p1.parquet"]
    assert told.summary.n_rows == 240
    assert (released.out / "p1.parquet").read_bytes() == copy
    assert released.run().summary.n_rows == 240
    champion(released)
    told = released.run()
    assert told.retired == (f"_retired/{told.release:04d}/p1.parquet",), "of another model it may not stay"
    assert told.summary.n_rows == 180
    assert len(models_in(released.out)) == 1


def test_a_folder_without_its_damaged_and_odd_files(release: Release, make: SimpleNamespace) -> None:
    release.spec.write_text(release.spec.read_text().replace("release/*.parquet", "release"))
    path = release.folder / "release/p1.parquet"
    path.write_bytes(path.read_bytes()[:-50])
    columns = make.survey(20)
    del columns["bmag"]
    make.parquet(release.folder / "release/p3.parquet", columns)
    make.parquet(release.folder / "release/p2.parquet", make.survey(20) | {"seeing": np.ones(20)})
    told = release.run()
    assert sorted(told.quarantined) == ["p1.parquet", "p3.parquet"]
    assert "has no column 'bmag', expected by features" in told.quarantined["p3.parquet"]
    assert sorted(told.files) == ["p0.parquet", "p2.parquet"]
    assert release.run().status == "nothing to do"
    release.write("p1.parquet", seed=1)
    assert list(release.run().quarantined) == ["p3.parquet"]


def test_what_is_every_files_fault_is_an_error(release: Release) -> None:
    release.spec.write_text(release.spec.read_text() + "columns = { bmag = 'b' }\n")
    with pytest.raises(ColumnNotFoundError, match="has no column 'b'"):
        release.run()
    assert not release.out.exists()


def run_changing(release: Release, name: str, change: Callable[[Path], object]) -> Any:
    """Run while an input changes in the midst."""

    def changed(work: Work, job: Job) -> Output:
        done = annotate_file(work, job)
        if job.name == name:
            change(job.path)
        return done

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("flows.classification.execution.annotate_file", changed)
        return release.run()


def run_killed(release: Release) -> None:
    """Run until all copies are made, and none has its final name."""

    def killed(kind: str, _: str, work: Callable[[], Any]) -> Any:
        if kind == "publish":
            raise KeyboardInterrupt
        return work()

    with pytest.raises(KeyboardInterrupt):
        release.run(task=killed)


@pytest.mark.parametrize("cut", [None, -50], ids=["as before", "damaged"])
def test_a_copy_that_a_killed_run_made_of_a_state_that_is_past(released: Release, cut: int | None) -> None:
    """Every further run ended with an error: the copy of that time was taken for the present one."""
    path, copy = released.folder / "release/p1.parquet", (released.out / "p1.parquet").read_bytes()
    before = path.read_bytes()
    released.write(path.name, seed=50)
    run_killed(released)
    path.write_bytes(before[:cut])
    released.write("p7.parquet", seed=7)
    told = released.run()
    assert (why(told), [*told.quarantined]) == ({"p7.parquet": "new"}, [path.name] if cut else [])
    assert (released.out / path.name).read_bytes() == copy
    assert told.summary.n_rows == 300


def test_copies_that_go_and_a_model_file_that_is_replaced_while_the_run_works(released: Release) -> None:
    """Files before had rows of one model, those after of the other, under the name of the first."""
    store = Store(released.folder / "models")
    earlier, label = store.find("morphology"), champion(released)
    path = store.find(label).path
    content = path.read_bytes()
    replaced = lambda _: shutil.copy(earlier.path, path)  # noqa: E731
    with pytest.raises(ModelError, match=f"got the model {earlier.label}, expected {label}"):
        run_changing(released, "p0.parquet", replaced)
    path.write_bytes(content)
    gone = lambda _: next(released.out.glob(".blr-staging/*/p0.parquet")).unlink()  # noqa: E731
    with pytest.raises(OutputFolderError, match=r"annotated: the copy p0\.parquet was deleted .* run the"):
        run_changing(released, "p2.parquet", gone)
    assert Manifest.read(released.out).model == earlier.label


def test_a_quarantined_file_is_tried_again_by_overwrite_and_by_another_version(
    release: Release, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, tried = release.folder, []
    again = partial(classify, [folder / "release"], "morphology", folder / "models", release.out)

    def fails(work: Work, job: Job) -> Output:
        if job.name != "p1.parquet":
            return annotate_file(work, job)
        tried.append(job.name)
        raise CatalogError("a fault of this version")

    monkeypatch.setattr("flows.classification.execution.annotate_file", fails)
    for options, n in (({}, 1), ({}, 1), ({"overwrite": True}, 2)):
        assert [*again(**options).quarantined] == ["p1.parquet"]
        assert len(tried) == n
    monkeypatch.setattr("flows.classification._plan.code_version", lambda: "99")
    monkeypatch.setattr("flows.classification.execution.annotate_file", annotate_file)
    assert again().quarantined == {}


def test_a_file_that_changes_while_it_is_read_is_left_for_the_next_run(release: Release) -> None:
    told = run_changing(release, "p1.parquet", lambda p: release.write(p.name, seed=50))
    assert told.deferred == {"p1.parquet": "it changed while it was read"}
    assert not (release.out / "p1.parquet").exists()
    told = release.run()
    assert (why(told), told.deferred) == ({"p1.parquet": "new"}, {})


def test_a_file_that_goes_while_it_is_read(released: Release) -> None:
    champion(released)
    told = run_changing(released, "p1.parquet", Path.unlink)
    assert told.deferred == {"p1.parquet": "it was deleted while it was read"}
    assert len(models_in(released.out)) == 1
    assert released.run().status == "nothing to do"


def test_files_that_are_still_copied_are_left_alone(
    released: Release, monkeypatch: pytest.MonkeyPatch
) -> None:
    copy = (released.out / "p1.parquet").read_bytes()
    released.write("p1.parquet", seed=50)
    path = released.folder / "release/p1.parquet"
    monkeypatch.setattr(
        "flows.classification.steps.still_written",
        lambda files, **_: {file: "still written" for file in files if file == path},
    )
    told = released.run()
    assert told.deferred == {"p1.parquet": "still written"}
    assert (released.out / "p1.parquet").read_bytes() == copy
    monkeypatch.undo()
    assert why(released.run()) == {"p1.parquet": "changed"}
    monkeypatch.setattr(
        "flows.classification.steps.still_written", lambda files, **_: dict.fromkeys(files, "still written")
    )
    told = released.run(out=(nowhere := released.folder / "nowhere"))
    assert (told.status, sorted(told.deferred)) == ("waiting", list(PARTS))
    assert not nowhere.exists()


def test_an_output_that_somebody_has_changed_is_kept_aside_and_another_products_stays(
    released: Release,
) -> None:
    (released.out / "p0.parquet").write_text("edited")
    told = released.run()
    assert why(told) == {"p0.parquet": "output changed or deleted"}
    assert (released.out / "_retired/0002/p0.parquet").read_text() == "edited"
    assert told.release == 1, "the same release, made whole again"
    assert released.run().status == "nothing to do"
    text = (released.out / MANIFEST).read_text().replace('"model": "morphology@', '"model": "redshifts@')
    (released.out / MANIFEST).write_text(text)
    message = r"outputs of the model redshifts@.*expected outputs of 'morphology'"
    with pytest.raises(OutputExistsError, match=message):
        released.run()


@pytest.mark.parametrize("folder", ["release/annotated", "."])
def test_outputs_may_not_become_inputs(release: Release, folder: str) -> None:
    release.spec.write_text(release.spec.read_text().replace("release/*.parquet", "release"))
    (release.folder / folder).mkdir(exist_ok=True)
    with pytest.raises(UsageError, match=r"which contains the output folder .* or is inside it"):
        release.run(out=release.folder / folder)


def test_a_manifest_that_another_run_replaces_while_it_is_read(
    released: Release, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The table of the manifest before is gone when it is looked for: what is there now is read."""
    before, read = (released.out / MANIFEST).read_bytes(), Path.read_bytes
    released.write("p3.parquet", seed=9)
    released.run()
    after = Manifest.read(released.out)
    earlier = iter([before])
    monkeypatch.setattr(Path, "read_bytes", lambda path: next(earlier, None) or read(path))
    assert Manifest.read(released.out) == after


def test_a_manifest_that_names_files_elsewhere(released: Release) -> None:
    tree = json.loads((released.out / MANIFEST).read_text())
    table = released.out / tree["table"]["path"]
    files = pq.read_table(table)
    (released.folder / "escape.parquet").write_text("mine")
    for name in ("../escape.parquet", "/etc/escape", "a/../../b", ".blr-lock", ""):
        names = pa.array([name, *files["name"].to_pylist()[1:]])
        pq.write_table(files.set_column(files.column_names.index("name"), "name", names), table)
        tree["table"]["sha256"] = file_sha256(table)
        (released.out / MANIFEST).write_text(json.dumps(tree))
        with pytest.raises(CatalogError, match="got a file that is not a manifest"):
            released.run()
    assert (released.folder / "escape.parquet").read_text() == "mine"


def test_a_link_in_the_output_folder_leads_nowhere_else(release: Release) -> None:
    release.spec.write_text(release.spec.read_text().replace("release/*.parquet", "release"))
    (release.folder / "release/north").mkdir()
    (release.folder / "release/p0.parquet").rename(release.folder / "release/north/p0.parquet")
    elsewhere = release.folder / "elsewhere"
    elsewhere.mkdir()
    release.out.mkdir()
    (release.out / "north").symlink_to(elsewhere)
    with pytest.raises(StorageError, match=r"north: got a symbolic link, .* no link inside .* is followed"):
        release.run()
    assert list(elsewhere.iterdir()) == []


def test_a_pickle_in_the_place_of_a_record_a_manifest_or_a_model(release: Release) -> None:
    import pickle

    class Bomb:
        def __reduce__(self) -> tuple:
            return (Path.touch, (release.folder / "bang",))

    bomb = pickle.dumps(Bomb())
    release.run()
    champion(release)

    run_killed(release)
    for record in (release.out / ".blr-staging").rglob("*.json"):
        record.write_bytes(bomb)
    assert release.run().status == "done"
    (release.out / "summary.json").write_bytes(bomb)
    assert release.run().status == "done"
    (release.out / MANIFEST).write_bytes(bomb)
    with pytest.raises(CatalogError, match=r"got a file that is not a manifest \([^()]{9,80}\), expected"):
        release.run()
    Store(release.folder / "models").find("morphology").path.write_bytes(bomb)
    with pytest.raises(ModelError, match="damaged model file"):
        release.run()
    assert not (release.folder / "bang").exists()
