"""A small survey: labelled galaxies in two colours, some with one colour missing, as Parquet and as FITS."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from astropy.io import fits

SPECIFICATION = """
name = "morphology"

[catalog]
paths = ["survey.parquet"]
id = "name"
where = "type == 'G'"
sentinels = { jmag = [-9999, 99.0] }

[label]
column = "hubble"
classes = { early = ["E", "S0"], late = ["Sb", "Sc"] }

[features]
b_j = "bmag - jmag"
j_k = "jmag - kmag"

[[candidate]]
basis = { kind = "linear" }
[[candidate]]
features = ["b_j"]
basis = { kind = "polynomial", degree = 2 }
"""

SKY = """
name = "{name}"
[catalog]
paths = ["survey.parquet"]
id = "id"
ra = "ra"
dec = "dec"
[features]
{feature} = "{feature}"
[select]
posterior = "laplace"
[label]
column = "kind"
"""
"""Of a survey with positions; what is added belongs to the label."""


def survey(n: int = 400, *, seed: int = 1) -> dict[str, np.ndarray]:
    """Return the columns: early types are red in b - j; a tenth has no j."""
    rng = np.random.default_rng(seed)
    hubble = rng.choice(["E", "S0", "Sb", "Sc", "S?", ""], size=n, p=[0.2, 0.2, 0.25, 0.25, 0.05, 0.05])
    red = np.isin(hubble, ["E", "S0"])
    kmag = rng.normal(11, 1, n)
    jmag = kmag + rng.normal(1, 0.2, n)
    bmag = jmag + rng.normal(np.where(red, 3.5, 2.5), 0.7, n)
    jmag[rng.random(n) < 0.1] = -9999
    return {
        "name": np.array([f"G{i:05d}" for i in range(n)]),
        "type": rng.choice(["G", "*"], size=n, p=[0.95, 0.05]),
        "hubble": hubble,
        "bmag": bmag,
        "jmag": jmag.astype(np.float32),
        "kmag": kmag,
    }


def write_parquet(path: Path, columns: Mapping[str, Any], **units: str | None) -> Path:
    """Write columns, vectors too, some of them with units."""
    arrays = {
        name: pa.FixedSizeListArray.from_arrays(pa.array(x.ravel()), x.shape[1])
        if isinstance(x, np.ndarray) and x.ndim > 1
        else x
        for name, x in columns.items()
    }
    table = pa.table(arrays)
    said = {name: {"unit": unit} for name, unit in units.items() if unit is not None}
    fields = [f.with_metadata(said[f.name]) if f.name in said else f for f in table.schema]
    pq.write_table(table.cast(pa.schema(fields)), path, row_group_size=100)
    return path


def write_fits(path: Path, columns: dict[str, np.ndarray], **options: Any) -> Path:
    codes = {"U": lambda a: f"{a.dtype.itemsize // 4}A", "f": lambda a: "E" if a.dtype.itemsize == 4 else "D"}
    made = [fits.Column(name, codes[a.dtype.kind](a), array=a) for name, a in columns.items()]
    fits.BinTableHDU.from_columns(made).writeto(path, **options)
    return path


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Return a folder with `survey.parquet` and `spec.toml`; reports, which take seconds, are not drawn."""
    write_parquet(tmp_path / "survey.parquet", survey())
    (tmp_path / "spec.toml").write_text(SPECIFICATION)
    return tmp_path


@pytest.fixture(scope="session")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with the survey and a store in which it has been trained; not to be written to."""
    from tests.flows.verbs import train

    folder = tmp_path_factory.mktemp("trained")
    write_parquet(folder / "survey.parquet", survey())
    write_fits(folder / "survey.fits", survey())
    (folder / "spec.toml").write_text(SPECIFICATION)
    train(folder / "spec.toml", folder / "models")
    return folder


@pytest.fixture(scope="session")
def make() -> SimpleNamespace:
    return SimpleNamespace(survey=survey, parquet=write_parquet, fits=write_fits, specification=SPECIFICATION)


S3_SECRET = "wJalrXUtnFEMI-a-secret"  # noqa: S105 - of a server that takes any


@pytest.fixture(scope="session")
def s3_endpoint() -> Iterator[str]:
    """Run a real S3 server program; yield its address."""
    pytest.importorskip("s3fs", reason="fsspec reads S3 with s3fs")
    pytest.importorskip("moto", reason="moto's server is the S3 server of these tests")
    from tests.flows.children import free_port

    port = free_port()
    program = [sys.executable, "-c", "from moto.server import main; main()", "--port", str(port)]
    with subprocess.Popen(program, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as server:
        yield f"http://127.0.0.1:{port}"
        server.terminate()


def make_bucket(filesystem: Any) -> None:
    """Make the bucket "survey" as soon as the server answers."""
    end = time.monotonic() + 60
    while True:
        try:
            return filesystem.mkdir("survey")
        except Exception:  # of the driver's own kinds
            if time.monotonic() > end:
                raise
            time.sleep(0.1)


@pytest.fixture
def s3(s3_endpoint: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """Return fsspec's driver, which knows the server by its environment as users' programs do."""
    for name, value in {
        "AWS_ACCESS_KEY_ID": "testing",
        "AWS_SECRET_ACCESS_KEY": S3_SECRET,
        "AWS_DEFAULT_REGION": "us-east-1",
        "AWS_ENDPOINT_URL": s3_endpoint,
        "AWS_EC2_METADATA_DISABLED": "true",
    }.items():
        monkeypatch.setenv(name, value)
    import fsspec
    import s3fs

    s3fs.S3FileSystem.clear_instance_cache()
    filesystem = fsspec.filesystem("s3")
    make_bucket(filesystem)
    yield filesystem
    filesystem.rm("survey", recursive=True)
    s3fs.S3FileSystem.clear_instance_cache()
