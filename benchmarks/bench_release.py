"""What a further row costs `blr release check`, beside reading it: of the release, of its input, of the last release.

    python benchmarks/bench_release.py [--forms fits parquet numbers] [--copies 10 100] [--rounds 8] [--folder FOLDER]

The survey is a third of OpenNGC's galaxies in ten files, each galaxy so many times; its second season is checked
against the first, in one thread.  The difference of two sizes leaves out what every check costs; the smaller one
already has more rows than are scored again.  Each round gives a ratio of seconds of the processor; the median counts.
The form "numbers" is FITS without texts, with identifiers of 64 bits.  To read is to decode all columns of all three.
"""

from __future__ import annotations

import argparse
import io
import os
import statistics
import sys
from contextlib import chdir, redirect_stdout
from pathlib import Path

import numpy as np
import pyarrow as pa
from astropy.io import fits
from turns import cost_of, in_turns

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from catalogs.formats import annotated_table
from flows.cli.app import run
from flows.demo.steps import write_parquet
from tests.flows.verbs import reprocess, train
from tests.release.conftest import classified, publish
from tests.release.fields import SPECIFICATION, field_of, galaxies, season, write_fields


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
        runs = [
            numbers_classified(season(table, k), f"season-{k}")
            if form == "numbers"
            else classified(Path(), season(table, k), form, f"season-{k}")
            for k in (1, 2)
        ]
        publish("survey", "1", runs[0], Path())
        run(["release", "draft", "survey", "2", "--run", str(runs[1]), "--store", "models"])


def numbers_classified(table: pa.Table, name: str) -> Path:
    """Write the fields of a season as FITS without texts, identifiers as numbers, and classify them."""
    numbers = np.random.default_rng(0).permutation(table.num_rows) + 10**12
    of, season_folder = field_of(table), Path(name)
    write_fields(season_folder / "survey", table, "fits")
    for k in np.unique(of).tolist():
        path = season_folder / "survey" / f"field-{k}.fits"
        with fits.open(path, memmap=False) as hdus:
            kept = [c for c in hdus[1].columns if c.name == "name" or not c.format.endswith("A")]
            made = fits.BinTableHDU.from_columns(
                [fits.Column("name", "K", array=numbers[of == k]), *kept[1:]]
            )
            for place, column in enumerate(kept, 1):
                old = 1 + hdus[1].columns.names.index(column.name)
                made.header.update(
                    {f"{key}{place}": hdus[1].header[f"{key}{old}"] for key in ("TUCD", "TCOMM")}
                )
        made.writeto(path, overwrite=True, checksum=True)
    (season_folder / "spec.toml").write_text(SPECIFICATION)
    reprocess(season_folder / "spec.toml", Path("models"), out=season_folder / "run", quiet_seconds=0)
    return season_folder / "run"


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
    parser.add_argument("--forms", nargs="*", default=["fits", "parquet", "numbers"])
    parser.add_argument("--copies", type=int, nargs=2, default=[10, 100])
    parser.add_argument("--rounds", type=int, default=8)
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
        taken = in_turns(sides, asked.rounds)
        few, many = asked.copies
        ratios, least = [], {name: min(c.processor for c in costs) for name, costs in taken.items()}
        for r in range(asked.rounds):
            checks, reads = (
                taken[f"{what} {many}"][r].processor - taken[f"{what} {few}"][r].processor
                for what in ("check", "read")
            )
            ratios.append(checks / reads)
        took = ", ".join(f"{name} {seconds:.2f} s" for name, seconds in least.items())
        middle, ends = statistics.median(ratios), f"{min(ratios):.2f} to {max(ratios):.2f}"
        print(
            f"{form}: at least {took}; a further row costs {middle:.2f} ({ends}) times its reading",
            flush=True,
        )


if __name__ == "__main__":
    main()
