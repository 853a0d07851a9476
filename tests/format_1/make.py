"""Make the files of format 1, which every later version reads: `python -m tests.format_1.make`, before a release only.

Of a simulated survey: its catalogues and specification, a store with a model, a classified folder, a published release,
and a classifier of each kind of basis, with what it says of eight rows.
"""

from __future__ import annotations

import shutil
import sys
from contextlib import chdir
from pathlib import Path

import numpy as np

import blr
import flows
from blr.basis.kinds import BASES
from flows.cli.app import run
from tests.flows.conftest import survey, write_fits, write_parquet

HERE = Path(__file__).parent / "files"
SMALL = {
    "fourier": {"frequencies": 5},
    "forest": {"trees": 8},
    "laplacian": {"centres": 8},
    "nystroem": {"centres": 8},
    "rbf": {"centres": 8},
}
"""Options of the kinds that would make large files."""
SPECIFICATION = """
name = "morphology"

[catalog]
paths = ["catalogue/north.parquet"]
id = "name"
where = "type == 'G'"
sentinels = { jmag = [-9999, 99.0] }

[label]
column = "hubble"
classes = { early = ["E", "S0"], late = ["Sb", "Sc"] }

[features]
b_j = "bmag - jmag"
j_k = "jmag - kmag"

[select]
by = "stack"

[[candidate]]
basis = { kind = "linear" }
[[candidate]]
basis = { kind = "sigmoid" }
[[candidate]]
basis = { kind = "forest", trees = 8 }
"""


def rows() -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return features and classes of eighty rows, and eight rows to classify, one of them without a feature."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(80, 2))
    y = np.where(X[:, 0] + X[:, 1] ** 2 + rng.normal(size=80) > 1, "late", "early")
    new = rng.normal(size=(8, 2)) * 2
    new[3, 1] = np.nan
    return X, y, new


def main() -> None:
    """Make all files anew."""
    shutil.rmtree(HERE, ignore_errors=True)
    (HERE / "catalogue").mkdir(parents=True)
    (HERE / "kinds").mkdir()
    write_parquet(HERE / "catalogue" / "north.parquet", survey(160, seed=1))
    south = survey(60, seed=2)
    write_fits(HERE / "catalogue" / "south.fits", south | {"name": np.char.replace(south["name"], "G", "S")})
    (HERE / "spec.toml").write_text(SPECIFICATION)
    X, y, new = rows()
    for kind in sorted(BASES):
        classifier = blr.fit_default(X, y, candidates=[blr.Candidate(kind, SMALL.get(kind, {}))], threads=1)
        flows.write_classifier(classifier, HERE / "kinds" / f"{kind}.asdf")
        np.savetxt(HERE / "kinds" / f"{kind}.txt", classifier.predict_proba(new), fmt="%.9f")
    with chdir(HERE):
        for words in (
            ["train", "spec.toml", "--direct"],
            [
                "classify",
                "catalogue/north.parquet",
                "catalogue/south.fits",
                "--model",
                "morphology",
                "--out",
                "annotated",
                "--direct",
            ],
            ["release", "draft", "survey", "1", "--run", "annotated", "--store", "models"],
            ["release", "check", "survey", "1"],
            ["release", "sign", "survey", "1", "--by", "Ada Lovelace"],
            ["release", "publish", "survey", "1"],
        ):
            if run(words):
                sys.exit(f"failed: blr {' '.join(words)}")
            for page in ("annotated/report.html", *HERE.glob("models/*/*/report.html")):
                (HERE / page).unlink(missing_ok=True)  # for people; nothing reads it


if __name__ == "__main__":
    main()
