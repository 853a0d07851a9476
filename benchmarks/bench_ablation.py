"""What each mechanism of the default run gains: the run with it and without it, on the same cells of public sets.

    python benchmarks/bench_ablation.py [--minutes 30] [--only MECHANISM ...] [--table-only]

A cell is a set, a number of labels, random or biased, and a split (`labelled_sets.py`).  Without a mechanism, the
specification that `blr init` writes is edited, or a constant of the code is set to what leaves the mechanism out.
Every run is a line of `results-ablation/runs.jsonl`, and is not repeated; at the end all of them become `ABLATION.md`.
"""

from __future__ import annotations

import argparse
import json
import os
import sys

os.environ.setdefault("OMP_NUM_THREADS", "1")  # seconds of the processor are of one thread
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import tempfile
import time
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import tomlkit
from bench_labels import FLOOR, _probabilities, our_code
from labelled_sets import LABEL, SETS, MissingDataError, draw
from scipy.stats import t as student

import catalogs
from blr.calibration import log_loss
from blr.classifier import Classifier
from flows.draft.specification import starting_specification
from flows.models.store import Store
from flows.tables import classify_table
from flows.training import steps as training
from flows.training.request import TrainRequest

HERE = Path(__file__).resolve().parent
RUNS, PAGE = HERE / "results-ablation" / "runs.jsonl", HERE / "ABLATION.md"
WHOLE = "nothing left out"
DECISIVE, LITTLE = 0.01, 0.001
"""Gain in one cell, and in the mean, in nats an object, from which a mechanism stays."""

CELLS = (
    *("6dfgs 100 random 0", "6dfgs 100 biased 1", "breast-cancer 100 random 0", "breast-cancer 100 biased 0"),
    *("kepler 200 random 0", "kepler 100 biased 1", "linear 200 random 2", "linear 1000 biased 0"),
    *("galaxy-zoo-2 200 random 2", "galaxy-zoo-2 1000 biased 0", "wine 100 random 0"),
    *("openngc-binary 1000 random 0", "openngc-binary 100 biased 0", "openngc-five-class 200 biased 0"),
    *("sdss-dr14 200 random 0", "sdss-dr14 100 biased 1", "sdss-dr14 1000 biased 0"),
    *("phoneme 1000 random 0", "satimage 1000 random 0", "magic 5000 random 0"),
)


@dataclass(frozen=True)
class Mechanism:
    """A mechanism of the default run, how to leave it out, and the files that it could be deleted with.

    `edit` changes the specification; `constants` are names `module:NAME` with what leaves the mechanism out.
    """

    name: str
    edit: Callable[[Any], None] = lambda _: None
    constants: Mapping[str, Any] = field(default_factory=dict)
    code: tuple[str, ...] = ()


def without(kind: str, **options: object) -> Callable[[Any], None]:
    """Return the edit that deletes the candidates of a kind of basis with these options."""

    def edit(document: Any) -> None:
        kept = [
            c
            for c in document["candidate"]
            if c["basis"]["kind"] != kind or any(c["basis"].get(k) != v for k, v in options.items())
        ]
        document["candidate"] = kept

    return edit


def no_key(table: str, key: str) -> Callable[[Any], None]:
    """Return the edit that deletes a key of all candidates, or of their bases."""

    def edit(document: Any) -> None:
        for candidate in document["candidate"]:
            (candidate if table == "candidate" else candidate["basis"]).pop(key, None)

    return edit


def selected(key: str, value: str) -> Callable[[Any], None]:
    """Return the edit that sets a key of [select]."""

    def edit(document: Any) -> None:
        document["select"][key] = value

    return edit


MECHANISMS = (
    Mechanism("candidate: linear", without("linear")),
    Mechanism("candidate: degree 2", without("polynomial"), code=("blr/basis/_polynomial.py",)),
    Mechanism("candidate: Gaussian process", without("nystroem"), code=("blr/basis/_nystroem.py",)),
    Mechanism("candidate: steps", without("sigmoid"), code=("blr/basis/sigmoid.py",)),
    Mechanism("candidate: forest, random thresholds", without("forest", split=None, boosted=None)),
    Mechanism("candidate: forest, best thresholds", without("forest", split="best")),
    Mechanism("candidate: boosted trees", without("forest", boosted=True)),
    Mechanism("all trees", without("forest"), code=("blr/basis/_forest.py",)),
    Mechanism("arcsinh", no_key("candidate", "transform")),
    Mechanism("heights of steps", no_key("basis", "height"), code=("blr/selection/relevance.py",)),
    Mechanism(
        "several scales of the prior", selected("scale", "maximised"), code=("blr/selection/prior_scale.py",)
    ),
    Mechanism("refined posterior", selected("posterior", "laplace"), code=("blr/posterior/variational.py",)),
    Mechanism("stacking, not evidence", selected("by", "average"), code=("blr/selection/stacking.py",)),
    Mechanism("temperature", selected("temperature", "none"), code=("blr/predictive/temperature.py",)),
    Mechanism(
        "averaging beyond the support",
        selected("extrapolation", "model"),
        code=("blr/predictive/extrapolation.py",),
    ),
    Mechanism(
        "integral over missing features",
        constants={"blr.candidates.choice:integrated_share": lambda _: 0.0},
    ),
    Mechanism(
        "checks of the posterior",
        constants={"blr.candidates.fits:CHECK_WORK": 0.0},
        code=("blr/posterior/repair.py",),
    ),
)


@contextmanager
def constants_set(wanted: Mapping[str, Any]) -> Iterator[None]:
    """Set constants of modules, and set them back."""
    before = {}
    for place, value in wanted.items():
        module, name = place.split(":")
        before[place] = getattr(import_module(module), name)
        setattr(import_module(module), name, value)
    try:
        yield
    finally:
        for place, value in before.items():
            module, name = place.split(":")
            setattr(import_module(module), name, value)


def microseconds(classifier: Classifier, n: int = 16_384) -> float:
    """Return the processor time of a row that lacks nothing, drawn like the training rows, in microseconds."""
    rng, moments = np.random.default_rng(0), classifier.moments
    root = np.linalg.cholesky(moments.covariance + 1e-9 * np.diag(np.diag(moments.covariance)))
    X = moments.mean + rng.normal(size=(n, len(moments.mean))) @ root.T
    X = X if classifier.support is None else np.clip(X, *classifier.support)
    whole = np.zeros(X.shape, dtype=bool)
    taken = []
    for _ in range(3):
        start = time.process_time()
        classifier.score(X, whole)
        taken.append(time.process_time() - start)
    return 1e6 * min(taken) / n


def runs_of(cell: str, mechanisms: list[Mechanism], known: set[tuple[str, str]]) -> Iterator[dict[str, Any]]:
    """Yield the runs of a cell that are not known: its whole default run first, then each without a mechanism."""
    name, size, drawn, split = cell.split()
    labelled = SETS[name]()
    rows = draw(labelled, None if size == "all" else int(size), int(split), biased=drawn == "biased")
    if rows is None:
        return
    train, test = rows
    with (
        tempfile.TemporaryDirectory(prefix="bench-ablation-") as folder,
        warnings.catch_warnings(action="ignore"),
    ):
        place = Path(folder)
        pq.write_table(labelled.file(train, labelled=True), place / "labels.parquet")
        text = starting_specification(catalogs.open(place / "labels.parquet"), LABEL, folder=place).text
        for mechanism in [Mechanism(WHOLE), *mechanisms]:
            document = tomlkit.parse(text)
            mechanism.edit(document)
            same = tomlkit.dumps(document) == text and not mechanism.constants and mechanism.name != WHOLE
            if (cell, mechanism.name) in known or not document["candidate"]:
                continue
            found: dict[str, Any] = {"log_loss": None}  # the same as of the whole run
            if not same:
                (place / "specification.toml").write_text(tomlkit.dumps(document), encoding="utf-8")
                store = place / f"models-{len(list(place.iterdir()))}"
                start = time.process_time()
                with constants_set(mechanism.constants):
                    model = training.train(TrainRequest(place / "specification.toml", store, threads=1))
                seconds = time.process_time() - start
                classified = classify_table(
                    labelled.file(test, labelled=False), model=model.model, store=store
                )
                P, _ = _probabilities(classified, labelled.classes)
                P[~np.isfinite(P).all(axis=1)] = 1 / len(labelled.classes)
                P = np.clip(P, FLOOR, None)
                classifier = Store.named(store).load(model.model).classifier
                found = {
                    "log_loss": round(log_loss(P / P.sum(axis=1, keepdims=True), labelled.y[test]), 6),
                    "seconds": round(seconds, 2),
                    "microseconds": round(microseconds(classifier), 2),
                    "members": len(classifier.members),
                }
            yield {"cell": cell, "mechanism": mechanism.name, "code": our_code(), **found}


def read_runs() -> dict[tuple[str, str], dict[str, Any]]:
    """Return the stored runs by cell and mechanism; a line that a kill cut off is passed over."""
    runs = {}
    for line in RUNS.read_text(encoding="utf-8").splitlines() if RUNS.exists() else ():
        try:
            run = json.loads(line)
        except json.JSONDecodeError:
            continue
        runs[run["cell"], run["mechanism"]] = run
    return runs


def lines_of_code(mechanism: Mechanism) -> str:
    """Return the number of lines that are not blank, of the files that would go with a mechanism."""
    texts = [(HERE.parent / path).read_text(encoding="utf-8") for path in mechanism.code]
    return str(sum(bool(line.strip()) for text in texts for line in text.splitlines())) if texts else ""


def row_of(mechanism: Mechanism, runs: Mapping[tuple[str, str], dict[str, Any]]) -> str | None:
    """Return a mechanism's row of the page; None where no cell has a run without it."""
    gains, where, seconds, cost = [], [], [], []
    for (cell, name), run in runs.items():
        whole = runs.get((cell, WHOLE))
        if name != mechanism.name or whole is None:
            continue
        changed = run["log_loss"] is not None
        gains.append(run["log_loss"] - whole["log_loss"] if changed else 0.0)
        where.append(cell)
        if changed:
            seconds.append(whole["seconds"] - run["seconds"])
            cost.append(whole["microseconds"] - run["microseconds"])
    if not gains:
        return None
    d = np.array(gains)
    half = student.ppf(0.975, len(d) - 1) * d.std(ddof=1) / np.sqrt(len(d)) if len(d) > 1 else np.nan
    best, worst = int(d.argmax()), int(d.argmin())
    stays = "yes" if d.mean() >= LITTLE else "in a cell" if d[best] >= DECISIVE else "no"
    cells = [mechanism.name, f"{len(seconds)} of {len(d)}", f"{d.mean():+.4f} ± {half:.4f}"]
    cells += [f"{d[best]:+.4f} ({where[best]})", f"{d[worst]:+.4f} ({where[worst]})"]
    cells += [f"{np.mean(seconds):+.2f}" if seconds else "", f"{np.mean(cost):+.1f}" if cost else ""]
    return "| " + " | ".join([*cells, lines_of_code(mechanism), stays]) + " |"


HEADER = """\
# What each mechanism of the default run gains

Written by `bench_ablation.py` from the runs in `results-ablation/`; do not edit. Each row compares the default run
with the run that lacks one mechanism, on the same cells. *Gain*: log loss without it less log loss with it, in nats
an object, the mean over the cells with a 95 % Student interval; positive is good. Cells that the mechanism does not
touch count as 0; *changed* says how many it touches. *Seconds* of the processor in training and *microseconds* a row
in classification are what it costs in these. *Lines* are those of the files that would go with it, where whole files
would. It earns its place with a gain of 0.001 in the mean, or of 0.01 in some cell.
"""


def page(runs: Mapping[tuple[str, str], dict[str, Any]]) -> str:
    """Return the page."""
    whole = [run for (_, name), run in runs.items() if name == WHOLE]
    if not whole:
        return HEADER
    codes = ", ".join(sorted({run["code"] for run in runs.values()}))
    said = (
        f"The whole run: {len(whole)} cells, mean log loss {np.mean([r['log_loss'] for r in whole]):.4f}, "
        f"{np.mean([r['seconds'] for r in whole]):.1f} s, {np.mean([r['microseconds'] for r in whole]):.1f} "
        f"microseconds a row, {np.mean([r['members'] for r in whole]):.1f} members. Code: {codes}."
    )
    head = (
        "without",
        "changed",
        "gain",
        "largest",
        "least",
        "seconds",
        "microseconds",
        "lines",
        "earns its place",
    )
    rows = [row for mechanism in MECHANISMS if (row := row_of(mechanism, runs))]
    numbers = [
        (r["cell"], f"{r['log_loss']:.4f}", r["seconds"], r["microseconds"], r["members"]) for r in whole
    ]
    cells = ["| " + " | ".join(map(str, one)) + " |" for one in numbers]
    second = ["| cell | log loss | seconds | microseconds | members |", "|---|---|---|---|---|", *cells]
    table = ["| " + " | ".join(head) + " |", "|" + "---|" * len(head), *rows]
    return "\n".join([HEADER, said, "", *table, "", *second, ""])


def main() -> int:
    """Run what is asked for and not stored, and write the page of all that is stored."""
    parser = argparse.ArgumentParser(description="What each mechanism of the default run gains.")
    parser.add_argument("--minutes", type=float, default=30.0, help="no cell begins after so long")
    parser.add_argument("--cells", nargs="+", default=[*CELLS], help="SET SIZE DRAWN SPLIT, each quoted")
    parser.add_argument("--only", nargs="+", default=[""], help="beginnings of mechanisms")
    parser.add_argument("--table-only", action="store_true")
    asked = parser.parse_args()
    end = time.monotonic() + 60 * asked.minutes
    RUNS.parent.mkdir(exist_ok=True)
    chosen = [m for m in MECHANISMS if m.name.startswith(tuple(asked.only))]
    for cell in () if asked.table_only else asked.cells:
        try:
            for run in runs_of(cell, chosen, set(read_runs())):
                with RUNS.open("a", encoding="utf-8") as stream:
                    stream.write(json.dumps(run) + "\n")
                print(*run.values(), flush=True)
                if time.monotonic() > end:
                    break
        except MissingDataError as error:
            print(f"{cell} is left out: {error}", file=sys.stderr)
    PAGE.write_text(page(read_runs()), encoding="utf-8")
    print(PAGE)
    return 0


if __name__ == "__main__":
    sys.exit(main())
