"""Write RELEASE.md: errors of published catalogues, which check names each, and false alarms on clean releases.

    python benchmarks/release_table.py [--clean 50] [--first 0] [--forms fits parquet] [--parts FOLDER]

Several processes may each do a part; each writes the page of all parts that are there.
The survey is a third of OpenNGC's galaxies in ten fields.  A clean release is the same survey in another season: other
noise, other zero points, a deeper field, a new field.  Release k is of the seasons with the seeds 10,000 + 2k and
10,001 + 2k: take numbers that were never used to judge a rule, with --first.
"""

from __future__ import annotations

import argparse
import io
import json
import os
import shutil
import sys
import tempfile
from collections import Counter
from contextlib import redirect_stdout
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from flows.demo.steps import write_parquet
from tests.flows.verbs import train
from tests.release.conftest import classified, draft, publish
from tests.release.faults import FAULTS
from tests.release.fields import SPECIFICATION, field_of, galaxies, season
from tests.release.planting import checked, planted

HEAD = """# What the checks of a release find

`benchmarks/release_table.py` plants each error into the second release of a survey of ten files, as FITS and as
Parquet, and checks it. What was changed after it was written has its hash in the manifest, so that not the checksum
gives it away. A number up to 22 is that of the list of errors that surveys have published about their own catalogues;
the others were planted since, and 18 of them were not found at first.
"""


def main() -> None:
    """Run everything and write the page."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--clean", type=int, default=50)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--forms", nargs="*", default=["fits", "parquet"])
    parser.add_argument("--parts", type=Path, default=Path(__file__).with_name("results-release"))
    asked = parser.parse_args()
    parts = asked.parts.resolve()
    parts.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as name:
        survey = Path(name)
        os.chdir(survey)
        os.environ["BLR_SIGNER"] = "benchmark"
        prepare(survey, asked.forms if not asked.clean else ["parquet", *({*asked.forms} - {"parquet"})])
        for form in asked.forms:
            (parts / f"faults-{form}.json").write_text(
                json.dumps(planted_rows(survey, form), indent=1) + "\n"
            )
        for k in range(asked.first, asked.first + asked.clean):
            (parts / f"clean-{k:03d}.json").write_text(json.dumps(clean_release(survey, k), indent=1) + "\n")
    rows = [row for path in sorted(parts.glob("faults-*.json")) for row in json.loads(path.read_text())]
    clean = [json.loads(path.read_text()) for path in sorted(parts.glob("clean-*.json"))]
    Path(__file__).with_name("RELEASE.md").write_text(page(rows, clean), encoding="utf-8")


def prepare(survey: Path, forms: list[str]) -> None:
    """Train a model, classify two seasons, and publish the first."""
    table = galaxies()
    write_parquet(table, survey / "labelled.parquet")
    (survey / "spec.toml").write_text(SPECIFICATION)
    train(survey / "spec.toml", survey / "models")
    for form in forms:
        for k in (1, 2):
            classified(survey, season(table, k), form, f"{form}-{k}")
        with redirect_stdout(io.StringIO()):
            publish(form, "1", survey / f"{form}-1" / "run", survey)


def planted_rows(survey: Path, form: str) -> list[tuple[str, ...]]:
    """Return a row of the table for each error."""
    rows = []
    for fault in (fault for fault in FAULTS.values() if form in fault.forms):
        folder = survey / "planted"
        folder.mkdir()
        with redirect_stdout(io.StringIO()):
            found = planted(fault, survey, folder, form)
        shutil.rmtree(folder)
        shutil.rmtree(survey / "releases" / form / ".2.draft")
        stops = [c for c in found if c["verdict"] == "stop"]
        mine = [c for c in stops if c["name"] == fault.check and fault.words in c["found"]]
        others = sorted({c["name"] for c in stops} - {fault.check})
        caught = (fault.check, mine[0]["found"], mine[0].get("file", "")) if mine else ("NOT CAUGHT", "", "")
        rows.append((str(fault.number), fault.what, form, *caught, ", ".join(others)))
        print(rows[-1], flush=True)
    return rows


def deeper(table: pa.Table, field: int) -> pa.Table:
    """Return the galaxies without a field's faint ones: what a shallower release had."""
    faint = (field_of(table) == field) & (table["bmag"].to_numpy(zero_copy_only=False) > 14.5)
    return table.filter(pa.array(~faint))


def without_field(table: pa.Table, field: int) -> pa.Table:
    """Return the galaxies of the other fields."""
    return table.filter(pa.array(field_of(table) != field))


def clean_release(survey: Path, k: int) -> dict[str, Any]:
    """Publish a survey's first season and check its second; return how they differ, and what did not pass."""
    table, seeds = galaxies(), (10_000 + 2 * k, 10_001 + 2 * k)
    kind = ("another season", "a deeper field", "a new field", "more noise")[k % 4]
    before = {"a deeper field": deeper, "a new field": without_field}.get(kind, lambda whole, _: whole)(
        table, k % 10
    )
    noise = 0.1 if kind == "more noise" else None
    os.environ["OMP_NUM_THREADS"] = "1"
    with redirect_stdout(io.StringIO()):
        first = classified(survey, season(before, seeds[0]), "parquet", "clean-1")
        publish("clean", "1", first, survey)
        run_folder = classified(survey, season(table, seeds[1], noise=noise), "parquet", "clean-2")
        draft("clean", "2", run_folder, survey)
        found = checked("clean", "2")
    for made in ("clean-1", "clean-2", "releases/clean"):
        shutil.rmtree(survey / made)
    stops = [(c["name"], c["found"], c.get("file", "")) for c in found if c["verdict"] == "stop"]
    print(k, kind, stops, flush=True)
    return {
        "kind": kind,
        "seeds": seeds,
        "found": [{key: c.get(key, "") for key in ("verdict", "name", "found", "file")} for c in found],
    }


def page(rows: list[tuple[str, ...]], clean: list[dict[str, Any]]) -> str:
    """Return the page."""
    caught = sum(row[3] != "NOT CAUGHT" for row in rows)
    stopped = [
        f"- {one['kind']}, seeds {one['seeds']}: {c['name']}: {c['found']} ({c['file'] or 'all files'})"
        for one in clean
        for c in one["found"]
        if c["verdict"] == "stop"
    ]
    wrong = sum(any(c["verdict"] == "stop" for c in one["found"]) for one in clean)
    looks = [len({c["name"] for c in one["found"] if c["verdict"] == "look"}) for one in clean]
    seeds = [seed for one in clean for seed in one["seeds"]]
    kinds = ", ".join(f"{n} with {kind}" for kind, n in sorted(Counter(one["kind"] for one in clean).items()))
    lines = [
        HEAD,
        f"{caught} of {len(rows)} are stopped by a check that names the error and its place.\n",
        "| error | planted | format | caught by | first words | place | other stops |",
        "|---|---|---|---|---|---|---|",
        *("| " + " | ".join(cell.replace("|", "/")[:90] for cell in row) + " |" for row in rows),
        "\n## Clean releases\n",
        f"{len(clean)} clean releases ({kinds}):",
        f"{wrong} with a check that says stop; {np.mean(looks):.1f} checks say look in the mean.",
        f"No rule was chosen after releases of their seeds, {min(seeds):,} to {max(seeds):,}, were seen.\n",
        *stopped,
    ]
    return "\n".join(lines).rstrip() + "\n"


if __name__ == "__main__":
    main()
