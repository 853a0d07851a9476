"""Our times as ratios: to what the machine itself can do (`speed_units.py`), and to others' programs on the same data.

    python benchmarks/bench_speed.py [--only fits small refined predictions peers catalogues start memory slopes]
        [--rounds 5] [--threads 2] [--scale 1.0] [--results speed.json] [--page RESULTS.md]

Every round runs each side once, so that a busy machine slows all of them; a ratio is of one round, and their median
counts.  Sides with imports or memory of their own are processes.  `--scale 0.1` takes a tenth of the rows, to try it.
What was measured is kept in `results/speed.json`, a part at a time; `speed_page.py` makes `RESULTS.md` of it.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.linear_model import LogisticRegression
from speed_page import Machine, Measured, draw_slopes, read_results, write_page, write_results
from speed_units import newton_pass, polynomial, product
from threadpoolctl import threadpool_limits

import blr
from blr import compiled
from blr.posterior.variational import refine

HERE = Path(__file__).resolve().parent
Sides = Mapping[str, Callable[[], object]]


def seconds(run: Callable[[], object]) -> float:
    """Return the wall time of one run."""
    start = time.perf_counter()
    run()
    return time.perf_counter() - start


def in_rounds(sides: Sides, rounds: int) -> dict[str, list[float]]:
    """Return the seconds of each side in each round, after one that does not count."""
    taken: dict[str, list[float]] = {name: [] for name in sides}
    for _ in range(1 + rounds):
        for name, run in sides.items():
            taken[name].append(seconds(run))
    return {name: times[1:] for name, times in taken.items()}


def measured(
    what: str, unit: str, ours: list[float], theirs: list[float], goal: float | None = None, note: str = ""
) -> Measured:
    """Return the row of a ratio: median, smallest and largest of its rounds, and the median seconds of both sides."""
    ratios = [a / b for a, b in zip(ours, theirs, strict=True)]
    row = Measured(
        what,
        unit,
        statistics.median(ratios),
        min(ratios),
        max(ratios),
        statistics.median(ours),
        statistics.median(theirs),
        goal,
        note,
    )
    print(f"  {what} / {unit}: {row.ratio:.2f} ({row.least:.2f} to {row.most:.2f})", flush=True)
    return row


def newton_cholesky() -> Any:
    """Return scikit-learn's fastest exact fit, at a given penalty."""
    return LogisticRegression(solver="newton-cholesky", fit_intercept=False, C=1.0)


def fits(rounds: int, threads: int, scale: float) -> Iterator[Measured]:
    """Fit many rows, against a pass and against scikit-learn's point fit at a fixed penalty."""
    goals = {1_000_000: (3.0, 3.0, 0.2), 100_000: (3.0, 3.0, 0.4)}
    for most, (goal, fixed_goal, peer_goal) in goals.items():
        n = int(most * scale)
        Phi, t = polynomial(n, 50, 2)
        w, prior = np.full(50, 0.01), blr.GaussianPrior.isotropic(50, precision=1.0)
        target = t.astype(np.float64)
        theirs = newton_cholesky()

        def peer(theirs: Any = theirs, Phi: Any = Phi, t: Any = t) -> None:
            with threadpool_limits(threads):
                theirs.fit(Phi, t)

        sides: Sides = {
            "pass": lambda Phi=Phi, w=w, target=target: newton_pass(Phi, target, w, threads=threads),
            "evidence": lambda Phi=Phi, t=t: blr.fit_evidence(Phi, t, threads=threads),
            "fixed": lambda Phi=Phi, t=t, prior=prior: blr.fit(Phi, t, prior, threads=threads),
            "peer": peer,
        }
        taken = in_rounds(sides, rounds)
        size = f"{n:,} x 50"
        yield measured(f"fit_evidence {size}", "pass", taken["evidence"], taken["pass"], goal)
        yield measured(f"fit at a fixed prior {size}", "pass", taken["fixed"], taken["pass"], fixed_goal)
        yield measured(
            f"fit_evidence {size}",
            "scikit-learn newton-cholesky, fixed C",
            taken["evidence"],
            taken["peer"],
            peer_goal,
        )
    n = int(100_000 * scale)
    Phi, t = polynomial(n, 50, 3)
    theirs = newton_cholesky()

    def softmax_peer() -> None:
        with threadpool_limits(threads):
            theirs.fit(Phi, t)

    taken = in_rounds(
        {
            "ours": lambda: blr.fit_evidence(Phi, t, "softmax", threads=threads),
            "peer": softmax_peer,
        },
        rounds,
    )
    yield measured(
        f"fit_evidence {n:,} x 50 x 3",
        "scikit-learn newton-cholesky, fixed C",
        taken["ours"],
        taken["peer"],
        0.4,
    )


def small(rounds: int, threads: int, scale: float) -> Iterator[Measured]:  # noqa: ARG001  small it is
    """Fit 500 rows and 15 columns with evidence, against scikit-learn's default fit."""
    for k in (2, 3):
        Phi, t = polynomial(500, 15, k)
        likelihood = "logistic" if k == 2 else "softmax"
        theirs = LogisticRegression(fit_intercept=False, max_iter=1000)
        sides: Sides = {
            "ours": lambda Phi=Phi, t=t, name=likelihood: blr.fit_evidence(Phi, t, name, threads=threads),
            "peer": lambda Phi=Phi, t=t, theirs=theirs: theirs.fit(Phi, t),
        }
        taken = in_rounds(sides, 5 * rounds)
        yield measured(
            f"fit_evidence 500 x 15 x {k}",
            "scikit-learn LogisticRegression",
            taken["ours"],
            taken["peer"],
            1.0,
        )


def refined(rounds: int, threads: int, scale: float) -> Iterator[Measured]:
    """Refine posteriors, against the Laplace fits that they start from."""
    for most, k in ((1_000_000, 2), (10_000, 3)):
        n = int(most * scale)
        Phi, t = polynomial(n, 50, k)
        likelihood = "logistic" if k == 2 else "softmax"
        q = blr.fit_evidence(Phi, t, likelihood, threads=threads)
        sides: Sides = {
            "ours": lambda q=q: refine(q),
            "laplace": lambda Phi=Phi, t=t, name=likelihood: blr.fit_evidence(Phi, t, name, threads=threads),
        }
        taken = in_rounds(sides, rounds)
        size = f"{n:,} x 50" + (f" x {k}" if k > 2 else "")
        yield measured(f"refine {size}", "its Laplace fit", taken["ours"], taken["laplace"], 3.0)


def loops(rounds: int, threads: int, scale: float) -> Iterator[Measured]:
    """Run the same work with the loops in C and with their twins in NumPy."""
    if compiled.loops is None:
        print("  left out: the loops in C were not built here")
        return
    for most, m, k in ((1_000_000, 50, 2), (100_000, 15, 2), (100_000, 50, 3), (500, 15, 5)):
        n = max(500, int(most * scale))
        Phi, t = polynomial(n, m, k)
        q = blr.fit_evidence(Phi, t, "logistic" if k == 2 else "softmax", threads=threads)
        works: Sides = {
            "fit_evidence": lambda Phi=Phi, t=t, q=q: blr.fit_evidence(Phi, t, q.likelihood, threads=threads),
            "refine": lambda q=q: blr.refine(q),
            "predict_proba, exact,": lambda q=q, Phi=Phi: q.predict_proba(Phi, threads=threads),
        }
        for what, work in works.items():
            taken = in_rounds({"loops": work, "NumPy": lambda work=work: without_loops(work)}, rounds)
            yield measured(f"{what} {n:,} x {m} x {k}", "the same in NumPy", taken["loops"], taken["NumPy"])


def without_loops(work: Callable[[], object]) -> None:
    """Run something as where no compiler was."""
    held, compiled.loops = compiled.loops, None
    try:
        work()
    finally:
        compiled.loops = held


def predictions(rounds: int, threads: int, scale: float) -> Iterator[Measured]:
    """Predict exact probabilities with the weights' uncertainty against a product, and scikit-learn's without."""
    for most, k, goal, peer_goal in ((1_000_000, 2, 1.5, 1.0), (100_000, 3, None, 3.0)):
        n = int(most * scale)
        Phi, t = polynomial(n, 50, k)
        some = slice(0, min(20_000, n))
        q = blr.fit_evidence(Phi, t, "logistic" if k == 2 else "softmax")
        theirs = LogisticRegression(fit_intercept=False).fit(Phi[some][:2000], t[some][:2000])
        single, U = Phi.astype(np.float32), np.ones((50, 50), dtype=np.float32)
        taken = in_rounds(
            {
                "product": lambda single=single, U=U: product(single, U, threads=threads),
                "ours": lambda q=q, Phi=Phi: q.predict_proba(Phi, threads=threads),
                "peer": lambda theirs=theirs, Phi=Phi: theirs.predict_proba(Phi),
            },
            rounds,
        )
        p = q.predict_proba(Phi[some])
        slow = q.prediction(Phi[some]).probability
        error = float(np.abs(p - (slow[:, 1] if k == 2 else slow)).max())
        size = f"{n:,} x 50" + (f" x {k}" if k > 2 else "")
        note = f"differs from double precision by {error:.0e} at most"
        yield measured(
            f"predict_proba, exact, {size}", "product", taken["ours"], taken["product"], goal, note
        )
        yield measured(
            f"predict_proba, exact, {size}",
            "scikit-learn predict_proba, no variance",
            taken["ours"],
            taken["peer"],
            peer_goal,
        )


def peers(rounds: int, threads: int, scale: float) -> Iterator[Measured]:
    """Run other programs' point fits of 100,000 rows, and CatBoost's and laplace-torch's probabilities."""
    n = int(100_000 * scale)
    Phi, t = polynomial(n, 50, 2)
    ours: Sides = {"ours": lambda: blr.fit_evidence(Phi, t, threads=threads)}
    if find_spec("glum"):
        glum = import_module("glum").GeneralizedLinearRegressor(
            family="binomial", alpha=1 / len(Phi), fit_intercept=False
        )
        taken = in_rounds(ours | {"peer": lambda: glum.fit(Phi, t)}, rounds)
        yield measured(f"fit_evidence {n:,} x 50", "glum, fixed penalty", taken["ours"], taken["peer"])
    if find_spec("statsmodels"):
        logit = import_module("statsmodels.api").Logit(t, Phi)
        taken = in_rounds(ours | {"peer": lambda: logit.fit(disp=0)}, rounds)
        yield measured(f"fit_evidence {n:,} x 50", "statsmodels Logit", taken["ours"], taken["peer"])
    q = blr.fit_evidence(Phi, t, threads=threads)
    predicted: Sides = {"ours": lambda: q.predict_proba(Phi, threads=threads)}
    if find_spec("catboost"):
        model = import_module("catboost").CatBoostClassifier(
            iterations=300, verbose=False, thread_count=threads, allow_writing_files=False
        )
        model.fit(Phi[:20_000], t[:20_000])
        taken = in_rounds(
            predicted | {"peer": lambda: model.predict_proba(Phi, thread_count=threads)}, rounds
        )
        yield measured(
            f"predict_proba, exact, {n:,} x 50", "CatBoost, 300 trees", taken["ours"], taken["peer"]
        )
    if find_spec("laplace") and find_spec("torch"):
        yield from laplace_torch(rounds, threads, n)


def laplace_torch(rounds: int, threads: int, n: int) -> Iterator[Measured]:
    """Predict probabilities of a last-layer Laplace approximation, its closest formula: probit, full covariance."""
    torch, laplace = import_module("torch"), import_module("laplace")
    torch.set_num_threads(threads)
    for k, goal in ((2, 1 / 12), (3, 1 / 15)):
        Phi, t = polynomial(n, 50, k)
        q = blr.fit_evidence(Phi[:20_000], t[:20_000], "logistic" if k == 2 else "softmax")
        X = torch.as_tensor(Phi, dtype=torch.float32)
        layer = torch.nn.Linear(50, k, bias=False)
        data = torch.utils.data.TensorDataset(X[:20_000], torch.as_tensor(t[:20_000]))
        optimiser = torch.optim.LBFGS(layer.parameters(), max_iter=100)

        def loss(layer: Any = layer, X: Any = X, t: Any = t, optimiser: Any = optimiser) -> Any:
            optimiser.zero_grad()
            value = torch.nn.functional.cross_entropy(layer(X[:20_000]), torch.as_tensor(t[:20_000]))
            value.backward()
            return value

        optimiser.step(loss)
        theirs = laplace.Laplace(layer, "classification", subset_of_weights="all", hessian_structure="full")
        theirs.fit(torch.utils.data.DataLoader(data, batch_size=4096))

        def predict(theirs: Any = theirs, X: Any = X) -> None:
            with torch.no_grad():
                for start in range(0, len(X), 4096):
                    theirs(X[start : start + 4096], link_approx="probit")

        sides: Sides = {"ours": lambda q=q, Phi=Phi: q.predict_proba(Phi, threads=threads), "peer": predict}
        taken = in_rounds(sides, rounds)
        yield measured(
            f"predict_proba, exact, {n:,} x 50 x {k}",
            "laplace-torch, probit formula",
            taken["ours"],
            taken["peer"],
            goal,
        )


def catalogues(rounds: int, threads: int, scale: float) -> Iterator[Measured]:  # noqa: ARG001  its own threads
    """Classify ten million rows, against reading, a product and writing; see `bench_classify.py`."""
    script = HERE / "bench_classify.py"
    for kind, goal in (("parquet", 1.3), ("fits", 1.3)):
        rows = int(10_000_000 * scale)
        command = [sys.executable, str(script), "--json", kind, str(rows), str(rounds)]
        done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)  # noqa: S603
        costs = json.loads(done.stdout.splitlines()[-1])
        for name in ("seconds", "processor"):
            ours, theirs = ([cost[name] for cost in costs[side]] for side in ("ours", "plain"))
            label = "wall" if name == "seconds" else "processor"
            what = f"classify {rows:,} rows of {kind.upper() if kind == 'fits' else 'Parquet'}, {label}"
            yield measured(what, "copy and product", ours, theirs, goal)


def start(rounds: int, threads: int, scale: float) -> Iterator[Measured]:
    """Go from the start of a process to the first annotated catalogue; see `bench_start.py`."""
    command = [
        sys.executable,
        str(HERE / "bench_start.py"),
        str(int(1_000_000 * scale)),
        str(rounds),
        str(threads),
    ]
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)  # noqa: S603
    taken = json.loads(done.stdout.splitlines()[-1])
    rows = int(1_000_000 * scale)
    yield measured(
        f"init, train on 1,000 labels, classify {rows:,} rows",
        "scikit-learn GridSearchCV over like bases",
        taken["ours"],
        taken["peer"],
        0.3,
    )


MEMORY = """
import resource, sys
from pathlib import Path
import numpy as np
import blr

def most():
    # What a process inherits of its parent counts in ru_maxrss, but not here.
    status = Path("/proc/self/status")
    if status.exists():
        line = next(line for line in status.read_text().splitlines() if line.startswith("VmHWM"))
        return 1024 * int(line.split()[1])
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss

Phi, t = np.load(sys.argv[1]), np.load(sys.argv[2])
blr.fit_evidence(Phi[:1000], t[:1000])
before = most()
blr.fit_evidence(Phi, t, threads=int(sys.argv[3]))
print(most() - before)
"""


def memory(rounds: int, threads: int, scale: float) -> Iterator[Measured]:
    """Fit a million rows in a process of its own: how much more memory it takes than its data."""
    n = int(1_000_000 * scale)
    Phi, t = polynomial(n, 50, 2)
    with tempfile.TemporaryDirectory() as folder:
        paths = [str(Path(folder) / name) for name in ("Phi.npy", "t.npy")]
        for path, array in zip(paths, (Phi, t), strict=True):
            np.save(path, array)
        command = [sys.executable, "-c", MEMORY, *paths, str(threads)]
        more = [
            float(subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout)  # noqa: S603
            for _ in range(rounds)
        ]
    data = [float(Phi.nbytes)] * rounds
    yield measured(
        f"memory of fit_evidence {n:,} x 50, bytes beyond its data", "its data, bytes", more, data, 0.08
    )


def slopes(rounds: int, threads: int, scale: float) -> Iterator[Measured]:
    """Fit more and more rows, columns and classes: seconds over what those of the size before lead one to expect."""
    sizes = {
        "rows": [(n, 50, 2) for n in (10_000, 100_000, 1_000_000, 10_000_000)],
        "columns": [(100_000, m, 2) for m in (10, 50, 200, 400)],
        "classes": [(50_000, 20, k) for k in (2, 3, 5, 10)],
    }
    for axis, problems in sizes.items():
        expected: list[float] = []
        before = 1
        for n, m, k in problems:
            Phi, t = polynomial(int(n * scale), m, k)
            name = "logistic" if k == 2 else "softmax"
            sides: Sides = {
                "ours": lambda Phi=Phi, t=t, name=name: blr.fit_evidence(Phi, t, name, threads=threads)
            }
            taken = in_rounds(sides, min(rounds, 3))["ours"]
            work = len(Phi) * m**2 * (k - 1) ** 2
            growth = work / before
            expected = [second * growth for second in expected] or taken
            yield measured(
                f"fit_evidence {len(Phi):,} x {m} x {k}",
                "growth as rows x columns² x (classes - 1)²",
                taken,
                expected,
                1.0,
                f"more {axis}",
            )
            expected, before = [statistics.median(taken)] * len(taken), work


PARTS: Mapping[str, Callable[[int, int, float], Iterator[Measured]]] = {
    part.__name__: part
    for part in (fits, small, refined, loops, predictions, peers, catalogues, start, memory, slopes)
}


def main() -> int:
    """Measure the parts asked for, and write the page."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--only", nargs="+", choices=[*PARTS], default=[*PARTS])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--scale", type=float, default=1.0, help="of the numbers of rows")
    parser.add_argument("--results", type=Path, default=HERE / "results" / "speed.json")
    parser.add_argument("--page", type=Path, default=HERE / "RESULTS.md")
    parser.add_argument("--slopes", type=Path, default=HERE.parent / "docs" / "pictures" / "slopes.svg")
    given = parser.parse_args()
    machine = Machine.here(given.threads)
    for name in given.only:
        print(name, flush=True)
        rows = list(PARTS[name](given.rounds, given.threads, given.scale))
        command = f"python benchmarks/bench_speed.py --only {name}" + (
            "" if given.scale == 1.0 else f" --scale {given.scale}"
        )
        stored = read_results(given.results)
        stored[name] = {"machine": asdict(machine), "command": command, "rows": [asdict(row) for row in rows]}
        write_results(given.results, stored)
    stored = read_results(given.results)
    write_page(given.page, stored)
    if "slopes" in stored:
        draw_slopes(given.slopes, stored)
    return 0


if __name__ == "__main__":
    sys.exit(main())
