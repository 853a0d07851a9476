"""Errors planted into the second release of a survey, and what its check says."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from tests.flows.verbs import reprocess
from tests.release.conftest import draft, release
from tests.release.faults import Fault, File, stamp


def planted(fault: Fault, survey: Path, folder: Path, form: str) -> list[dict[str, Any]]:
    """Plant a fault in the second release of a survey; return the checks that did not pass."""
    run_folder = survey / f"{form}-2" / "run"
    if fault.source is not None:
        shutil.copytree(survey / f"{form}-2", folder / "changed", ignore=shutil.ignore_patterns("run"))
        for k in fault.fields:
            file = File(folder / "changed" / "survey" / f"field-{k}.{form}")
            fault.source(file)
            file.write()
        run_folder = folder / "changed" / "run"
        reprocess(folder / "changed" / "spec.toml", survey / "models", out=run_folder, quiet_seconds=0)
    companion: list[object] = []
    if fault.companion:
        paths = sorted((run_folder).glob(f"field-*.{form}"))
        names = [str(name) for path in paths for name in File(path).columns["name"]]
        table = pa.table({"name": names[7:], "axis": list(range(len(names) - 7))})
        pq.write_table(table, folder / "shapes.parquet")
        companion = ["--companion", folder / "shapes.parquet"]
    if fault.source is not None or fault.companion or not Path("releases", form, ".2.draft").is_dir():
        draft(form, "2", run_folder, survey, *companion)
    data = Path("releases") / form / ".2.draft" / "data"
    if fault.output is not None:
        for k in fault.fields:
            file = File(data / f"field-{k}.{form}")
            fault.output(file)
            file.write()
        stamp(data)
    if fault.folder is not None:
        fault.folder(data)
    return checked(form, "2")


def checked(name: str, version: str) -> list[dict[str, Any]]:
    """Check a draft; return what did not pass."""
    release("check", name, version, "--json")
    document = json.loads((Path("releases") / name / f".{version}.draft" / "checks.json").read_text())
    return [check for check in document["checks"] if check["verdict"] != "pass"]
