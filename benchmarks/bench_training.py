"""Processor seconds of trainings as `blr init` writes them, beside CatBoost and cross-validated logistic regression.

    python benchmarks/bench_training.py [--quick] [--page docs/performance.md]

Sets are drawn by a seed: normal clouds with curved borders.  Each side of each work is a process of its own with one
thread, from its start to the written report or the probabilities.  Stages are columns; the second table says how the
time grows with rows, features, classes and candidates, one of them at a time.  The last line is the model of the cost
that `blr train` states before it fits: `COST` in `flows/training/steps.py`.  `--page` writes both tables into a page.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any, cast

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

STAGES = ("start", "reading", "fitting", "left-out rows", "refining", "drawing", "storing")
PEERS = ("CatBoost, 300 trees", "logistic regression, C by 5 folds")
BEGIN, END = "<!-- bench_training: written by make bench -->", "<!-- end of bench_training -->"
ALL = 99
"""More candidates than a list has."""


@dataclass(frozen=True)
class Work:
    """A training: its rows, features, classes, and at most how many candidates of the default list."""

    rows: int
    features: int
    classes: int
    candidates: int = ALL


WORKS = {
    "1,000 labels, 4 classes, 15 features": (Work(1000, 15, 4), 4),
    "10,000 labels, 6 classes, 36 features": (Work(10_000, 36, 6), 20),
    "50,000 labels, 3 classes, 10 features": (Work(50_000, 10, 3), 45),
    "10,521 labels, 28 classes, 11 features": (Work(10_521, 11, 28), 45),
    "1,589 labels, 21 classes, 10 features": (Work(1589, 10, 21), 20),
    "200 labels, one linear candidate": (Work(200, 3, 2, 1), 2),
}
"""Each work of the ledger, with its aim in seconds."""
GROWTH = {
    "rows": [Work(n, 6, 2) for n in (300, 1000, 3000, 10_000)],
    "features": [Work(1000, d, 2) for d in (3, 12, 40)],
    "classes": [Work(2000, 6, k) for k in (3, 5, 10, 30)],
    "candidates": [Work(1000, 6, 2, n) for n in (1, 3)],
}
QUICK_WORKS = {"200 labels, one linear candidate": WORKS["200 labels, one linear candidate"]}
QUICK_GROWTH = {"rows": [Work(n, 3, 2, 1) for n in (100, 200)]}


def labelled(work: Work) -> pa.Table:
    """Return a table of an identifier, features and a class."""
    rng = np.random.default_rng(work.rows + 1000 * work.features + work.classes)
    y = rng.integers(work.classes, size=work.rows)
    centre, bend = rng.normal(size=(2, work.classes, work.features))
    X = centre[y] + rng.normal(size=(work.rows, work.features))
    X += 0.3 * bend[y] * (X[:, :1] ** 2 - 1)
    columns: dict[str, Any] = {"id": np.arange(work.rows)} | {f"f{i}": x for i, x in enumerate(X.T)}
    return pa.table(columns | {"kind": [f"k{k:02d}" for k in y]})


def run(command: Sequence[str], folder: Path) -> tuple[float, str]:
    """Return the processor seconds of a process with one thread, and what it printed."""
    before = os.times()
    environment = os.environ | dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"), "1")
    before = os.times()
    done = subprocess.run(command, cwd=folder, check=True, capture_output=True, text=True, env=environment)  # noqa: S603
    after = os.times()
    return (
        after.children_user + after.children_system - before.children_user - before.children_system,
        done.stdout,
    )


def measured(work: Work, *, peers: bool) -> dict[str, float]:
    """Return the processor seconds of `init`, of `train` and its stages, and of the peers."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        pq.write_table(labelled(work), folder / "labelled.parquet")
        blr, here = [sys.executable, "-m", "flows"], [sys.executable, __file__]
        init, _ = run([*blr, "init", "labelled.parquet", "--label", "kind", "--out", "spec.toml"], folder)
        text = (folder / "spec.toml").read_text()
        head, *blocks = re.split(r"(?m)^(?=\[\[candidate\]\])", text)
        (folder / "spec.toml").write_text("".join([head, *blocks[: work.candidates]]))
        train, told = run([*here, "--stages", "spec.toml"], folder)
        taken = json.loads(told.splitlines()[-1])
        taken |= {"init": init, "train": train, "candidates": min(work.candidates, len(blocks))}
        for peer in PEERS if peers else ():
            with suppress(subprocess.CalledProcessError):
                taken[peer], _ = run([*here, "--peer", peer], folder)
        return cast("dict[str, float]", taken)


class _Heard:
    """The processor seconds of what trainings say that they do."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}
        self._what, self._left, self._began = "", 0, 0.0

    def start(self, what: str, total: int, unit: str) -> None:
        del unit
        self._end()
        self._what, self._left, self._began = what, total, time.process_time()

    def advance(self, n: int) -> None:
        self._left -= n
        if self._left <= 0:
            self._end()

    def note(self, line: str) -> None:
        del line

    def _end(self) -> None:
        spent, what = time.process_time() - self._began, re.sub(r" of candidate.*", "", self._what)
        self.seconds[what] = self.seconds.get(what, 0.0) + spent
        self._what, self._began = "", time.process_time()


def train_in_stages(specification: str) -> None:
    """Train as `blr train` does; print the processor seconds of each stage as JSON."""
    from flows.cli.app import hide_pandas_from_arrow, import_scipy  # noqa: PLC0415  the start is measured

    hide_pandas_from_arrow()
    import_scipy()
    from flows.request import TrainRequest  # noqa: PLC0415
    from flows.runs.progress import listening  # noqa: PLC0415
    from flows.training import steps  # noqa: PLC0415

    spent = dict.fromkeys(("ingest", "fit", "choose", "refine", "save"), 0.0)
    start = time.process_time()

    def timed(function: Any) -> Any:
        def step(*arguments: Any) -> Any:
            began = time.process_time()
            try:
                return function(*arguments)
            finally:
                spent[function.__name__] += time.process_time() - began

        return step

    heard = _Heard()
    request = TrainRequest(specification, store="models")
    with listening(heard):
        steps.train(request, step=timed)

    def told(name: str) -> float:
        return sum(seconds for what, seconds in heard.seconds.items() if what.startswith(name))

    left_out, drawing = told("left-out"), told("drawing")
    stages = (
        start,
        spent["ingest"],
        spent["fit"] - left_out,
        left_out,
        spent["choose"] + spent["refine"],
        drawing,
        spent["save"] - drawing,
    )
    print(json.dumps(dict(zip(STAGES, stages, strict=True))))


def fit_peer(name: str) -> None:
    """Fit a peer to the labelled rows, and print the mean of its probabilities."""
    table = pq.read_table("labelled.parquet")
    X = np.stack([table[c].to_numpy() for c in table.column_names[1:-1]], axis=1)
    y = np.unique(table["kind"].to_numpy(zero_copy_only=False), return_inverse=True)[1]
    if name == PEERS[0]:
        from catboost import CatBoostClassifier  # noqa: PLC0415  an extra

        model: Any = CatBoostClassifier(300, verbose=False, thread_count=1, allow_writing_files=False)
    else:
        from sklearn.linear_model import LogisticRegressionCV  # noqa: PLC0415  the start is measured
        from sklearn.pipeline import make_pipeline  # noqa: PLC0415
        from sklearn.preprocessing import StandardScaler  # noqa: PLC0415

        model = make_pipeline(StandardScaler(), LogisticRegressionCV(cv=5, max_iter=1000))
    print(model.fit(X, y).predict_proba(X).mean())


def row(cells: Iterable[str]) -> str:
    """Return a row of a table in Markdown."""
    return f"| {' | '.join(cells)} |"


def table(first: str, found: dict[str, dict[str, float]], more: Sequence[str]) -> list[str]:
    """Return a table: a training a row, its seconds, those of its stages and of `more`."""
    columns = ("train", *STAGES, *more)
    lines = [row([first, *columns]), row(["---"] * (len(columns) + 1))]
    for name, taken in found.items():
        lines.append(row([name, *(f"{taken[c]:.1f}" if c in taken else "–" for c in columns)]))
    return lines


def cost(found: Sequence[tuple[Work, dict[str, float]]]) -> list[float]:
    """Return the coefficients of `flows.training.steps.cost_terms`, by relative least squares, none below 0."""
    from scipy.optimize import nnls  # noqa: PLC0415  the start is measured

    from flows.training.steps import cost_terms  # noqa: PLC0415

    terms = np.array([cost_terms(w.rows, w.features, w.classes, int(t["candidates"])) for w, t in found])
    seconds = np.array([t["train"] for _, t in found])
    return [float(f"{c:.2g}") for c in nnls(terms / seconds[:, None], np.ones(len(seconds)))[0]]


def main() -> None:
    """Measure and print, or be one side of a work."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--quick", action="store_true", help="two small trainings, to see that it works")
    parser.add_argument("--page", type=Path, help="page to write the tables into")
    parser.add_argument("--stages", help=argparse.SUPPRESS)
    parser.add_argument("--peer", help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.stages or asked.peer:
        train_in_stages(asked.stages) if asked.stages else fit_peer(asked.peer)
        return
    if not find_spec("catboost"):
        print("catboost is not installed: its column stays empty", file=sys.stderr)
    works, growth = (QUICK_WORKS, QUICK_GROWTH) if asked.quick else (WORKS, GROWTH)
    found = []
    ledger, grown = {}, {}
    for name, (work, aim) in works.items():
        taken = measured(work, peers=True)
        found.append((work, taken))
        ledger[name] = taken | {"aim": float(aim)}
        print(name, json.dumps(taken), file=sys.stderr)
    for name, some in growth.items():
        for work in some:
            taken = measured(work, peers=False)
            found.append((work, taken))
            grown[
                f"{name}: {int(taken['candidates']) if name == 'candidates' else getattr(work, name):,}"
            ] = taken
            print(name, work, json.dumps(taken), file=sys.stderr)
    busy = f"Load of the machine {os.getloadavg()[0]:.1f} on {os.cpu_count()} processors."
    lines = [
        f"Processor seconds, one thread, of a whole process. {busy}",
        "",
        *table("training", ledger, ("init", *PEERS, "aim")),
        "",
        "How it grows, from 1,000 rows (classes: 2,000) of 6 features, 2 classes and the default candidates:",
        "",
        *table("grows", grown, ()),
    ]
    print("\n".join(lines))
    print(f"\nCOST = ({', '.join(map(repr, cost(found)))})")
    if asked.page:
        text = asked.page.read_text(encoding="utf-8")
        before, _, rest = text.partition(BEGIN)
        page = "\n".join([before + BEGIN, "", *lines, "", END]) + rest.partition(END)[2]
        asked.page.write_text(page, encoding="utf-8")


if __name__ == "__main__":
    main()
