"""Reading: every TFORM code, nulls, scaling, texts, cells of variable length."""

from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from catalogs.fits import table as fits
from tests.catalogs.fits_samples import N, column, patched, read, write

NUMBERS = {
    "B": (np.array([0, 1, 255, 3, 4, 5, 6], np.uint8), pa.uint8()),
    "I": (np.array([-32768, 32767, 0, 1, 2, 3, 4], np.int16), pa.int16()),
    "J": (np.array([-(2**31), 2**31 - 1, 0, 1, 2, 3, 4], np.int32), pa.int32()),
    "K": (np.array([-(2**63), 2**63 - 1, 2**53 + 1, 1, 2, 3, 4], np.int64), pa.int64()),
    "E": (np.array([np.nan, -0.0, np.inf, 1.5, 2, 3, 4], np.float32), pa.float32()),
    "D": (np.array([np.nan, -0.0, -np.inf, 0.1, 2, 3, 1e300], np.float64), pa.float64()),
}


@pytest.mark.parametrize("code", NUMBERS)
def test_numbers_are_exact(tmp_path: Path, code: str) -> None:
    values, datatype = NUMBERS[code]
    table = read(
        write(tmp_path / "t.fits", column("before", "3A", ["x"] * N), column("x", code, values)), "x"
    )
    assert table.schema.types == [datatype]
    assert table["x"].null_count == 0
    assert table["x"].to_numpy().tobytes() == values.tobytes()


UNSIGNED = {
    "B": (-(2**7), np.array([-128, 127, 0, 1, 2, 3, 4], np.int8)),
    "I": (2**15, np.array([0, 65535, 1, 2, 3, 4, 32768], np.uint16)),
    "J": (2**31, np.array([0, 2**32 - 1, 1, 2, 3, 4, 2**31], np.uint32)),
    "K": (2**63, np.array([0, 2**64 - 1, 1, 2**63, 2**53 + 1, 3, 4], np.uint64)),
}


@pytest.mark.parametrize("code", UNSIGNED)
def test_shifted_integers_are_exact(tmp_path: Path, code: str) -> None:
    zero, values = UNSIGNED[code]
    with_bscale = {} if code == "B" else {"bzero": zero}
    path = write(tmp_path / "t.fits", column("x", code, values, **(with_bscale or {"bzero": -128})))
    table = read(path)
    assert table["x"].to_numpy().dtype == values.dtype
    assert table["x"].to_pylist() == values.tolist()


@pytest.mark.parametrize("code", "BIJK")
def test_other_scalings_are_float64(tmp_path: Path, code: str) -> None:
    stored = np.arange(N, dtype=NUMBERS[code][0].dtype)
    path = patched(write(tmp_path / "t.fits", column("x", code, stored)), TSCAL1=0.5, TZERO1=100.0, TNULL1=2)
    table = read(path)
    assert table["x"].to_pylist() == [100.0, 100.5, None, 101.5, 102.0, 102.5, 103.0]
    assert fits.open(path).column("x").null is None


def test_scaled_floats_are_float64(tmp_path: Path) -> None:
    path = patched(write(tmp_path / "t.fits", column("x", "E", np.arange(N, dtype=np.float32))), TSCAL1=0.1)
    assert read(path)["x"].to_pylist() == [0.1 * i for i in range(N)]


def test_truth_values_and_their_nulls(tmp_path: Path) -> None:
    path = write(tmp_path / "t.fits", column("x", "L", np.array([True, False] * 3 + [True])))
    content = path.read_bytes()
    at = content.rindex(b"TFTFTFT")
    path.write_bytes(content[:at] + b"TF\0 T1F" + content[at + 7 :])
    assert read(path)["x"].to_pylist() == [True, False, None, None, True, None, False]


def test_bits(tmp_path: Path) -> None:
    bits = np.random.default_rng(1).random((N, 11)) < 0.5
    path = write(tmp_path / "t.fits", column("x", "11X", bits), column("one", "1X", bits[:, :1]))
    table = read(path)
    assert table["x"].to_pylist() == bits.tolist()
    assert table["one"].to_pylist() == bits[:, 0].tolist()


@pytest.mark.parametrize("code", "CM")
def test_complex_numbers_are_pairs(tmp_path: Path, code: str) -> None:
    values = np.arange(N) * (1 - 2j)
    path = write(
        tmp_path / "t.fits", column("x", code, values), column("v", f"2{code}", np.stack([values] * 2, 1))
    )
    table = read(path)
    assert table["x"].to_pylist() == [[v.real, v.imag] for v in values]
    assert table["v"].to_pylist() == [[[v.real, v.imag]] * 2 for v in values]


def test_texts_end_at_nul_and_lose_trailing_blanks_only(tmp_path: Path) -> None:
    path = write(
        tmp_path / "t.fits", column("x", "6A", ["abcdef"] * N), column("empty", "0E", np.zeros((N, 0)))
    )
    patched(path, TFORM2="0A")
    content = path.read_bytes()
    raw = [b"abcdef", b"ab    ", b" b c  ", b"a\0cdef", b"\0\0\0\0\0\0", b"      ", b"a \0   "]
    path.write_bytes(content.replace(b"abcdef" * N, b"".join(raw)))
    table = read(path)
    assert table["x"].to_pylist() == ["abcdef", "ab", " b c", "a", "", "", "a"]
    assert table["empty"].to_pylist() == [""] * N


def test_texts_beyond_ascii(tmp_path: Path) -> None:
    path = write(tmp_path / "t.fits", column("x", "6A", ["abcdef"] * N))
    raw = ["été".encode().ljust(6), "été".encode("latin-1").ljust(6)] + [b"plain "] * 5
    path.write_bytes(path.read_bytes().replace(b"abcdef" * N, b"".join(raw)))
    assert read(path)["x"].to_pylist() == ["été", "été"] + ["plain"] * 5


@pytest.mark.parametrize("form", ["6A with TDIM", "6A2"])
def test_arrays_of_texts(tmp_path: Path, form: str) -> None:
    path = write(tmp_path / "t.fits", column("x", "6A", ["aabbcc"] * N))
    patched(path, **({"TDIM1": "(2,3)"} if "TDIM" in form else {"TFORM1": form}))
    assert read(path)["x"].to_pylist() == [["aa", "bb", "cc"]] * N
    assert fits.open(path).column("x").shape == (3,)


def test_texts_and_bits_of_variable_length(tmp_path: Path) -> None:
    words = ["one", "", "three   ", "4", "", "six", "seven"]
    path = write(tmp_path / "t.fits", column("x", "PA()", np.array(words, object)))
    assert read(path)["x"].to_pylist() == [w.rstrip() for w in words]
    # Seen as bits: the heap holds one byte for every eight bits, each cell beginning with a whole one.
    raw = np.empty(N, object)
    raw[:] = [np.array([0b10110000 + i, 0b11000000][: i % 3], np.uint8) for i in range(N)]
    path = write(tmp_path / "u.fits", column("x", "PB()", raw))
    content = path.read_bytes().replace(b"'PB(2)", b"'PX(2)")
    path.write_bytes(content)
    assert read(path)["x"].to_pylist() == [[True, False][: i % 3] for i in range(N)]


def test_cells_that_share_a_place_in_the_heap(tmp_path: Path) -> None:
    values = np.empty(3, object)
    values[:] = [np.array([1, 2], np.int32), np.array([3, 4], np.int32), np.array([5, 6], np.int32)]
    path = write(tmp_path / "t.fits", column("x", "PJ()", values))
    old, new = np.array([2, 0, 2, 8, 2, 16], ">i4"), np.array([2, 8, 1, 0, 3, 4], ">i4")
    path.write_bytes(path.read_bytes().replace(old.tobytes(), new.tobytes()))
    assert read(path)["x"].to_pylist() == [[3, 4], [1], [2, 3, 4]]


def test_columns_without_bytes(tmp_path: Path) -> None:
    path = write(tmp_path / "t.fits", column("x", "0E", np.zeros((N, 0))), column("y", "J", np.arange(N)))
    table = read(path)
    assert table["x"].to_pylist() == [[]] * N
    assert table["y"].to_pylist() == list(range(N))


def test_rows_in_batches_of_any_size(tmp_path: Path) -> None:
    x = np.arange(N)
    path = write(tmp_path / "t.fits", column("x", "K", x), column("s", "3A", [f"{i}" for i in x]))
    for rows in (1, 2, N, 100):
        table = read(path, "s", "x", rows=rows)
        assert table["x"].to_pylist() == x.tolist()
        assert table["s"].to_pylist() == [f"{i}" for i in x]
    assert [b.num_rows for b in fits.open(path).batches([], 5)] == [5, 2]
    with pytest.raises(ValueError, match="batches of 0 rows"):
        read(path, rows=0)
