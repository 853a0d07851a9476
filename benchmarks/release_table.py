"""Write RELEASE.md: errors of published catalogues, which check names each, and false alarms on clean releases.

    python benchmarks/release_table.py [--clean 50] [--first 0] [--forms fits parquet] [--parts FOLDER]

Several processes may each do a part; each writes the page of all parts that are there.
The survey is a third of OpenNGC's galaxies in ten fields.  A clean release is the same survey in another season: other
noise, other zero points, a deeper field, a new field.
"""

from __future__ import annotations

import argparse
import io
import json
import os
import shutil
import sys
import tempfile
from contextlib import redirect_stdout
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from flows.cli.app import run
from flows.demo.openngc import write_parquet
from tests.flows.verbs import train
from tests.release.conftest import classified, publish
from tests.release.faults import FAULTS
from tests.release.fields import SPECIFICATION, deeper, galaxies, season, without_field
from tests.release.planting import checked, planted

HEAD = """# What the checks of a release find

`benchmarks/release_table.py` plants each error into the second release of a survey of ten files, as FITS and as
Parquet, and checks it. What was changed after it was written has its hash in the manifest, so that not the checksum
gives it away. A number is that of the list of errors that surveys have published about their own catalogues.
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
            (parts / f"clean-{k:02d}.json").write_text(json.dumps(clean_release(survey, k), indent=1) + "\n")
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
            publish(form, "1", survey / f"{form}-1" / "run", survey / "models")


def planted_rows(survey: Path, form: str) -> list[tuple[str, ...]]:
    """Return a row of the table for each error."""
    rows = []
    for fault in FAULTS.values():
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


def clean_release(survey: Path, k: int) -> tuple[str, list[dict[str, Any]]]:
    """Classify and check a clean release; return how it differs, and what did not pass."""
    base = galaxies()
    kind = ("another season", "a deeper field", "a new field", "more noise")[k % 4]
    before, after = base, season(base, 100 + k, noise=0.1 if kind == "more noise" else None)
    if kind == "a deeper field":
        before = deeper(base, k % 10)
    elif kind == "a new field":
        before = without_field(base, k % 10)
    name = f"clean-{k}"
    os.environ["OMP_NUM_THREADS"] = "1"
    with redirect_stdout(io.StringIO()):
        if before is base:
            shutil.copytree(survey / "releases" / "parquet", survey / "releases" / name)
        else:
            first = classified(survey, season(before, 200 + k), "parquet", f"{name}-1")
            publish(name, "1", first, survey / "models")
        second = classified(survey, after, "parquet", f"{name}-2")
        words = ["release", "draft", name, "2", "--run", str(second), "--store", str(survey / "models")]
        run(words)
        found = checked(name, "2")
    shutil.rmtree(survey / f"{name}-2")
    print(
        kind,
        [(c["verdict"], c["name"], c["found"], c.get("file", "")) for c in found if c["verdict"] == "stop"],
        flush=True,
    )
    return kind, [{key: c[key] for key in ("verdict", "name", "found")} for c in found]


def page(rows: list[tuple[str, ...]], clean: list[tuple[str, list[dict[str, Any]]]]) -> str:
    """Return the page."""
    lines = [
        "| error | planted | format | caught by | first words | place | other stops |",
        "|---|---|---|---|---|---|---|",
    ]
    lines += ["| " + " | ".join(cell.replace("|", "/")[:90] for cell in row) + " |" for row in rows]
    caught = sum(row[3] != "NOT CAUGHT" for row in rows)
    alarms = [(kind, [c for c in found if c["verdict"] == "stop"]) for kind, found in clean]
    wrong = [(kind, stops) for kind, stops in alarms if stops]
    looks = (
        np.mean([len({c["name"] for c in found if c["verdict"] == "look"}) for _, found in clean])
        if clean
        else 0
    )
    text = [
        HEAD,
        f"{caught} of {len(rows)} are stopped by a check that names the error and its place.",
        "",
        *lines,
        "",
    ]
    text += ["## Clean releases", ""]
    kinds = sorted({kind for kind, _ in clean})
    said = f"{len(clean)} clean releases ({', '.join(kinds)}): {len(wrong)} with a check that says stop"
    text += [f"{said}; {looks:.1f} checks say look in the mean.", ""]
    text += [f"- {kind}: {stops[0]['name']}: {stops[0]['found']}" for kind, stops in wrong]
    return "\n".join(text).rstrip() + "\n"


if __name__ == "__main__":
    main()
