"""What each mechanism of the default run gains: the run with it and without it, on the same cells of public sets.

    python benchmarks/bench_ablation.py [--minutes 30] [--table-only]

A cell is a set, a number of labels, random or biased, and a split (`labelled_sets.py`).  One training gives all
candidates; without some of them the others are stacked anew.  To leave another mechanism out, the specification that
`blr init` writes is edited, a constant of the code is set, or the trained classifier is changed.
Every run is a line of `results-ablation/runs.jsonl`, and is not repeated; at the end all of them become `ABLATION.md`.
"""

from __future__ import annotations

import argparse
import ast
import json
import os
import sys

os.environ.setdefault("OMP_NUM_THREADS", "1")  # seconds of the processor are of one thread
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import tempfile
import time
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import tomlkit
from bench_labels import FLOOR, our_code
from labelled_sets import LABEL, SETS, LabelledSet, MissingDataError, Rows, draw
from numpy.typing import NDArray
from scipy.stats import t as student

import catalogs
from blr.candidates.choice import choose
from blr.classifier import Classifier
from flows.draft.specification import starting_specification
from flows.models.store import Store
from flows.request import TrainRequest
from flows.tables import classify_table
from flows.training import steps as training

HERE = Path(__file__).resolve().parent
RUNS, PAGE = HERE / "results-ablation" / "runs.jsonl", HERE / "ABLATION.md"
WHOLE = "nothing left out"
DEFINITIONS = (ast.FunctionDef, ast.ClassDef)
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
    """A mechanism of the default run, how to leave it out, and the file, or functions of it, that would go with it.

    The run is trained again with the specification changed by `edit`, or with the `constants` (names `module:NAME`).
    Or the trained one serves: stacked without candidates that `left_out` names by their words, or `changed`.
    """

    name: str
    edit: Callable[[Any], None] | None = None
    constants: Mapping[str, Any] = field(default_factory=dict)
    left_out: Callable[[str], bool] | None = None
    changed: Callable[[Classifier], Classifier] | None = None
    code: str = ""


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


def begins(*words: str) -> Callable[[str], bool]:
    """Return whether a candidate's words, such as 'nystroem, centres 100', begin so."""
    return lambda basis: basis.startswith(words)


MECHANISMS = (
    Mechanism("candidate: linear", left_out=lambda basis: basis == "linear"),
    Mechanism("candidate: degree 2 or linear, arcsinh", left_out=begins("poly", "linear,")),
    Mechanism(
        "candidate: Gaussian process",
        left_out=begins("nystroem"),
        code="blr/basis/_kernels.py: Nystroem squared_distances _seed spread_centres",
    ),
    Mechanism(
        "candidate: steps", left_out=begins("sigmoid"), code="blr/basis/_kernels.py: Sigmoid _steps _spacing"
    ),
    Mechanism("candidate: forest, random thresholds", left_out=lambda basis: basis == "forest, trees 64"),
    Mechanism("candidate: boosted trees", left_out=lambda basis: "boosted" in basis),
    Mechanism("all trees", left_out=begins("forest"), code="blr/basis/_forest.py"),
    Mechanism("all candidates but linear", left_out=lambda basis: basis != "linear"),
    Mechanism(
        "temperature",
        changed=lambda c: replace(c, temperature=None),
        code="blr/predictive/mixture.py: Temperature estimate_temperature _log_likelihood",
    ),
    Mechanism(
        "averaging beyond the support",
        changed=lambda c: replace(c, support=None),
        code="blr/predictive/mixture.py: feature_range rows_beyond continued",
    ),
    Mechanism(
        "integral over missing features",
        changed=lambda c: replace(c, integrated=np.zeros(len(c.features))),
        code="blr/missing/moments.py",
    ),
    Mechanism("refined posterior", selected("posterior", "laplace"), code="blr/posterior/variational.py"),
    Mechanism(
        "several scales of the prior", selected("scale", "maximised"), code="blr/selection/evidence.py"
    ),
    Mechanism("a second scale served", constants={"blr.candidates.fits:MOST_PARTS": 1}),
    Mechanism("arcsinh", no_key("candidate", "transform")),
)


@dataclass
class Captured:
    """Steps of a training that keep what they pass on: the candidates, their seconds, and all of them as members."""

    fitted: Sequence[Any] = ()
    seconds: dict[int, float] = field(default_factory=dict)

    def timed(self, step: Callable[..., Any]) -> Callable[..., Any]:
        """Return a step of one candidate that adds its processor time."""

        def run(folder: str, index: int, *rest: Any) -> Any:
            start = time.process_time()
            result = step(folder, index, *rest)
            self.seconds[index] = self.seconds.get(index, 0.0) + time.process_time() - start
            return result

        return run

    def choose(self, folder: str, fitted: Sequence[Any]) -> Any:
        """Return the table with a share for every candidate, next to none for those without."""
        self.fitted = fitted
        return tuple(replace(row, share=max(row.share, 1e-9)) for row in training.choose(folder, fitted))

    @property
    def steps(self) -> training.Steps:
        """The steps for `training.train`."""
        fit, refine = self.timed(training.DIRECT.fit), self.timed(training.DIRECT.refine)
        return replace(training.DIRECT, fit=fit, refine=refine, choose=self.choose)

    def members_of(self, classifier: Classifier) -> list[list[Any]]:
        """Return the members of each candidate, with shares in it; a candidate's members are side by side."""
        left, found = iter(classifier.members), []
        for one in self.fitted:
            own = [next(left) for _ in one.row.parts]
            total = sum(m.weight for m in own)
            found.append([replace(m, weight=m.weight / total) for m in own])
        return found


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


@dataclass(frozen=True)
class Trained:
    """A default run or a changed one: its classifier, and its test rows as a classification hands them over.

    `rows` are features (n, F) and where they are missing, `truth` (n,) places in the classifier's classes, -1 for none.
    """

    captured: Captured
    classifier: Classifier
    rows: tuple[Any, Any]
    truth: NDArray[np.intp]
    seconds: float

    @classmethod
    def of(cls, specification: str, labelled: LabelledSet, test: Rows, place: Path) -> Trained:
        """Train a specification in a folder, and classify the test rows."""
        (place / "specification.toml").write_text(specification, encoding="utf-8")
        store, captured = place / f"models-{len(list(place.iterdir()))}", Captured()
        start = time.process_time()
        request = TrainRequest(place / "specification.toml", store, threads=1)
        model = training.train(request, steps=captured.steps)
        seconds = time.process_time() - start
        classifier, seen = Store.named(store).load(model.model).classifier, []
        own = Classifier.score

        def score(self: Classifier, X: Any, missing: Any, *rest: Any, **options: Any) -> Any:
            seen.append((X.copy(), missing.copy()))
            return own(self, X, missing, *rest, **options)

        Classifier.score = score  # type: ignore[method-assign]
        try:
            classify_table(labelled.file(test, labelled=False), model=model.model, store=store)
        finally:
            Classifier.score = own  # type: ignore[method-assign]
        rows = next(x for x in seen if len(x[0]) == len(test))
        place_of = {name: k for k, name in enumerate(classifier.classes)}
        truth = np.array([place_of.get(labelled.classes[k], -1) for k in labelled.y[test]])
        return cls(captured, classifier, rows, truth, seconds)

    def probability(self, classifier: Classifier | None = None) -> Any:
        """Return the probabilities (n, K) of the test rows, by another classifier of the same features."""
        P = (classifier or self.classifier).score(*self.rows).probability
        return np.where(np.isfinite(P), P, 1 / P.shape[1])

    def loss(self, P: Any) -> float:
        """Return the mean log loss of probabilities of the test rows; a class that has no label costs the floor."""
        P = np.column_stack([np.clip(P, FLOOR, None), np.full(len(P), FLOOR)])
        P /= P.sum(axis=1, keepdims=True)
        return round(float(-np.log(P[np.arange(len(P)), self.truth]).mean()), 6)


@dataclass(frozen=True)
class Mixed:
    """The candidates of a whole run, from which others than its own mixture are made."""

    whole: Trained

    @cached_property
    def members(self) -> list[list[Any]]:
        """The members of each candidate."""
        return self.whole.captured.members_of(self.whole.classifier)

    @cached_property
    def each(self) -> list[Any]:
        """Each candidate's probabilities (n, K) of the test rows."""
        one = partial(replace, self.whole.classifier, temperature=None)
        return [self.whole.probability(one(members=tuple(own))) for own in self.members]

    @property
    def words(self) -> list[str]:
        """The candidates' bases in words."""
        return [one.row.basis for one in self.whole.captured.fitted]

    def of(self, kept: Sequence[int]) -> dict[str, Any]:
        """Return the numbers of the mixture of some candidates."""
        fitted = [self.whole.captured.fitted[i] for i in kept]
        table = choose([one.row for one in fitted], [one.left_out for one in fitted], by="stack")
        used = [(kept[place], row.share) for place, row in enumerate(table) if row.share]
        P = sum(share * self.each[i] for i, share in used)
        made = tuple(replace(m, weight=s * m.weight) for i, s in used for m in self.members[i])
        seconds = self.whole.captured.seconds
        return {
            "log_loss": self.whole.loss(P),
            "seconds": round(self.whole.seconds - sum(t for i, t in seconds.items() if i not in kept), 2),
            "microseconds": round(microseconds(replace(self.whole.classifier, members=made)), 2),
            "members": len(made),
        }


def runs_of(cell: str, known: set[tuple[str, str]]) -> Iterator[dict[str, Any]]:
    """Yield the runs of a cell that are not known: its whole default run first, then each without a mechanism."""
    name, size, drawn, split = cell.split()
    wanted = [m for m in [Mechanism(WHOLE), *MECHANISMS] if (cell, m.name) not in known]
    labelled = SETS[name]()
    rows = draw(labelled, None if size == "all" else int(size), int(split), biased=drawn == "biased")
    if rows is None or not wanted:
        return
    train, test = rows
    with (
        tempfile.TemporaryDirectory(prefix="bench-ablation-") as folder,
        warnings.catch_warnings(action="ignore"),
    ):
        place = Path(folder)
        pq.write_table(labelled.file(train, labelled=True), place / "labels.parquet")
        text = starting_specification(catalogs.open(place / "labels.parquet"), LABEL, folder=place).text
        mixed = Mixed(Trained.of(text, labelled, test, place))
        base = mixed.of(range(len(mixed.each)))
        for mechanism in wanted:
            found = base if mechanism.name == WHOLE else None
            if mechanism.left_out is not None:
                kept = [i for i, words in enumerate(mixed.words) if not mechanism.left_out(words)]
                found = mixed.of(kept) if 0 < len(kept) < len(mixed.each) else None
            elif mechanism.name != WHOLE:
                found = _changed(
                    mechanism, mixed.whole, base, text, lambda s: Trained.of(s, labelled, test, place)
                )
            yield {
                "cell": cell,
                "mechanism": mechanism.name,
                "code": our_code(),
                **(found or {"log_loss": None}),
            }


def _changed(
    mechanism: Mechanism,
    whole: Trained,
    base: Mapping[str, Any],
    text: str,
    trained: Callable[[str], Trained],
) -> dict[str, Any] | None:
    """Return the numbers without a mechanism that is not a candidate; None where nothing changes."""
    before = whole.loss(whole.probability())
    if mechanism.changed is not None:
        after = whole.loss(whole.probability(mechanism.changed(whole.classifier)))
        return None if after == before else {**base, "log_loss": round(base["log_loss"] + after - before, 6)}
    document = tomlkit.parse(text)
    if mechanism.edit is not None:
        mechanism.edit(document)
    if tomlkit.dumps(document) == text and not mechanism.constants:
        return None
    with constants_set(mechanism.constants):
        other = trained(tomlkit.dumps(document))
    return {
        "log_loss": round(base["log_loss"] + other.loss(other.probability()) - before, 6),
        "seconds": round(other.seconds, 2),
        "microseconds": round(microseconds(other.classifier), 2),
        "members": len(other.classifier.members),
    }


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
    """Return the number of lines that are not blank, of the file or functions that would go with a mechanism."""
    path, _, names = mechanism.code.partition(":")
    if not path:
        return ""
    text = (HERE.parent / path).read_text(encoding="utf-8")
    lines = text.splitlines()
    if names:
        nodes = {node.name: node for node in ast.walk(ast.parse(text)) if isinstance(node, DEFINITIONS)}
        chosen = (nodes[name] for name in names.split())
        lines = [line for n in chosen for line in lines[n.lineno - 1 : n.end_lineno]]
    return str(sum(bool(line.strip()) for line in lines))


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
    parser.add_argument("--table-only", action="store_true")
    asked = parser.parse_args()
    end = time.monotonic() + 60 * asked.minutes
    RUNS.parent.mkdir(exist_ok=True)
    for cell in () if asked.table_only else asked.cells:
        try:
            for run in runs_of(cell, set(read_runs())):
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
