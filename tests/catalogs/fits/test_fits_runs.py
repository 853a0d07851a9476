"""A process annotates two million rows: in little memory, and leaving nothing half-done when it is killed."""

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from astropy.io import fits as astropy_fits

from catalogs.fits import table as fits

ROWS = 2_000_000
FORMS = {"id": "K", "ra": "D", "dec": "D", **{f"m{i}": "E" for i in range(10)}, "name": "13A", "flag": "J"}

SCRIPT = """
import json, resource, sys, time
from pathlib import Path

import numpy as np
import pyarrow as pa

from catalogs.fits import table as fits
from catalogs.writing import annotate
from catalogs.catalog.new_columns import NewColumn

COLUMNS = [NewColumn("p", pa.float32()), NewColumn("flags", pa.int32()), NewColumn("c", pa.string(), width=6)]
WORDS = np.full(131_072, "spiral")


def compute(batch):
    n = batch.num_rows
    return {"p": batch.column("m0").to_numpy(), "flags": np.zeros(n, "i4"), "c": WORDS[:n]}


def progress(rows):
    print(rows, flush=True)
    if sys.argv[3] == "sleep":
        time.sleep(60)


def peak():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


before, start = peak(), time.perf_counter()
cat = fits.open(Path(sys.argv[1]))
annotate(cat, Path(sys.argv[2]), COLUMNS, compute, read=["m0", "id"], threads=2, progress=progress)
print(json.dumps({"MB": peak() - before, "s": time.perf_counter() - start}))
"""


@pytest.fixture(params=[ROWS])
def path(tmp_path: Path, request: pytest.FixtureRequest) -> Path:
    """Two million rows of 81 bytes, or as many as are asked for, all zero, which take no room on the disk."""
    columns = [astropy_fits.Column(name, form) for name, form in FORMS.items()]
    header = astropy_fits.BinTableHDU.from_columns(columns).header
    header["NAXIS2"] = request.param
    size = request.param * 81
    with (tmp_path / "survey.fits").open("wb") as stream:
        stream.write(astropy_fits.PrimaryHDU().header.tostring().encode())
        stream.write(header.tostring().encode())
        stream.truncate(stream.tell() + size + -size % 2880)
    return tmp_path / "survey.fits"


def run(path: Path, mode: str) -> list[str]:
    return [sys.executable, "-c", SCRIPT, str(path), str(path.parent / "out"), mode]


def test_two_million_rows_take_little_memory(path: Path) -> None:
    done = subprocess.run(run(path, "run"), capture_output=True, check=True, text=True, timeout=60)
    *rows, numbers = done.stdout.splitlines()
    assert sum(map(int, rows)) == ROWS
    assert json.loads(numbers)["MB"] < 100
    with astropy_fits.open(path.parent / "out" / "survey.fits", checksum=True) as hdus:
        assert hdus[1]._checksum_valid == hdus[1]._datasum_valid == 1
        assert hdus[1].header["NAXIS1"] == 81 + 4 + 4 + 6
        assert np.all(hdus[1].data["c"][::100_000] == "spiral")


@pytest.mark.parametrize("path", [400_000], indirect=True)
def test_a_killed_run_leaves_no_final_file_and_can_be_run_again(path: Path) -> None:
    with subprocess.Popen(run(path, "sleep"), stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert int(process.stdout.readline()) == 131_072
        process.kill()
    out = path.parent / "out"
    (left,) = out.iterdir()
    assert left.name.startswith(".blr-")
    subprocess.run(run(path, "run"), capture_output=True, check=True, timeout=60)
    assert [p.name for p in out.iterdir()] == ["survey.fits"]
    assert fits.open(out / "survey.fits").n_rows == 400_000
