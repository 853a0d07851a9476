"""The files of an output folder: its lock, manifest, table and names, and what killed runs leave."""

from __future__ import annotations

import errno
import fcntl
import io
import json
import os
import shutil
import signal
import subprocess
import sys
from dataclasses import asdict, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest

import flows.classification.execution
from catalogs.catalog.catalog import Catalog
from catalogs.errors import CatalogError
from catalogs.files import atomic_write_text
from flows.errors import OutputFolderError
from flows.runs import lock
from flows.runs.lock import LINK, LOCK, Owner, acting_for, check_coherent, check_held, exclusive
from flows.runs.manifest import (
    MANIFEST,
    MOST_DOUBTFUL,
    Manifest,
    is_labelled,
    read_labelled_names,
    write_labelled_names,
)
from flows.runs.results import DoubtfulObject, Tally
from tests.flows.children import Child, python
from tests.flows.verbs import classify

HOLD = """
import pathlib, sys
from flows.runs.lock import exclusive
with exclusive(pathlib.Path(sys.argv[1])) as killed:
    print(killed, flush=True)
    sys.stdin.read()
"""


@pytest.fixture
def without_locks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Be a file system without locks."""

    def flock(*_: int) -> None:
        raise OSError(errno.ENOSYS, "Function not implemented")

    monkeypatch.setattr(fcntl, "flock", flock)


def test_the_error_of_a_second_run_names_the_first(tmp_path: Path) -> None:
    with exclusive(tmp_path / "out") as killed:
        assert killed is None
        said = rf"another run is writing to \(process {os.getpid()} on .*, since 20"
        with pytest.raises(OutputFolderError, match=said), exclusive(tmp_path / "out"):
            pass
        assert (tmp_path / "out").is_dir()
    assert not (tmp_path / "out").exists(), "a folder in which nothing came to be is removed"


def test_a_full_disk_leaves_no_lock(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "pwrite", lambda *_: Path("/dev/full").write_bytes(b"1"))
    with pytest.raises(OutputFolderError, match=r"No space.*free space"), exclusive(tmp_path / "out"):
        pass
    assert not (tmp_path / "out").exists()


def test_the_lock_of_a_killed_run_goes_with_it(tmp_path: Path) -> None:
    other = Child(HOLD, tmp_path)
    other.kill()
    assert (tmp_path / LOCK).exists()
    with exclusive(tmp_path) as killed:
        assert killed is not None
        assert (killed.pid, killed.gone) == (other.pid, True)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.usefixtures("without_locks")
def test_without_locks_of_the_system_the_file_is_the_lock(tmp_path: Path) -> None:
    with exclusive(tmp_path) as killed:
        assert killed is None
        with pytest.raises(OutputFolderError, match=f"process {os.getpid()} .*remove {LINK}"):
            exclusive(tmp_path).__enter__()
    assert list(tmp_path.iterdir()) == []


@pytest.mark.usefixtures("without_locks")
@pytest.mark.parametrize("reused", [False, True])
def test_without_locks_a_dead_owner_is_recognised(tmp_path: Path, *, reused: bool) -> None:
    dead = subprocess.Popen([sys.executable, "-c", ""])
    dead.wait()
    owner = replace(Owner.this(), pid=os.getpid() if reused else dead.pid, began=1)
    (tmp_path / LINK).write_text(json.dumps(asdict(owner)))
    with exclusive(tmp_path) as killed:
        assert killed == owner
    assert list(tmp_path.iterdir()) == []


ELSEWHERE = """
import errno, fcntl, pathlib, socket, sys
def flock(*_):
    raise OSError(errno.ENOSYS, "Function not implemented")
fcntl.flock = flock
socket.gethostname = lambda: "elsewhere"
from flows.errors import OutputFolderError
from flows.runs import lock
from flows.runs.lock import check_held, exclusive
lock.BEAT = 0.1
folder = pathlib.Path(sys.argv[1])
try:
    with exclusive(folder):
        print("begun", flush=True)
        sys.stdin.readline()
        check_held(folder)
        print("held", flush=True)
        sys.stdin.read()
except OutputFolderError as error:
    print(error, flush=True)
"""


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Be a host that waits for five beats of 0.1 s: of who is dead or asleep, none comes."""
    monkeypatch.setattr(lock, "BEAT", 0.1)
    monkeypatch.setattr(lock, "SILENCE", 0.5)


@pytest.mark.usefixtures("without_locks", "impatient")
def test_without_locks_a_run_on_another_host_gives_signs_of_life(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It keeps the folder, however long it takes; once it is killed another run takes over."""
    other = Child(ELSEWHERE, tmp_path)
    with monkeypatch.context() as patient:  # the first sign ends the wait: a busy machine may give it late
        patient.setattr(lock, "SILENCE", 120.0)
        said = f"process {other.pid} on elsewhere"
        for _ in range(3):
            with pytest.raises(OutputFolderError, match=said), exclusive(tmp_path):
                pass
    other.kill()
    with exclusive(tmp_path) as killed:
        assert killed is not None
        assert (killed.pid, killed.host) == (other.pid, "elsewhere")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.usefixtures("without_locks", "impatient")
def test_without_locks_a_run_that_was_asleep_finds_that_another_has_taken_over(tmp_path: Path) -> None:
    """It stops in a sentence, and leaves the other one's lock alone."""
    other = Child(ELSEWHERE, tmp_path)
    assert other.process.stdin
    assert other.process.stdout
    os.kill(other.pid, signal.SIGSTOP)
    os.waitpid(other.pid, os.WUNTRACED)  # until it has stopped
    with exclusive(tmp_path):
        os.kill(other.pid, signal.SIGCONT)
        other.process.stdin.write("\n")
        other.process.stdin.flush()
        said = other.process.stdout.readline()
        assert "another run writes at the same time" in said
        assert f"process {os.getpid()} on" in said
        other.end()
        assert Owner.read(tmp_path / LINK).pid == os.getpid()
        check_held(tmp_path)
    assert list(tmp_path.iterdir()) == []


ALONE_IN_VAIN = f"""
import fcntl
fcntl.flock = lambda *_: None  # as a file system that grants every host its own lock
{HOLD}"""


@pytest.fixture
def locks_of_this_host_only(monkeypatch: pytest.MonkeyPatch) -> None:
    """Be a file system that grants a lock to whoever asks: NFS with `nolock`, Lustre with `localflock`."""
    monkeypatch.setattr(fcntl, "flock", lambda *_: None)


@pytest.mark.usefixtures("locks_of_this_host_only")
def test_a_lock_that_two_hosts_have_is_seen_by_its_owner(tmp_path: Path) -> None:
    """The first to ask is told of the second, whose lock file it leaves alone."""
    with exclusive(tmp_path):
        check_held(tmp_path)
        other = Child(ALONE_IN_VAIN, tmp_path)
        said = f"at the same time .process {other.pid} on .*locks do not work"
        with pytest.raises(OutputFolderError, match=said):
            check_held(tmp_path)
    assert Owner.read(tmp_path / LOCK).pid == other.pid
    other.end()
    assert list(tmp_path.iterdir()) == []


@pytest.mark.usefixtures("locks_of_this_host_only")
def test_files_that_another_run_removed_give_a_clear_error(tmp_path: Path) -> None:
    said = "files of this run were removed while it worked.*run the same command again"
    with pytest.raises(OutputFolderError, match=said), exclusive(tmp_path / "out"):
        (tmp_path / "out" / "staged").unlink()
    with pytest.raises(OutputFolderError, match=said), exclusive(tmp_path / "out"):
        atomic_write_text(tmp_path / "out" / "gone" / "a.json", "{}")
    with pytest.raises(FileNotFoundError), exclusive(tmp_path / "out"):
        (tmp_path / "input").read_bytes()
    with exclusive(tmp_path / "out"):
        (tmp_path / "out" / LOCK).unlink()
        with pytest.raises(OutputFolderError, match=said):
            check_held(tmp_path / "out")


OTHER_HOST = """
import fcntl, sys
fcntl.flock = lambda *_: None
from flows.cli.app import run
sys.exit(run(sys.argv[1:]))
"""


@pytest.mark.usefixtures("locks_of_this_host_only")
@pytest.mark.parametrize("at", ["p1.parquet", pytest.param("p3.parquet", marks=pytest.mark.long)])
def test_two_hosts_without_working_locks(
    tmp_path: Path, trained: Path, make: SimpleNamespace, monkeypatch: pytest.MonkeyPatch, at: str
) -> None:
    """Another host does the same work while ours is at a file: ours stops in a sentence, and nothing is mixed."""
    (tmp_path / "in").mkdir()
    for n in range(4):
        make.parquet(tmp_path / "in" / f"p{n}.parquet", make.survey(40, seed=n))
    options = {"model": "morphology", "store": trained / "models"}
    command = ["classify", tmp_path / "in", "--model", "morphology", "--store", trained / "models"]
    command += ["--out", tmp_path / "out", "--direct", "--quiet"]
    annotate, others = flows.classification.execution.annotate, []

    def interrupted(catalog: Catalog, *arguments: object, **keywords: object) -> object:
        if catalog.partitions[0].path.name == at:
            others.append(python("-c", OTHER_HOST, *command).returncode)
        return annotate(catalog, *arguments, **keywords)

    monkeypatch.setattr("flows.classification.execution.annotate", interrupted)
    with pytest.raises(OutputFolderError, match="file locks do not work"):
        classify([tmp_path / "in"], out=tmp_path / "out", **options)
    assert others == [0]
    monkeypatch.undo()
    assert classify([tmp_path / "in"], out=tmp_path / "out", **options).status == "nothing to do"
    classify([tmp_path / "in"], out=tmp_path / "alone", **options)
    for path in (tmp_path / "alone").glob("*.parquet"):
        assert (tmp_path / "out" / path.name).read_bytes() == path.read_bytes()
    assert {p.name for p in (tmp_path / "out").iterdir()} == {p.name for p in (tmp_path / "alone").iterdir()}


def test_a_worker_that_would_get_the_lock_of_its_run_says_so(tmp_path: Path) -> None:
    """As on a file system that locks on each host by itself, where a worker finds a lock file that nobody holds."""
    owner = Owner.this()
    with exclusive(tmp_path), acting_for(owner):
        check_coherent(tmp_path)
    (tmp_path / LOCK).write_text(json.dumps(asdict(owner)))
    said = r"the lock that a run on .* holds, expected the file system to refuse it"
    with acting_for(owner), pytest.raises(OutputFolderError, match=said):
        check_coherent(tmp_path)
    with acting_for(replace(owner, began=1)):
        check_coherent(tmp_path)


WAITING = """
import sys
import pyarrow as pa
from flows.errors import Terminated
from flows.runs.progress import terminable
try:
    with terminable("run it again", within=1):
        print("begun", flush=True)
        OPENED(sys.argv[1])
except Terminated as error:
    sys.exit(error.exit_status)
"""


@pytest.mark.parametrize(
    ("opened", "number"),
    [("open", signal.SIGTERM), ("pa.OSFile", signal.SIGTERM), ("open", signal.SIGHUP)],
)
def test_no_read_outlasts_sigterm_or_a_closed_terminal(tmp_path: Path, opened: str, number: int) -> None:
    """A FIFO stands for a file server that is gone; compiled code waits for it again after each signal."""
    os.mkfifo(tmp_path / "x.parquet")
    child = Child(WAITING.replace("OPENED", opened), tmp_path / "x.parquet")
    assert child.said == "begun"
    child.process.send_signal(number)
    child.end()
    assert child.process.returncode == 128 + number


@pytest.fixture(scope="module")
def annotated(trained: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return an output folder of two files."""
    inputs = tmp_path_factory.mktemp("tiles")
    for name in ("a.parquet", "b.parquet"):
        shutil.copy(trained / "survey.parquet", inputs / name)
    out = tmp_path_factory.mktemp("annotated")
    classify([str(inputs)], "morphology", trained / "models", out)
    return out


@pytest.mark.parametrize(
    "keys", [{"model_id": "one"}, {"table": None}, {"format": "another"}, {"totals": {"n_rows": 3}}]
)
def test_what_is_no_manifest_is_refused(annotated: Path, tmp_path: Path, keys: dict[str, Any]) -> None:
    tree = json.loads((annotated / MANIFEST).read_text()) | keys
    (tmp_path / MANIFEST).write_text(json.dumps(tree))
    with pytest.raises(CatalogError, match=r"manifest.json: got a file that is not a manifest"):
        Manifest.read(tmp_path)


def test_names_are_read_as_written(tmp_path: Path) -> None:
    write_labelled_names(["b", "", "a", "b"], tmp_path)
    write_labelled_names(["c", "", "a", "c"], tmp_path)
    names = read_labelled_names(tmp_path)
    assert names is not None
    assert is_labelled(np.array(["a", "b", "c"], dtype=object), names).tolist() == [True, False, True]


@pytest.fixture
def manifest(annotated: Path) -> Manifest:
    """Return the manifest of a thousand partitions of the sky, each with ten doubtful objects."""
    one = Manifest.read(annotated)
    rng = np.random.default_rng(3)
    outputs = []
    for i in range(1000):
        (output, *_), name = one.outputs, f"dataset/Norder=5/Dir=0/Npix={i}.parquet"
        objects: list[DoubtfulObject] = []
        for j in range(10):
            own = {"id": f"G{i}-{j}", "mutual_information": round(rng.random(), 6)}
            objects.append(output.summary.doubtful[j % 2] | own)
        changes = {"sha256": rng.bytes(32).hex(), "inode": 2**63 + i}
        counts = replace(output.summary, doubtful=tuple(objects))
        outputs.append(replace(output, name=name, summary=counts, **changes))
    nothing = Tally(0, 0, (0,) * 2, (0.0,) * 2, (0.0,) * 2, (), {}, (0,) * 2)
    counts = replace(outputs[5].summary, tally=nothing, sky=None, doubtful=())
    outputs[5] = replace(outputs[5], summary=counts)
    return replace(one, outputs=tuple(outputs))


def table(folder: Path) -> Path:
    (path,) = (folder / "_files").iterdir()
    return path


def test_a_table_has_all_files_and_the_most_doubtful_objects(tmp_path: Path, manifest: Manifest) -> None:
    def first(some: Manifest) -> list[DoubtfulObject]:
        objects = [one for o in some.outputs for one in o.summary.doubtful]
        return sorted(objects, key=lambda d: (-d["mutual_information"], d["id"]))

    manifest.write(tmp_path)
    again = Manifest.read(tmp_path)
    assert again.table["rows"] == 1000
    for ours, theirs in zip(again.outputs, manifest.outputs, strict=True):
        bare = [replace(o, summary=replace(o.summary, doubtful=())) for o in (ours, theirs)]
        assert bare[0] == bare[1]
    assert first(again) == first(manifest)[:MOST_DOUBTFUL]


def test_the_table_of_the_manifest_before_stays_until_the_next_is_written(
    tmp_path: Path, annotated: Path
) -> None:
    before = Manifest.read(annotated)
    assert [output.name for output in before.outputs] == ["a.parquet", "b.parquet"]
    before.write(tmp_path)
    assert (tmp_path / MANIFEST).read_bytes() == (annotated / MANIFEST).read_bytes()
    first = table(tmp_path)
    content, document = first.read_bytes(), (tmp_path / MANIFEST).read_bytes()
    replace(before, outputs=before.outputs[1:]).write(tmp_path)
    assert table(tmp_path) != first
    first.write_bytes(content)
    # As a run leaves it that is killed before it writes the manifest.
    (tmp_path / MANIFEST).write_bytes(document)
    assert Manifest.read(tmp_path).outputs == before.outputs
    Manifest.sweep(tmp_path)
    assert table(tmp_path) == first


@pytest.mark.parametrize("harm", ["gone", "cut off", "of another release"])
def test_a_table_that_is_not_the_one_that_was_written_is_refused(
    tmp_path: Path, annotated: Path, harm: str
) -> None:
    Manifest.read(annotated).write(tmp_path)
    path = table(tmp_path)
    content = path.read_bytes()
    path.unlink()
    if harm == "cut off":
        path.write_bytes(content[:-100])
    if harm == "of another release":
        pq.write_table(pq.read_table(io.BytesIO(content)).slice(1), path)
    with pytest.raises(CatalogError, match=r"_files/[0-9a-f]{16}\.parquet: (the|this) table of files"):
        Manifest.read(tmp_path)
