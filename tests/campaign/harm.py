"""The damage of a disturbed run: its output folder is compared with that of an undisturbed run."""

from __future__ import annotations

from collections import Counter
from contextlib import suppress
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
from astropy.io import fits

from flows.runs.lock import LOCK
from flows.runs.manifest import MANIFEST
from flows.runs.release_store import STAGING_FOLDER as STAGING
from tests.campaign.material import Scenario
from tests.lasting import lasting_bytes, lasting_name

HARMS = ("lost", "duplicated", "mixed", "other bytes", "half-written", "left over")
HARMS += ("done again", "untrue", "no end", "crashed")
"""Rows that are not there, are there twice, or are of another model; files that are not those of an undisturbed run;
with a final name, but not whole; not swept away; finished, but annotated once more.  Last: what was said is not so;
the command did not end in time; it ended by a signal of its own, or with more memory than it may have."""

Harm = Counter[str]


def contents(folder: Path) -> dict[str, bytes]:
    """Return what is in a folder by name, without what is of the run, folders as empty names."""
    found = {}
    try:
        paths = sorted(folder.rglob("*"))
    except FileNotFoundError:  # a worker whose run was killed goes on for a while
        return contents(folder)
    for path in paths:
        name = lasting_name(path.relative_to(folder))
        if path.is_file():
            with suppress(FileNotFoundError):
                found[f"{name} once more" if name in found else name] = lasting_bytes(path)
        elif path.is_dir():
            found[f"{name}/"] = b""
    return found


def harm_of_stop(scenario: Scenario, out: Path) -> Harm:
    """Return the harm right after a run was stopped: whatever has a final name is whole, of before or of after."""
    whole = [contents(folder) for folder in (scenario.before, scenario.after) if folder is not None]
    harm: Harm = Counter()
    for path in sorted(out.rglob("*")) if out.is_dir() else ():
        name = path.relative_to(out)
        if path.is_file() and not any(part.startswith(".") for part in name.parts):
            try:
                content = lasting_bytes(path)
            except ValueError:
                content = b"no JSON"
            harm["half-written"] += all(content != there.get(lasting_name(name)) for there in whole)
    return harm


def harm_of_rerun(scenario: Scenario, out: Path) -> Harm:
    """Return the harm that is left once a rerun has ended well."""
    found, expected = contents(out), contents(scenario.after)
    harm: Harm = Counter()
    left_over = sorted(found.keys() - expected.keys())
    if left_over:
        print(f"left over: {left_over}", flush=True)
    harm["left over"] = len(left_over)
    harm["other bytes"] = sum(found.get(name) != content for name, content in expected.items())
    names, models = zip(*(columns_of(path, "name", "blr_model") for path in outputs(out)), strict=True)
    have = Counter(np.concatenate(names).tolist())
    want = Counter(np.concatenate([columns_of(path, "name")[0] for path in scenario.inputs]).tolist())
    harm["lost"] = (want - have).total()
    harm["duplicated"] = (have - want).total()
    harm["mixed"] = int(np.sum(np.concatenate(models) != scenario.model_id))
    return harm


def outputs(out: Path) -> list[Path]:
    """Return the annotated files of a folder, as readers of folders find them: they skip names with `_` or `.`."""
    paths = (path for kind in ("*.parquet", "*.fits") for path in sorted(out.rglob(kind)))
    return [p for p in paths if not p.relative_to(out).parts[0].startswith(("_", "."))]


def columns_of(path: Path, *names: str) -> list[np.ndarray]:
    """Return columns of a file, such as the objects' names, read by programs that are not ours."""
    if path.suffix == ".fits":
        with fits.open(path) as hdus:
            return [np.array(hdus[1].data[name]) for name in names]
    table = pq.read_table(path, columns=[*names], partitioning=None)
    return [np.array(table[name].to_pylist()) for name in names]


def finished(scenario: Scenario, out: Path) -> set[str]:
    """Return the files whose annotated copies are whole: staged with a record of this run's maker, or named."""
    expected, there = contents(scenario.after), contents(out) if out.is_dir() else {}
    visible = [name for name in there if name.endswith((".parquet", ".fits")) and name[0] not in "_."]
    named = {name for name in visible if there[name] == expected.get(name)}
    for record in out.glob(f"{STAGING}/*/**/*.json"):
        name = str(record.relative_to(out / STAGING)).partition("/")[2].removesuffix(".json")
        staged = record.with_suffix("")
        if not record.name.startswith(".") and staged.is_file() and staged.read_bytes() == expected.get(name):
            named.add(name)
    return named


def phase(scenario: Scenario, out: Path) -> str:
    """Say how far a run came that was stopped."""
    there = contents(out) if out.is_dir() else {}
    before = contents(scenario.before) if scenario.before else {}
    begun = (out / LOCK).exists() or (out / STAGING).exists()
    if there.get(MANIFEST) == contents(scenario.after)[MANIFEST]:
        return "tidying up" if begun else "finished"
    visible, visible_before = (
        {name for name in names if not name.startswith(".") and not name.endswith("/")}
        for names in (there, before)
    )
    if visible != visible_before or any(there[name] != before[name] for name in visible):
        return "giving names"
    return "annotating" if begun else "not begun"
