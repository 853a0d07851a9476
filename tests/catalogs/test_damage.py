"""Files of every format cut, overwritten and lied to, at seeded places: an error of ours or a table, never a crash.

Annotated, they give no file, or a copy whose old columns are as they are read.
Of a format that knows its own size and sums, a cut file is an error or the whole table.  The numbers of each
outcome are printed, and stand in the test report.  More are tried by
`BLR_DAMAGES=1000 pytest -s tests/catalogs/test_damage.py`.
"""

import os
import resource
import shutil
import time
import warnings
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import catalogs
from catalogs.catalog.catalog import Catalog
from catalogs.errors import CatalogError
from tests.catalogs.round_trip_samples import WRITERS

CASES = int(os.environ.get("BLR_DAMAGES", "20"))
"""Damages of each kind and format."""

SECONDS = 20.0
"""Of the processor, for one file: far from hanging, and the same on a loaded machine."""

MEMORY_KB = 400_000
"""By which all the damages of a format may make the process larger."""

ADDRESSES = 2 << 30
"""Bytes of address space that may be asked for beyond what is in use: what a header claims is not believed."""

CLAIMS = [
    b"\xff\xff\xff\x7f",
    b"\x7f\xff\xff\xff",
    b"\xff" * 4,
    b"\xff" * 8,
    b"\x00\x00\x00\x40",
    b"\x00" * 4,
]
"""Numbers as files of any byte order store them: the largest, -1, 2^30, 0."""

LARGE = [b"99999999999", b"-1", b"2147483647", b"18446744073709551615", b"NaN", b"0"]

Damage = Callable[[bytes, np.random.Generator], bytes]


def cut(data: bytes, rng: np.random.Generator) -> bytes:
    return data[: rng.integers(len(data))]


def flip(data: bytes, rng: np.random.Generator) -> bytes:
    damaged = bytearray(data)
    for place in rng.integers(len(data), size=rng.integers(1, 9)):
        damaged[place] ^= 1 << rng.integers(8)
    return bytes(damaged)


def overwrite(data: bytes, rng: np.random.Generator) -> bytes:
    start, size = rng.integers(len(data)), rng.integers(1, 200)
    noise = rng.integers(0, 256, size, dtype=np.uint8).tobytes()
    return data[:start] + noise + data[start + size :]


def lie(data: bytes, rng: np.random.Generator) -> bytes:
    """Put another number, an absurd one at times, in the place of a number that is written out."""
    letters = np.frombuffer(data, np.uint8)
    digits = np.flatnonzero((letters >= ord("0")) & (letters <= ord("9")))
    if not len(digits):
        return overwrite(data, rng)
    start = digits[rng.integers(len(digits))]
    word = LARGE[rng.integers(len(LARGE))]
    return data[:start] + word + data[start + len(word) :]


def claim(data: bytes, rng: np.random.Generator) -> bytes:
    """Put an absurd binary number somewhere, by turns near the ends, where sizes are stored."""
    number = CLAIMS[rng.integers(len(CLAIMS))]
    reach = len(data) if rng.random() < 0.5 else min(len(data), 400)
    start = int(rng.integers(reach))
    start = len(data) - 1 - start if rng.random() < 0.5 else start
    return data[:start] + number + data[start + len(number) :]


def leave_out(data: bytes, rng: np.random.Generator) -> bytes:
    """Lose a piece in the middle."""
    start, size = rng.integers(len(data)), rng.integers(1, 3000)
    return data[:start] + data[start + size :]


KINDS: tuple[Any, ...] = (cut, flip, overwrite, lie, claim, leave_out)
DAMAGES: dict[str, Damage] = {damage.__name__.replace("_", " "): damage for damage in KINDS}
WHOLE_OR_ERROR = {("fits", "cut"), ("parquet", "cut"), ("hats", "cut"), ("votable", "cut")}


def victim(sample: Path, rng: np.random.Generator) -> Path:
    """Return the file that is damaged: of a folder, any of its own."""
    if sample.is_file():
        return sample
    files = sorted(p for p in sample.rglob("*") if p.is_file())
    return files[rng.integers(len(files))]


def values(cat: Catalog, names: tuple[str, ...]) -> bytes:
    """Return all values as Arrow writes them, so that NaN is NaN, and so that no time is beyond Python's."""
    batches = list(cat.batches(names))
    if not batches:
        return b""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batches[0].schema) as writer:
        writer.write_table(pa.Table.from_batches(batches).combine_chunks())
    return sink.getvalue().to_pybytes()


def read(path: Path) -> bytes:
    cat = catalogs.open(path)
    return values(cat, cat.names)


@pytest.fixture(params=WRITERS)
def sample(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[str, Path]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        (tmp_path / "whole").mkdir()
        return request.param, WRITERS[request.param](tmp_path / "whole")


@pytest.fixture
def bounded() -> Iterator[None]:
    """Let absurd allocations fail with MemoryError, which is no error of ours."""
    if not Path("/proc/self/statm").exists():
        yield
        return
    soft, hard = resource.getrlimit(resource.RLIMIT_AS)
    used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (used + ADDRESSES, hard))
    yield
    resource.setrlimit(resource.RLIMIT_AS, (soft, hard))


def copy_of(whole: Path, place: Path) -> Path:
    shutil.rmtree(place, ignore_errors=True)
    place.mkdir()
    copied = place / whole.name
    if whole.is_dir():
        shutil.copytree(whole, copied)
    else:
        shutil.copy(whole, copied)
    return copied


Record = Callable[[str, object], None]


def counted(
    what: str, seed: list[int], n: int, once: Callable[[np.random.Generator, int], str], record: Record
) -> Counter[str]:
    """Try so many damages, each in its time; report and return what came of them."""
    rng, outcomes = np.random.default_rng(seed), Counter[str]()
    for i in range(n):
        start = time.process_time()
        outcomes[once(rng, i)] += 1
        assert time.process_time() - start < SECONDS
    record(what, dict(outcomes))
    print(f"{what}: {dict(outcomes)}")  # noqa: T201 -- the counts are the report
    assert "SAYS NOTHING" not in outcomes
    return outcomes


@pytest.mark.usefixtures("bounded")
@pytest.mark.parametrize("kind", DAMAGES)
def test_damaged_files(sample: tuple[str, Path], kind: str, tmp_path: Path, record_property: Record) -> None:
    name, whole = sample
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        expected = read(whole)
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        place = copy_of(whole, tmp_path / "damaged")

        def once(rng: np.random.Generator, _: int) -> str:
            target = victim(place, rng)
            undamaged = target.read_bytes()
            target.write_bytes(DAMAGES[kind](undamaged, rng))
            try:
                found = read(place)
            except CatalogError as error:
                return type(error).__name__ if len(str(error)) > 40 else "SAYS NOTHING"
            finally:
                target.write_bytes(undamaged)
            if (name, kind) in WHOLE_OR_ERROR and target.name.startswith(("sample", "Npix")):
                assert found == expected, f"{target.name} was cut, and another table was read"
            return "same" if found == expected else "other values"

        counted(f"{name}, {kind}", [sum(name.encode()), sum(kind.encode())], CASES, once, record_property)
    grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    assert grown < MEMORY_KB, f"{grown} kB more"


COLUMNS = [catalogs.NewColumn("blr_n", pa.int32()), catalogs.NewColumn("blr_text", pa.string(), width=8)]


def outcome(cat: Catalog, names: tuple[str, ...]) -> bytes | None:
    try:
        return values(cat, names)
    except CatalogError:
        return None


def annotated(cat: Catalog, out: Path) -> None:
    given = iter(range(10**9))

    def compute(batch: pa.RecordBatch) -> Mapping[str, Any]:
        n = np.array([next(given) for _ in range(batch.num_rows)], np.int32)
        return {"blr_n": n, "blr_text": np.array([f"row {i}" for i in n.tolist()], dtype=object)}

    # Of many a damaged file no column can be read: then the copy has to do without.
    catalogs.annotate(cat, out, COLUMNS, compute, read=cat.names[:1], rows=5, threads=1)


def files(folder: Path) -> list[str]:
    return sorted(str(p.relative_to(folder)) for p in folder.rglob("*") if p.is_file())


def tried(place: Path, out: Path) -> str:
    """Annotate a damaged file; return what came of it."""
    try:
        cat = catalogs.open(place)
        annotated(cat, out)
    except CatalogError as error:
        refused = type(error).__name__
    else:
        refused = ""
    if refused:
        assert not files(out), "half a copy"
        return refused
    before = outcome(cat, cat.names)
    copy = catalogs.open(out / place.name)
    assert copy.names == (*cat.names, "blr_n", "blr_text")
    assert outcome(copy, cat.names) == before
    batches = (b for p in copy.partitions if p.counted for b in p.batches(["blr_n"]))
    n = [row for b in batches for row in b.column(0).to_pylist()]
    assert sorted(n) == list(range(cat.n_rows))
    return "right" if before is not None else "right, but some columns cannot be read"


@pytest.mark.usefixtures("bounded")
def test_damaged_files_are_annotated_or_refused(
    sample: tuple[str, Path], tmp_path: Path, record_property: Record
) -> None:
    name, whole = sample
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        assert tried(whole, tmp_path / "out") == "right"
        for kind, damage in DAMAGES.items():

            def once(rng: np.random.Generator, i: int, kind: str = kind, damage: Damage = damage) -> str:
                place = copy_of(whole, tmp_path / "damaged")
                target = victim(place, rng)
                target.write_bytes(damage(target.read_bytes(), rng))
                return tried(place, tmp_path / f"{kind} {i}")

            seed = [sum(name.encode()), sum(kind.encode()), 2]
            counted(f"{name}, {kind}, annotated", seed, CASES // 20, once, record_property)
