"""Classification and training on workers of Dask: the same bytes as by threads, whoever is killed in the middle."""

from __future__ import annotations

import logging
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

from flows.classification import _plan
from flows.classification.execution import annotate_file
from flows.cli.app import run
from flows.engines import _dask
from flows.engines._dask import DaskEngine
from flows.engines.engine import LostError, ThreadEngine
from flows.errors import EngineError, Interrupted, TrainingError
from flows.models.store import Store
from flows.runs.manifest import MANIFEST
from flows.runs.progress import Listener, listening
from flows.training._gather import read_by_workers
from tests.e2e.running import running
from tests.flows.verbs import classify, reprocess, train
from tests.lasting import lasting_contents

distributed = pytest.importorskip("distributed")

N_FILES = 6


@contextmanager
def local_cluster(**options: object) -> Iterator[distributed.LocalCluster]:
    """Run a scheduler and a worker that is tried twice."""
    import dask

    with (
        dask.config.set({"distributed.scheduler.allowed-failures": 1}),
        distributed.LocalCluster(
            n_workers=1,
            threads_per_worker=1,
            host="127.0.0.1",
            dashboard_address="127.0.0.1:0",
            silence_logs=logging.CRITICAL,
            **options,
        ) as started,
    ):
        yield started


@pytest.fixture(scope="module")
def cluster() -> Iterator[distributed.LocalCluster]:
    """Run a scheduler for all tests; each says how many workers it wants."""
    with local_cluster() as started:
        yield started


@pytest.fixture(scope="module")
def survey(trained: Path, make: SimpleNamespace, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with a store, a release of files of which one is damaged inside, and what threads make of it."""
    folder = tmp_path_factory.mktemp("cluster")
    shutil.copytree(trained / "models", folder / "models")
    (folder / "release").mkdir()
    for seed in range(N_FILES):
        make.parquet(folder / "release" / f"p{seed}.parquet", make.survey(80 + 10 * seed, seed=seed))
    damaged = folder / "release" / "p2.parquet"
    content = bytearray(damaged.read_bytes())
    content[200:1200] = bytes(1000)
    damaged.write_bytes(content)
    classified(folder, "threads")
    return folder


@pytest.fixture(autouse=True)
def _orders_of_one_file(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_plan, "ROWS_A_TASK", 1)


class Heard(Listener):
    """Keeps the lines, and does something at the first report."""

    def __init__(self, at_first: Callable[[], None] = lambda: None) -> None:
        self.lines: list[str] = []
        self.rows: list[int] = []
        self._at_first = at_first

    def note(self, line: str) -> None:
        self.lines.append(line)

    def advance(self, n: int) -> None:
        if not n:
            return  # a file that failed
        self.rows.append(n)
        if len(self.rows) == 1:
            self._at_first()


def classified(survey: Path, name: str, **options: object) -> object:
    """Classify from within the folder, by paths that are relative to it."""
    before = Path.cwd()
    os.chdir(survey)
    try:
        return classify(["release"], model="morphology", store="models", out=Path("out") / name, **options)
    finally:
        os.chdir(before)


def content(survey: Path, name: str) -> dict[str, bytes]:
    files = lasting_contents(survey / "out" / name)
    del files["report.html"]
    return files


def workers(cluster: distributed.LocalCluster, n: int) -> str:
    """Have so many workers; return the scheduler's address."""
    cluster.scale(n)
    with distributed.Client(cluster, set_as_default=False) as client:
        while len(client.scheduler_info(n_workers=-1)["workers"]) != n:
            time.sleep(0.05)
    return str(cluster.scheduler_address)


@pytest.mark.parametrize("n", [pytest.param(1, marks=pytest.mark.long), 2, 3])
def test_the_same_bytes_as_by_threads(cluster: distributed.LocalCluster, survey: Path, n: int) -> None:
    heard = Heard()
    with listening(heard):
        told = classified(survey, f"on-{n}", engine=workers(cluster, n))
    assert told.status == "done"
    assert list(told.quarantined) == ["p2.parquet"]
    assert content(survey, f"on-{n}") == content(survey, "threads")
    assert f"{n} workers, {n} threads; its page: http://127.0.0.1" in heard.lines[0]
    assert sum(heard.rows) == told.summary.n_rows
    assert any(line.startswith("slowest files: p") for line in heard.lines)


def kill_one(cluster: distributed.LocalCluster) -> None:
    """Kill a worker as a machine would; its nanny starts another one."""
    os.kill(next(iter(cluster.workers.values())).pid, signal.SIGKILL)


@pytest.mark.parametrize(
    "n", [pytest.param(1, marks=pytest.mark.long), 2, pytest.param(3, marks=pytest.mark.long)]
)
def test_a_worker_killed_in_the_middle(cluster: distributed.LocalCluster, survey: Path, n: int) -> None:
    address = workers(cluster, n)
    with listening(Heard(lambda: kill_one(cluster))):
        classified(survey, f"killed-{n}", engine=address)
    assert content(survey, f"killed-{n}") == content(survey, "threads")


def slowly(item: int) -> int:
    time.sleep(0.2)
    return item


@pytest.mark.parametrize("verb", ["map", "reduce"])
def test_processes_that_all_ended_for_good_are_not_waited_for(
    monkeypatch: pytest.MonkeyPatch, verb: str
) -> None:
    """Dask gives up a process that ends while it starts; here its nanny is closed."""
    monkeypatch.setattr(_dask, "GONE", 1.0)
    monkeypatch.setattr(_dask, "COUNT_EVERY", 0.2)
    with closing(DaskEngine("local:1")) as engine:
        assert next(engine.map(slowly, [1])) == (1, 1)
        cluster = engine._cluster
        assert cluster is not None
        for nanny in cluster.workers.values():
            cluster.sync(nanny.close)
        work = {
            "map": lambda: list(engine.map(slowly, range(5))),
            "reduce": lambda: engine.reduce(slowly, range(5), add=sum),
        }
        said = r"local:1: all worker processes ended, and none has started again"
        with pytest.raises(EngineError, match=said):
            work[verb]()


def test_a_run_killed_while_its_workers_go_on(cluster: distributed.LocalCluster, survey: Path) -> None:
    """What they still finish does no harm to the next run, which begins at once."""
    address = workers(cluster, 2)
    command = "classify release --model morphology --store models --out out/orphans --direct --engine"
    root = str(Path(__file__).parents[2])
    program = [sys.executable, "-m", "flows", *command.split(), address]
    environment = {**os.environ, "PYTHONPATH": root}
    killed = subprocess.Popen(program, cwd=survey, env=environment, stderr=subprocess.DEVNULL)
    staged = survey / "out/orphans/.blr-staging"
    while not list(staged.rglob("*.parquet.json")):
        assert killed.poll() is None
        time.sleep(0.01)
    killed.kill()
    killed.wait()
    assert classified(survey, "orphans", engine=address).status == "done"
    assert content(survey, "orphans") == content(survey, "threads")


def test_stopped_by_ctrl_c_and_gone_on(cluster: distributed.LocalCluster, survey: Path) -> None:
    address = workers(cluster, 1)
    with (
        listening(Heard(lambda: os.kill(os.getpid(), signal.SIGINT))),
        pytest.raises(Interrupted, match="run the same command again"),
    ):
        classified(survey, "stopped", engine=address)
    assert not (survey / "out/stopped" / MANIFEST).exists()
    assert 0 < annotated_again(survey, "stopped") < N_FILES
    assert content(survey, "stopped") == content(survey, "threads")


@contextmanager
def started_by_hand(folder: Path) -> Iterator[list[subprocess.Popen[bytes]]]:
    """Run the commands of the page in a folder, on ports of this machine; yield scheduler and worker."""
    page = (Path(__file__).parents[2] / "docs" / "cluster.md").read_text(encoding="utf-8")
    by_hand = page.partition("## By hand")[2].partition("\n## ")[0]
    commands = re.findall(r"^dask (scheduler|worker) (.*)$", by_hand, flags=re.MULTILINE)
    assert [kind for kind, _ in commands] == ["scheduler", "worker"]
    here = {
        "scheduler": ["--host", "127.0.0.1", "--port", "0", "--dashboard-address", "127.0.0.1:0"],
        "worker": ["--host", "127.0.0.1", "--nworkers", "1", "--local-directory", str(folder / "scratch")],
    }
    (folder / "scheduler.json").unlink(missing_ok=True)
    running: list[subprocess.Popen[bytes]] = []
    try:
        for kind, options in commands:
            command = [sys.executable, "-m", "dask", kind, *shlex.split(options), *here[kind]]
            with (folder / f"{kind}.log").open("ab") as log:
                running.append(subprocess.Popen(command, cwd=folder, stdout=log, stderr=log))
            for _ in range(600):
                if (folder / "scheduler.json").exists():
                    break
                time.sleep(0.1)
        yield running
    finally:
        for process in reversed(running):
            process.kill()  # without a scheduler, a worker that is only asked to end takes half a minute
            process.wait()


@pytest.mark.long
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSTOP])
def test_a_scheduler_killed_or_silent_and_the_commands_of_the_page(
    survey: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, number: int
) -> None:
    """The page's commands start what the run asks for; without a scheduler it ends in a sentence; it goes on."""
    monkeypatch.chdir(survey)
    name = f"by-hand-{number}"
    monkeypatch.setattr(_dask, "UNANSWERED", 1)
    monkeypatch.setattr(_dask, "AHEAD", 1)  # else all results might be there before the first is reported
    monkeypatch.setattr(_dask, "TASKS_A_THREAD", 1)
    with (
        started_by_hand(survey) as (scheduler, _),
        listening(Heard(lambda: scheduler.send_signal(number))),
        pytest.raises(EngineError, match=r"^scheduler.json: Dask's scheduler stopped answering"),
    ):
        classified(survey, name, engine="scheduler.json")
    assert [r for r in caplog.records if r.exc_info] == []  # no traceback beside the sentence
    assert len(list((survey / "out" / name / ".blr-staging").rglob("*.json"))) >= 1
    page = (Path(__file__).parents[2] / "docs" / "cluster.md").read_text(encoding="utf-8")
    (command,) = re.findall(r"^blr (classify .* --engine scheduler.json)$", page, flags=re.MULTILINE)
    with started_by_hand(survey):
        assert run([*shlex.split(command.replace("annotated", f"out/{name}")), "--direct", "--quiet"]) == 3
    assert content(survey, name) == content(survey, "threads")


def annotated_again(survey: Path, name: str) -> int:
    done = []
    with pytest.MonkeyPatch.context() as patch:
        annotate = lambda work, job: done.append(job.name) or annotate_file(work, job)  # noqa: E731
        patch.setattr("flows.classification.execution.annotate_file", annotate)
        assert classified(survey, name).status == "done"
    return len(done)


def test_workers_that_differ_are_refused(
    cluster: distributed.LocalCluster, survey: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    address = workers(cluster, 1)
    monkeypatch.setattr(_dask, "PACKAGES", ("numpy", "no-such-package"))
    monkeypatch.setattr(_dask, "version", {"numpy": "1.0", "no-such-package": "2.0"}.get)
    _dask.installed.cache_clear()
    got = r"^tcp://127\S+: got numpy 2\S+, no-such-package missing, "
    with pytest.raises(EngineError, match=f"{got}expected numpy 1.0, no-such-package 2.0, as"):
        classified(survey, "differ", engine=address)
    _dask.installed.cache_clear()
    assert not (survey / "out/differ").exists()


OTHER = """
from importlib.metadata import version
from flows.engines import _dask as versions
versions.version = lambda name: "0.1" if name == "numpy" else version(name)
"""
"""What makes a worker say that it has another NumPy."""


@contextmanager
def another_worker(address: str, folder: Path) -> Iterator[Callable[[], None]]:
    """Yield what starts a worker of another version, whose process ends with the block."""
    (folder / "other.py").write_text(OTHER)
    options = "--preload other.py --no-dashboard --no-nanny --nthreads 4 --local-directory other"
    command = [sys.executable, "-m", "dask", "worker", address, "--host", "127.0.0.1", *options.split()]
    env = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])}
    with ExitStack() as workers:

        def start() -> None:
            with distributed.Client(address, set_as_default=False) as client:
                n = len(client.nthreads()) + 1
                workers.enter_context(running(command, folder / "worker.log", cwd=folder, env=env))
                client.wait_for_workers(n, timeout=60)

        yield start


REFUSED = r"^worker on \S+: got numpy 0.1, expected numpy [1-9]\S+, as on the machine that started the run"


def test_a_worker_of_another_version_that_joins_a_classification(
    cluster: distributed.LocalCluster, survey: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It annotates nothing: the run ends in one sentence, and goes on without it."""
    monkeypatch.setattr(_dask, "AHEAD", 1)
    monkeypatch.setattr(_dask, "TASKS_A_THREAD", 1)
    monkeypatch.setattr(_dask, "LARGEST", 1)
    monkeypatch.setattr(_dask, "COUNT_EVERY", 0.0)
    address = workers(cluster, 1)
    with (
        another_worker(address, tmp_path) as start,
        listening(Heard(start)),
        pytest.raises(EngineError, match=REFUSED),
    ):
        classified(survey, "joined", engine=address)
    assert not (survey / "out/joined" / MANIFEST).exists()
    assert 0 < annotated_again(survey, "joined") < N_FILES
    assert content(survey, "joined") == content(survey, "threads")


def nested(item: int, depth: int = 0) -> int:
    """Return the number, or call itself for ever where it is 2."""
    return nested(item, depth + 1) if item == 2 else item


def caused(item: int) -> int:
    """Fail as a file does that has gone."""
    try:
        return [item][item]
    except IndexError as error:
        raise OSError(f"got {item}") from error


def test_an_error_of_a_worker_has_its_cause_and_with_a_deep_traceback_it_ends_the_work(
    cluster: distributed.LocalCluster,
) -> None:
    """A worker sends the last frames in words: Dask's client never hears of a traceback that cannot be sent."""
    with closing(DaskEngine(workers(cluster, 2))) as engine:
        with pytest.raises(OSError, match="got 2") as failed:
            list(engine.map(caused, [2]))
        assert isinstance(failed.value.__cause__, IndexError)
        with pytest.raises(RecursionError, match="maximum recursion depth") as told:
            list(engine.map(nested, [1, 2, 3]))
        assert "in nested" in told.value.__notes__[0]
        with pytest.raises(RecursionError):
            engine.reduce(nested, range(5), add=sum)
        assert sorted(engine.map(nested, [1, 3])) == [(1, 1), (3, 3)]


def test_what_no_worker_outlives_is_lost(cluster: distributed.LocalCluster) -> None:
    with closing(DaskEngine(workers(cluster, 1))) as engine:
        ((item, lost),) = engine.map(os._exit, [1])
    assert (item, type(lost)) == (1, LostError)
    assert "2 workers were killed one after another" in str(lost)


@pytest.fixture
def small_worker() -> Iterator[str]:
    """Run a worker that its nanny kills at 700 MB, which long names exceed; yield the scheduler's address."""
    with local_cluster(memory_limit="700MB") as started:
        yield str(started.scheduler_address)


@pytest.mark.long
def test_a_worker_that_runs_out_of_memory(
    small_worker: str, trained: Path, make: SimpleNamespace, tmp_path: Path
) -> None:
    """A file that fits in small batches is annotated; one that never does waits for a run with more memory."""
    shutil.copytree(trained / "models", tmp_path / "models")
    (tmp_path / "release").mkdir()
    for seed in range(3):
        make.parquet(tmp_path / "release" / f"p{seed}.parquet", make.survey(80, seed=seed))
    for name, n_rows, length in (("a-huge", 4_096, 64_000), ("big", 131_072, 2_000)):
        columns = {key: pa.array(column) for key, column in make.survey(n_rows).items()}
        columns["name"] = pc.binary_join_element_wise(columns["name"], "x" * length, "-")
        pq.write_table(pa.table(columns), tmp_path / "release" / f"{name}.parquet", use_dictionary=False)
    _plan.ROWS_A_TASK = 10**9
    heard = Heard()
    with listening(heard):
        told = classified(tmp_path, "small", engine=small_worker)
    assert list(told.quarantined) == ["a-huge.parquet"]
    assert told.quarantined["a-huge.parquet"].startswith("read as a whole and in small batches: 2 workers")
    assert "workers ended over groups of files: 5 files are tried again, each by itself" in heard.lines
    said = "workers ended over a-huge.parquet, big.parquet: tried again in batches of 4,096 rows"
    assert said in heard.lines
    assert classified(tmp_path, "small", threads=1).quarantined == {}
    classified(tmp_path, "threads", threads=1)
    copies = [
        {k: v for k, v in content(tmp_path, name).items() if not k.startswith(("_", "summary", "manifest"))}
        for name in ("small", "threads")
    ]
    assert copies[0] == copies[1]


def test_a_release_brought_up_to_date_by_workers(survey: Path, make: SimpleNamespace) -> None:
    """Differences are reported as by threads, and files that were touched are hashed by workers and kept."""
    spec = survey / "spec.toml"
    (survey / "night").mkdir()
    for seed in range(3):
        make.parquet(survey / "night" / f"n{seed}.parquet", make.survey(50, seed=seed))
    reports = []
    for name in ("release-threads", "release-workers"):
        places = f'\n[target]\npaths = ["night/*"]\n[output]\nfolder = "{survey}/out/{name}"\n'
        spec.write_text(make.specification + places)
        make.parquet(survey / "night" / "n1.parquet", make.survey(50, seed=1))
        common = {"store": survey / "models", "quiet_seconds": 0}
        reprocess(spec, **common)
        make.parquet(survey / "night" / "n1.parquet", make.survey(50, seed=9))
        os.utime(survey / "night" / "n0.parquet")
        engine = ThreadEngine(is_remote=name.endswith("workers"))
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr("flows.classification.steps.chosen_engine", lambda *_, e=engine: e)
            told = reprocess(spec, **common)
        assert {n: f["why"] for n, f in told.files.items() if f["why"]} == {"n1.parquet": "changed"}
        reports.append(told.difference)
    assert reports[0] == reports[1]
    assert reports[0].compared == 50


def written_in_parts(make: SimpleNamespace, folder: Path, columns: dict[str, np.ndarray], added: str) -> str:
    """Write labelled rows as four files; return a specification for them, with tables added before its features."""
    for i, rows in enumerate(np.array_split(np.arange(1500), 4)):
        make.parquet(folder / f"survey-{i}.parquet", {name: column[rows] for name, column in columns.items()})
    text, _, _ = make.specification.replace("survey.", "survey-*.").partition("[[candidate]]\nfeatures")
    return str(text.replace("[features]", f'{added}[select]\nposterior = "laplace"\n[features]'))


@pytest.fixture(scope="module")
def labelled(make: SimpleNamespace, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with a specification, labelled rows, and the model that threads make of them."""
    folder = tmp_path_factory.mktemp("labelled")
    (folder / "spec.toml").write_text(written_in_parts(make, folder, make.survey(1500), ""))
    trained_in_shards(folder, "threads")
    return folder


def trained_in_shards(
    folder: Path, name: str, *, at_pass: Callable[[int], None] = lambda _: None, **options: object
) -> bytes:
    """Train as a command does, with rows of several files that are too many for the memory; return the model file.

    `at_pass` hears of each sum over all rows before it begins.
    """
    made, reduce, read = [], DaskEngine.reduce, []

    def counted(*given: object, **named: object) -> object:
        made.append(1)
        at_pass(len(made))
        return reduce(*given, **named)

    def reading(*arguments: Any) -> Iterator[object]:
        read.append(type(arguments[-1].args[0]))
        return read_by_workers(*arguments)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("flows.training._gather.read_by_workers", reading)
        patch.setattr("flows.training._gather.MOST_IN_MEMORY", 500)
        patch.setattr("flows.training._rows.SHARD_ROWS", 300)
        patch.setattr(DaskEngine, "reduce", counted)
        told = train(folder / "spec.toml", folder / name, **options)
    assert len(made) > LAST_KILL or not options
    assert read == [DaskEngine] * len(options), "workers have read the rows"
    return (Path(told.path) / "model.asdf").read_bytes()


LAST_KILL = 14
"""The pass of a training at which a worker is killed for the last time."""


@pytest.mark.parametrize("killed", [False, pytest.param(True, marks=pytest.mark.long)])
@pytest.mark.parametrize(
    "n", [pytest.param(1, marks=pytest.mark.long), 2, pytest.param(3, marks=pytest.mark.long)]
)
def test_a_model_has_the_same_bytes_on_workers(
    cluster: distributed.LocalCluster, labelled: Path, n: int, killed: Any
) -> None:
    """A whole training, from the rows' reading on; where workers are killed, one then and two at later sums."""
    address, heard = workers(cluster, n), Heard(lambda: killed and kill_one(cluster))

    def kill(number: int) -> None:
        if killed and number in (4, LAST_KILL):
            kill_one(cluster)

    with listening(heard):
        model = trained_in_shards(labelled, f"on-{n}-{killed}", at_pass=kill, engine=address)
    assert killed or any(f"{n} workers" in line for line in heard.lines)
    (expected,) = (labelled / "threads").glob("*/*/model.asdf")
    assert model == expected.read_bytes()


@pytest.mark.parametrize(
    "more", [pytest.param("density", marks=pytest.mark.long), "annotators", "label table"]
)
def test_models_of_other_rows_have_the_same_bytes_on_workers(
    cluster: distributed.LocalCluster, make: SimpleNamespace, tmp_path: Path, monkeypatch: Any, more: str
) -> None:
    """With weights for a target, with annotators, with labels from a table; the store's path is relative."""
    monkeypatch.chdir(tmp_path)
    rng, columns, label = np.random.default_rng(3), make.survey(1500), "[label]\n"
    if more == "density":
        bright = {name: column[columns["bmag"] > 14][:300] for name, column in columns.items()}
        make.parquet(tmp_path / "target.parquet", bright)
        added = '[shift]\ntarget = "target.parquet"\ndensity_weights = true\n'
    elif more == "annotators":
        columns["who"], added = rng.choice(np.array(["anna", "ben", ""]), 1500), ""
        label += 'noise = "estimated"\nannotator = "who"\n'
    else:
        labels = {"name": columns["name"], "hubble": columns.pop("hubble")}
        pq.write_table(pa.table(labels), tmp_path / "labels.parquet")
        added = '[label.table]\npath = "labels.parquet"\nid = "name"\n'
    text = written_in_parts(make, tmp_path, columns, added)
    (tmp_path / "spec.toml").write_text(text.replace("[label]\n", label))
    expected = trained_in_shards(Path(), "threads")
    assert trained_in_shards(Path(), "on-2", engine=workers(cluster, 2)) == expected


@pytest.fixture(scope="module")
def unlisted(make: SimpleNamespace, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with labelled fluxes, some objects with rows of two classes; no classes are listed."""
    folder, rng, columns = tmp_path_factory.mktemp("unlisted"), np.random.default_rng(4), make.survey(1500)
    late = np.isin(columns["hubble"], ["Sb", "Sc"])
    columns["hubble"] = np.where(late, np.where(rng.random(1500) < 0.5, "late", "Late"), columns["hubble"])
    columns["hubble"] = np.where(np.isin(columns["hubble"], ["E", "S0"]), "early", columns["hubble"])
    columns["name"][1400:] = columns["name"][:100]
    columns["flux"] = 10 ** (0.4 * (22.5 - columns["bmag"]))
    columns["sigma"] = columns["flux"] * rng.uniform(0.02, 0.2, 1500)
    listed = 'classes = { early = ["E", "S0"], late = ["Sb", "Sc"] }'
    band = '[photometry.b]\nflux = "flux"\nerror = "sigma"\nunit = "nanomaggy"\n'
    text = written_in_parts(make, folder, columns, band).replace('"bmag - jmag"', '"b - jmag"')
    (folder / "spec.toml").write_text(text.replace(listed, 'case_sensitive = false\nexclude = ["S?"]'))
    return folder


def test_workers_make_every_pass_over_the_labelled_rows(
    cluster: distributed.LocalCluster, unlisted: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Flux errors, labels and rows: the same model; while the labels are counted, a worker is killed."""
    expected = trained_in_shards(unlisted, "threads")
    assert Store(unlisted / "threads").load("morphology").training.labels.repeated > 20
    asked: list[str] = []
    mapped = DaskEngine.map

    def counted(engine: DaskEngine, work: object, items: Any) -> Iterator[object]:
        asked.append(work.func.__name__ if isinstance(work, partial) else type(work).__name__)
        for number, done in enumerate(mapped(engine, work, items)):
            yield done
            if asked[-1] == "_labels_of_piece" and not number:
                kill_one(cluster)

    monkeypatch.setattr(DaskEngine, "map", counted)
    assert trained_in_shards(unlisted, "on-2", engine=workers(cluster, 2)) == expected
    assert asked == ["_errors_of_piece", "_labels_of_piece", "read_piece"]


def test_workers_refuse_labels_that_are_names(
    cluster: distributed.LocalCluster, unlisted: Path, tmp_path: Path
) -> None:
    text = (unlisted / "spec.toml").read_text().replace('column = "hubble"', 'column = "name"')
    (tmp_path / "spec.toml").write_text(text.replace('"survey-', f'"{unlisted}/survey-'))
    for options in ({}, {"engine": workers(cluster, 2)}):
        with pytest.raises(TrainingError, match=r"'name' with \d+ different values, expected at most 100"):
            trained_in_shards(tmp_path, "refused", **options)
