"""Few labels and many, random and biased: one default run of ours beside its peers, on public sets, on the same splits.

Ours is what a user gets who edits nothing: the drawn rows are written as a Parquet file, `blr init` writes a
specification, `blr train` trains it, and the stored model classifies the test rows, whose file has no label.  Peers are
in `peers.py`, sets and draws in `labelled_sets.py`, the table in `labels_table.py`.

    python benchmarks/bench_labels.py [--sets kepler ...] [--sizes 100 200 1000 5000 all] [--bias random biased]
        [--splits 20] [--methods ours peers "random forest" ...] [--minutes 10] [--processes 2] [--table-only]

Every fit is a line of `results/SET.jsonl`.  A fit that is stored is not repeated (ours: of this version of the code),
so that a run that ends, by its budget of minutes or by a kill, goes on when it is started again.  At the end, all
that is stored becomes `LABELS.md`.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from contextlib import suppress
from dataclasses import asdict, dataclass
from functools import cache
from hashlib import sha256
from importlib.util import find_spec
from itertools import islice
from multiprocessing import get_context
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from labelled_sets import LABEL, SETS, Floats, LabelledSet, MissingDataError, Rows, draw
from labels_table import OURS, Fit, read_fits, table_page
from peers import GAUSSIAN_PROCESS, PEERS, fitted_probabilities, version_of
from threadpoolctl import threadpool_limits

import catalogs
from blr.calibration import brier_score, calibration_error, log_loss
from flows.draft.specification import starting_specification
from flows.request import TrainRequest
from flows.tables import classify_table
from flows.training import steps as training
from flows.version import code_version

HERE = Path(__file__).resolve().parent
PACKAGES = ("blr", "catalogs", "flows")
SIZES = ("100", "200", "1000", "5000", "all")
METHODS = (OURS, *PEERS)
MANY_LABELS, SPLITS_OF_MANY = 1000, 5
"""Above so many labels there are so many splits."""
LARGEST_GP, LARGEST_QUICK_GP = 1000, 200
"""Most labels of a Gaussian process, and most of it with all splits: its time grows with their cube."""
FLOOR = 1e-6
"""Least probability: one test row of which a method was certain and wrong costs 14 nats and not infinitely many."""


@dataclass(frozen=True)
class Job:
    """A fit that is wanted."""

    set: str
    size: str
    biased: bool
    split: int
    method: str
    code: str


def _git(*arguments: str) -> bytes:
    command = ["git", "-C", str(HERE.parent), *arguments]
    return subprocess.run(command, capture_output=True, check=True).stdout  # noqa: S603 -- our own words


@cache
def our_code() -> str:
    """Return the last commit that changed our packages, with a digest of what is changed and not committed."""
    try:
        commit = _git("log", "-1", "--format=%h", "--", *PACKAGES).decode().strip()
        changed = _git("diff", "HEAD", "--", *PACKAGES)
        new = _git("ls-files", "--others", "--exclude-standard", "--", *PACKAGES).decode().splitlines()
    except (OSError, subprocess.CalledProcessError):
        return code_version()
    changed += b"".join((HERE.parent / name).read_bytes() for name in new)
    return commit + (f"+{sha256(changed).hexdigest()[:8]}" if changed else "")


def ours(labelled: LabelledSet, train: Rows, test: Rows) -> tuple[Floats, str]:
    """Return our probabilities (N, K) of the test rows, and a remark on classes or rows that have none."""
    with tempfile.TemporaryDirectory(prefix="bench-labels-") as name:
        folder = Path(name)
        pq.write_table(labelled.file(train, labelled=True), folder / "labels.parquet")
        start = starting_specification(catalogs.open(folder / "labels.parquet"), LABEL, folder=folder)
        (folder / "specification.toml").write_text(start.text, encoding="utf-8")
        model = training.train(TrainRequest(folder / "specification.toml", folder / "models", threads=1))
        table = labelled.file(test, labelled=False)
        classified = classify_table(table, model=model.model, store=folder / "models")
    P, absent = _probabilities(classified, labelled.classes)
    bare = ~np.isfinite(P).all(axis=1)
    P[bare] = np.bincount(labelled.y[train], minlength=len(labelled.classes)) / len(train)
    remarks = [f"classes left out: {', '.join(absent)}"] * bool(absent)
    remarks += [f"{bare.sum()} rows without probabilities got the class shares"] * bool(bare.any())
    return P, "; ".join(remarks)


def _probabilities(classified: pa.Table, classes: Sequence[str]) -> tuple[Floats, list[str]]:
    """Return the probabilities (N, K), 0 for a class that the model lacks, and the names of those."""
    absent = [c for c in classes if f"blr_p_{c}" not in classified.column_names]
    columns = [
        np.zeros(len(classified)) if c in absent else classified[f"blr_p_{c}"].to_numpy(zero_copy_only=False)
        for c in classes
    ]
    return np.column_stack(columns).astype(np.float64), absent


def fit_one(job: Job) -> Fit | None:
    """Return the fit of a job, a failure too; None where the set has no such draw."""
    labelled = SETS[job.set]()
    rows = draw(labelled, None if job.size == "all" else int(job.size), job.split, biased=job.biased)
    if rows is None or _left_to_fewer(job, len(rows[0])):
        return None
    train, test = rows
    failure, remark = "", ""
    scores: tuple[float | None, ...] = (None,) * len(SCORES)
    start = time.process_time()
    # Small matrices: more threads only wait for each other.  Warnings: of the peers' optimisers.
    with threadpool_limits(1), warnings.catch_warnings(action="ignore"):
        try:
            if job.method == OURS:
                P, remark = ours(labelled, train, test)
            else:
                X, y = labelled.features, labelled.y
                P = fitted_probabilities(job.method, X[train], y[train], X[test])
            scores = _scores(P, labelled.y[test])
        except Exception as error:  # noqa: BLE001 -- whatever a method raises is a result of it
            failure = f"{type(error).__name__}: {' '.join(str(error).split())}"[:300]
    return Fit(
        **asdict(job),
        n_labels=len(train),
        n_test=len(test),
        **dict(zip(SCORES, scores, strict=True)),
        seconds=round(time.process_time() - start, 3),
        failure=failure,
        remark=remark,
    )


SCORES = ("log_loss", "log_loss_unfloored", "brier", "calibration_error")


def _scores(P: Floats, y: Rows) -> tuple[float, ...]:
    if P.shape[1] <= y.max() or not np.isfinite(P).all():
        raise ValueError(f"got probabilities {P.shape}, not all of them finite, expected a column a class")
    floored = np.clip(P, FLOOR, None)
    floored /= floored.sum(axis=1, keepdims=True)
    exact = P / P.sum(axis=1, keepdims=True)
    found = log_loss(floored, y), log_loss(exact, y), brier_score(exact, y), calibration_error(exact, y)
    return tuple(round(value, 6) for value in found)


def _left_to_fewer(job: Job, n_labels: int) -> bool:
    """Return whether a split or a method is for fewer labels than these."""
    if job.method == GAUSSIAN_PROCESS and n_labels > LARGEST_GP:
        return True
    few = n_labels > MANY_LABELS or (job.method == GAUSSIAN_PROCESS and n_labels > LARGEST_QUICK_GP)
    return few and job.split >= SPLITS_OF_MANY


def jobs(asked: argparse.Namespace) -> Iterator[Job]:
    """Yield what is asked for: small training sets first, a split of all sets before the next."""
    for size in asked.sizes:
        for split in range(asked.splits):
            for name in asked.sets:
                for bias in asked.bias:
                    for method in asked.methods:
                        code = our_code() if method == OURS else version_of(method)
                        yield Job(name, size, bias == "biased", split, method, code)


def key(of: Job | Fit) -> tuple[str, str, bool, int, str, str]:
    """Return what a fit is of; a peer's version is no part of it."""
    return of.set, of.size, of.biased, of.split, of.method, of.code if of.method == OURS else ""


def run(asked: argparse.Namespace) -> int:
    """Fit what is asked for and not stored, as long as the budget lasts; return the number of new fits."""
    known = {key(fit) for fit in read_fits(asked.results)}
    end = time.monotonic() + 60 * asked.minutes
    left = (job for job in jobs(asked) if key(job) not in known)
    pending = (job for job in left if time.monotonic() < end)
    done = 0
    for fit in _fits(pending, asked.processes):
        if fit is not None:
            keep(fit, asked.results)
            print(_shown(fit), flush=True)
            done += 1
    return done


def _fits(pending: Iterator[Job], processes: int) -> Iterator[Fit | None]:
    """Yield the fits of the jobs, in processes side by side where these are more than one."""
    if processes == 1:
        yield from map(fit_one, pending)
        return
    with ProcessPoolExecutor(processes, mp_context=get_context("spawn")) as pool:
        running: set[Future[Fit | None]] = {pool.submit(fit_one, job) for job in islice(pending, processes)}
        while running:
            ended, running = wait(running, return_when=FIRST_COMPLETED)
            for future in ended:
                yield future.result()
                running |= {pool.submit(fit_one, job) for job in islice(pending, 1)}


def keep(fit: Fit, folder: Path) -> None:
    """Append a fit to its set's file, on a line of its own behind one that a kill cut off."""
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / f"{fit.set}.jsonl").open("ab+") as stream:
        if stream.tell():
            stream.seek(-1, os.SEEK_END)
            if stream.read(1) != b"\n":
                stream.write(b"\n")
        stream.write((json.dumps(asdict(fit)) + "\n").encode())


def _shown(fit: Fit) -> str:
    score = fit.failure or f"{fit.log_loss:.4f} nats"
    return (
        f"{fit.set}, {fit.size} {'biased' if fit.biased else 'random'}, split {fit.split}, {fit.method}: "
        f"{score}, {fit.seconds:.1f} s{f' ({fit.remark})' if fit.remark else ''}"
    )


def _methods(names: Sequence[str]) -> list[str]:
    """Return the methods whose names begin so; `peers` are all but ours."""
    wanted = tuple(names)
    chosen = [m for m in METHODS if m.startswith(wanted) or ("peers" in wanted and m != OURS)]
    if not chosen:
        raise SystemExit(
            f"--methods: got {', '.join(names)}, expected the beginnings of {', '.join(METHODS)}"
        )
    if "CatBoost" in chosen and find_spec("catboost") is None:
        chosen.remove("CatBoost")
        print("CatBoost is left out: it is not installed; pip install 'galaxyblr[bench]'", file=sys.stderr)
    return chosen


def _present(names: Sequence[str]) -> list[str]:
    """Return the sets whose data are on this machine; name the others."""
    present = []
    for name in names:
        try:
            SETS[name]()
        except MissingDataError as error:
            print(f"{name} is left out: {error}", file=sys.stderr)
        else:
            present.append(name)
    return present


def parse(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    """Return what is asked for on the command line."""
    parser = argparse.ArgumentParser(description="Our default run beside its peers, on public labelled sets.")
    parser.add_argument("--sets", nargs="+", default=[*SETS], choices=[*SETS])
    parser.add_argument("--sizes", nargs="+", default=SIZES, help="numbers of labels, or all")
    parser.add_argument("--bias", nargs="+", default=["random", "biased"], choices=["random", "biased"])
    parser.add_argument("--splits", type=int, default=20, help="at most; five above 1,000 labels")
    parser.add_argument("--methods", nargs="+", default=[""], help="beginnings of names, or peers")
    parser.add_argument("--minutes", type=float, default=10.0, help="no fit begins after so long")
    parser.add_argument("--processes", type=int, default=1)
    parser.add_argument("--results", type=Path, default=HERE / "results", help="folder of the stored fits")
    parser.add_argument("--table", type=Path, default=HERE / "LABELS.md", help="the Markdown page to write")
    parser.add_argument("--table-only", action="store_true")
    parser.add_argument("--code", help="of our results in the table; default: each cell's newest")
    return parser.parse_args(arguments)


def main(arguments: Sequence[str] | None = None) -> int:
    """Fit what is asked for, and write the table of all that is stored."""
    asked = parse(arguments)
    asked.methods = _methods(asked.methods)
    with suppress(KeyboardInterrupt):
        if not asked.table_only:
            asked.sets = _present(asked.sets)
            print(f"{run(asked)} new fits")
    asked.table.write_text(table_page(read_fits(asked.results), code=asked.code), encoding="utf-8")
    print(asked.table)
    return 0


if __name__ == "__main__":
    sys.exit(main())
