"""Readers that share no code with ours: STILTS, in Java, and NASA's fitsverify.  Each is run once for many files."""

import math
import shutil
import subprocess
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Any

import catalogs
from catalogs.catalog.catalog import Catalog

STILTS, FITSVERIFY = shutil.which("stilts"), shutil.which("fitsverify")
NO_STILTS = "there is no stilts; apt-get install stilts"
NO_FITSVERIFY = "there is no fitsverify; apt-get install fitsverify"

STILTS_FORMATS = {".fits": "fits", ".vot": "votable", ".csv": "csv"}
"""Those that Debian's STILTS 3.4.7 reads; it has neither Parquet nor ECSV."""


def as_stilts_reads(paths: Sequence[Path], out: Path, left_out: Sequence[Collection[str]]) -> list[Catalog]:
    """Return the first table of each file as STILTS reads it, without the columns of its file that are left out.

    It writes one VOTable of all, without the parameters: of HISTORY cards it makes some that astropy does not read.
    """
    arguments = [f"nin={len(paths)}", f"out={out}", "ofmt=votable"]
    for number, (path, names) in enumerate(zip(paths, left_out, strict=True), 1):
        place = f"{path}#1" if path.suffix == ".fits" else str(path)
        gone = " ".join(name for name in catalogs.open(path).names if name in names)
        commands = "clearparams *" + (f"; delcols '{gone}'" if gone else "")
        arguments += [
            f"in{number}={place}",
            f"ifmt{number}={STILTS_FORMATS[path.suffix]}",
            f"icmd{number}={commands}",
        ]
    done = run(STILTS, "tmultin", *arguments)
    assert done.returncode == 0, done.stderr
    return [catalogs.open(out, number) for number in range(len(paths))]


def comparable(cat: Catalog, name: str) -> list[Any]:
    """Return a column's elements, whatever their shape: NaN is null, and integers are their digits.

    STILTS has no integers beyond 64 bits with sign, and calls them texts.
    """
    return [element for batch in cat.batches([name]) for element in elements(batch.column(0).to_pylist())]


def elements(values: list[Any]) -> list[Any]:
    flat: list[Any] = []
    for value in values:
        if isinstance(value, list):
            flat += elements(value)
        elif value is None or value == "" or (isinstance(value, float) and math.isnan(value)):
            flat.append(None)
        else:
            flat.append(str(value) if isinstance(value, int) and not isinstance(value, bool) else value)
    return flat


def without_comments(path: Path, out: Path) -> Path:
    lines = path.read_text(encoding="utf-8").splitlines(keepends=True)
    out.write_text("".join(line for line in lines if not line.startswith("#")), encoding="utf-8")
    return out


def problems_by_fitsverify(paths: Sequence[Path]) -> list[str]:
    """Return the errors and warnings in FITS files, each behind the name of its file."""
    lines = run(FITSVERIFY, *map(str, paths)).stdout.splitlines()
    assert sum(line.startswith("File:") for line in lines) == len(paths), lines[-3:]
    file, problems = "", []
    for line in lines:
        if line.startswith("File:"):
            file = line
        elif line.startswith(("*** Error:", "*** Warning:")):
            problems.append(f"{file}: {line}")
        elif problems and line.startswith(" " * 13):  # the message goes on
            problems[-1] += f" {line.strip()}"
    return problems


def run(program: str | None, *arguments: str) -> subprocess.CompletedProcess[str]:
    assert program is not None
    return subprocess.run([program, *arguments], capture_output=True, text=True, check=False, timeout=300)
