"""What a further row costs `blr release check`, beside reading it: of the release, of its input, of the last release.

    python benchmarks/bench_release.py [--forms fits parquet] [--copies 10 100] [--rounds 7] [--folder FOLDER]

The survey is a third of OpenNGC's galaxies in ten files, each galaxy so many times; its second season is checked
against the first, in one thread.  The difference of two sizes leaves out what every check costs; the smaller one
already has more rows than are scored again.  Of the rounds the shortest counts: other programs make them longer.
"""

from __future__ import annotations

import argparse
import io
import os
import sys
from contextlib import chdir, redirect_stdout
from pathlib import Path

import numpy as np
import pyarrow as pa
from turns import cost_of, in_turns

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from catalogs.formats import annotated_table
from flows.cli.app import run
from flows.demo.steps import write_parquet
from tests.flows.verbs import train
from tests.release.conftest import classified, publish
from tests.release.fields import SPECIFICATION, galaxies, season


def prepare(folder: Path, form: str, copies: int) -> None:
    """Publish the first season of a survey, and draft its second."""
    folder.mkdir(parents=True)
    with chdir(folder), redirect_stdout(io.StringIO()):
        table = galaxies()
        write_parquet(table, Path("labelled.parquet"))
        Path("spec.toml").write_text(SPECIFICATION)
        train(Path("spec.toml"), Path("models"))
        names = [f"{name}-{k}" for k in range(copies) for name in table["name"].to_pylist()]
        table = table.take(pa.array(np.tile(np.arange(table.num_rows), copies)))
        place = table.schema.get_field_index("name")
        table = table.set_column(place, table.schema.field("name"), pa.array(names))
        runs = [classified(Path(), season(table, k), form, f"season-{k}") for k in (1, 2)]
        publish("survey", "1", runs[0], Path("models"))
        run(["release", "draft", "survey", "2", "--run", str(runs[1]), "--store", "models"])


def check() -> None:
    """Check the second release."""
    with redirect_stdout(io.StringIO()):
        run(["release", "check", "survey", "2", "--json"])


def read() -> None:
    """Read all columns of the files that the check reads."""
    for folder in ("releases/survey/.2.draft/data", "season-2/survey", "releases/survey/1/data"):
        for path in sorted(Path(folder).glob("field-*")):
            catalog = annotated_table("blr_").open(path)
            for batch in catalog.batches(catalog.names):
                del batch


def main() -> None:
    """Print what checks and readings took, and their ratio."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--forms", nargs="*", default=["fits", "parquet"])
    parser.add_argument("--copies", type=int, nargs=2, default=[10, 100])
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--folder", type=Path, default=Path("bench-release"))
    parser.add_argument("--side", nargs=2, help="for the processes that are measured: what, where")
    asked = parser.parse_args()
    if asked.side:
        os.chdir(asked.side[1])
        cost_of({"check": check, "read": read}[asked.side[0]])
        return
    for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
        os.environ[name] = "1"
    for form in asked.forms:
        sides = {}
        for copies in asked.copies:
            folder = asked.folder.resolve() / f"{form}-{copies}"
            if not folder.exists():
                prepare(folder, form, copies)
            for what in ("check", "read"):
                sides[f"{what} {copies}"] = [__file__, "--side", what, str(folder)]
        least = {
            name: min(c.processor for c in taken) for name, taken in in_turns(sides, asked.rounds).items()
        }
        few, many = asked.copies
        checks, reads = (least[f"{what} {many}"] - least[f"{what} {few}"] for what in ("check", "read"))
        took = ", ".join(f"{name} {seconds:.2f} s" for name, seconds in least.items())
        print(f"{form}: {took}; a further row costs {checks / reads:.2f} times its reading", flush=True)


if __name__ == "__main__":
    main()
