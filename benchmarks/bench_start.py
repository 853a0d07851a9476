"""From the start of a process to the first annotated catalogue: 1,000 labels, 24 candidates, a million rows.

Ours is two commands, `blr train` (each candidate by its evidence, whose prior's precision is found with it) and
`blr classify --direct`, with uncertainty and flags.  The peer is a script: scikit-learn's `GridSearchCV` over the same
bases, eight values of C and five folds, then plain probabilities written to Parquet.
`bench_start.py [ROWS [ROUNDS [THREADS]]]`; the seconds of every round are the last line, as JSON.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from sklearn.base import BaseEstimator, TransformerMixin
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from two_types import types_of

from blr.basis.kinds import fit_basis

ROWS, ROUNDS, THREADS, LABELS = 1_000_000, 3, 2, 1000
FEATURES = tuple(f"c{i}" for i in range(6))
GROUP = 250_000
CANDIDATES: tuple[Mapping[str, Any], ...] = (
    *({"kind": "polynomial", "degree": degree} for degree in (1, 2, 3)),
    *(
        {"kind": "rbf", "centres": n, "width": w, "linear": True}
        for n in (10, 20, 40)
        for w in (1.0, 2.0, 4.0)
    ),
    *({"kind": "fourier", "frequencies": n, "lengthscale": w} for n in (20, 60) for w in (1.0, 2.0, 4.0)),
    *({"kind": "sigmoid", "centres": n} for n in (3, 5, 8)),
    *({"kind": "bspline", "knots": n} for n in (2, 4, 8)),
)
SPECIFICATION = """
name = "first"
[catalog]
paths = ["labelled.parquet"]
id = "id"
[label]
column = "label"
classes = {{ early = ["early"], late = ["late"] }}
[features]
{features}
[select]
by = "evidence"
posterior = "laplace"
scale = "maximised"
{candidates}
"""


def rows(n: int, seed: int) -> pa.Table:
    """Return n rows of an id and six features."""
    rng = np.random.default_rng(seed)
    columns: dict[str, np.ndarray[Any, Any]] = {"id": np.arange(n, dtype=np.int64) + seed * 10**9}
    columns |= {name: rng.standard_normal(n, dtype=np.float32) for name in FEATURES}
    return pa.table(columns)


def specification() -> str:
    """Return the specification of ours."""
    listed = "\n".join(f'{name} = "{name}"' for name in FEATURES)
    tables = "\n".join(f"[[candidate]]\nbasis = {_toml(basis)}" for basis in CANDIDATES)
    return SPECIFICATION.format(features=listed, candidates=tables)


def _toml(basis: Mapping[str, Any]) -> str:
    return "{ " + ", ".join(f"{key} = {json.dumps(value)}" for key, value in basis.items()) + " }"


class Basis(BaseEstimator, TransformerMixin):  # type: ignore[misc]  # scikit-learn has no types
    """One of our bases as a step of scikit-learn's pipeline, without the intercept."""

    def __init__(self, kind: str, keywords: Mapping[str, Any]) -> None:
        self.kind, self.keywords = kind, keywords

    def fit(self, X: Any, _y: object = None) -> Basis:
        """Place the functions."""
        self.basis_ = fit_basis(self.kind, X, rng=np.random.default_rng(0), **self.keywords)
        return self

    def transform(self, X: Any) -> Any:
        """Return their values (N, M - 1)."""
        return self.basis_(np.asarray(X, dtype=np.float64))[:, 1:]


def grid(folder: Path, threads: int) -> None:
    """Do the peer's work."""
    labelled = pq.read_table(folder / "labelled.parquet")
    X = np.stack([labelled[name].to_numpy() for name in FEATURES], axis=1).astype(np.float64)
    t = labelled["label"].to_numpy()
    best: GridSearchCV | None = None
    for candidate in CANDIDATES:
        keywords = {key: value for key, value in candidate.items() if key != "kind"}
        pipeline = make_pipeline(
            StandardScaler(), Basis(candidate["kind"], keywords), LogisticRegression(max_iter=1000)
        )
        choice = GridSearchCV(
            pipeline,
            {"logisticregression__C": np.geomspace(1e-3, 1e4, 8)},
            scoring="neg_log_loss",
            cv=5,
            n_jobs=threads,
        ).fit(X, t)
        if best is None or choice.best_score_ > best.best_score_:
            best = choice
    assert best is not None  # noqa: S101  there are candidates
    with pq.ParquetFile(folder / "big.parquet") as file:
        schema = file.schema_arrow.append(pa.field("p", pa.float64()))
        with pq.ParquetWriter(folder / "peer.parquet", schema) as writer:
            for group in (file.read_row_group(i) for i in range(file.num_row_groups)):
                some = np.stack([group[name].to_numpy() for name in FEATURES], axis=1).astype(np.float64)
                writer.write_table(group.append_column("p", pa.array(best.predict_proba(some)[:, 1])))


def sides(folder: Path, threads: int) -> Iterator[tuple[str, list[list[str]]]]:
    """Yield the commands of each side."""
    blr = [sys.executable, "-m", "flows"]
    store = ["--store", str(folder / "models")]
    yield (
        "ours",
        [
            [*blr, "train", str(folder / "spec.toml"), *store, "--direct"],
            [
                *blr,
                "classify",
                str(folder / "big.parquet"),
                "--model",
                "first",
                *store,
                "--out",
                str(folder / "out"),
                "--direct",
            ],
        ],
    )
    yield "peer", [[sys.executable, __file__, "grid", str(folder), str(threads)]]


def compare(n: int, rounds: int, threads: int) -> dict[str, list[float]]:
    """Return the wall seconds of each side in each round."""
    taken: dict[str, list[float]] = {"ours": [], "peer": []}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        labelled = rows(LABELS, 1)
        columns = {c: labelled[c].to_numpy() for c in FEATURES}
        types = pa.array(types_of(columns, np.random.default_rng(0)))
        pq.write_table(labelled.append_column("label", types), folder / "labelled.parquet")
        pq.write_table(rows(n, 2), folder / "big.parquet", row_group_size=GROUP)
        (folder / "spec.toml").write_text(specification())
        for _ in range(rounds):
            for side, commands in sides(folder, threads):
                shutil.rmtree(folder / "out", ignore_errors=True)
                shutil.rmtree(folder / "models", ignore_errors=True)
                start = time.perf_counter()
                for command in commands:
                    subprocess.run(command, check=True, stdout=subprocess.DEVNULL, cwd=folder)  # noqa: S603
                taken[side].append(time.perf_counter() - start)
    return taken


def main() -> int:
    """Print the seconds, or be the peer."""
    match sys.argv[1:]:
        case ["grid", folder, threads]:
            grid(Path(folder), int(threads))
        case given:
            sizes = [*map(int, given), *(ROWS, ROUNDS, THREADS)[len(given) :]]
            taken = compare(*sizes)
            ours, theirs = (sorted(times)[len(times) // 2] for times in taken.values())
            print(
                f"{LABELS} labels, {len(CANDIDATES)} candidates, {sizes[0]:,} rows: {ours:.1f} s; "
                f"the grid {theirs:.1f} s"
            )
            print(json.dumps(taken))
    return 0


if __name__ == "__main__":
    sys.exit(main())
