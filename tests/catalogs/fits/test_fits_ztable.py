"""Tile-compressed tables: read as what was compressed, by a packer of our own and by `fpack`; damaged ones refused."""

import gzip
import io
import shutil
import subprocess
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from astropy.io import fits as astropy_fits

from catalogs.catalog.new_columns import NewColumn
from catalogs.errors import CatalogError, DamagedFileError, FormatError
from catalogs.files import stamp
from catalogs.fits import table as fits
from catalogs.fits.header import open_source, read_hdus
from catalogs.writing import annotate

N = 500
MARK = (NewColumn("blr_mark", pa.int32()),)
SHUFFLED = {"I": 2, "J": 4, "K": 8, "E": 4, "D": 8}


def make(path: Path, *, variable: bool = False) -> Path:
    """Write a plain table of many kinds of columns, between other HDUs."""
    path.write_bytes(made(variable=variable))
    return path


@cache
def made(*, variable: bool) -> bytes:
    rng = np.random.default_rng(1)
    columns = [
        astropy_fits.Column("row", "J", array=np.arange(N)),
        astropy_fits.Column("i", "I", array=rng.integers(-300, 300, N), null=7),
        astropy_fits.Column("k", "K", array=2**60 + np.arange(N)),
        astropy_fits.Column("b", "B", array=rng.integers(0, 255, N)),
        astropy_fits.Column("e", "E", array=rng.normal(size=N), unit="nanomaggy"),
        astropy_fits.Column("d", "2D", array=rng.normal(size=(N, 2))),
        astropy_fits.Column("a", "7A", array=[f"NGC{i}" for i in range(N)]),
        astropy_fits.Column("l", "L", array=rng.random(N) < 0.5),
        astropy_fits.Column("x", "11X", array=rng.random((N, 11)) < 0.5),
        astropy_fits.Column("u", "I", bzero=2**15, array=np.arange(N, dtype=np.uint16)),
        astropy_fits.Column("v", "3J", array=rng.integers(0, 9, (N, 3))),
        astropy_fits.Column("none", "0E", array=np.empty((N, 0))),
    ]
    if variable:
        cells = np.empty(N, object)
        cells[:] = [np.arange(i % 3, dtype=np.int16) for i in range(N)]
        columns.append(astropy_fits.Column("w", "PI()", array=cells))
    table = astropy_fits.BinTableHDU.from_columns(columns, name="DATA")
    table.header["TELESCOP"] = "VISTA"
    hdus = [astropy_fits.PrimaryHDU(), table, astropy_fits.ImageHDU(np.ones((3, 3)), name="LAST")]
    file = io.BytesIO()
    astropy_fits.HDUList(hdus).writeto(file, checksum=True)
    return file.getvalue()


def pack(plain: Path, packed: Path, algorithms: dict[str, str], length: int, **changed: Any) -> Path:
    """Compress the table by the Standard's section 10.3, the slow and obvious way."""
    partition = fits.open(plain, 1).partitions[0]
    assert isinstance(partition, fits.FitsPartition)
    table = partition.table
    content = plain.read_bytes()
    start = table.hdu.data_offset
    rows = np.frombuffer(content[start : start + N * table.row_bytes], np.uint8).reshape(N, -1)
    heap, descriptors = b"", []
    for first in range(0, N, length):
        for c in table.columns:
            cells = rows[first : first + length, c.offset : c.offset + c.n_bytes].tobytes()
            tile = squeezed(cells, algorithms.get(c.name, "GZIP_1"), c.code)
            descriptors += [len(tile), len(heap)]
            heap += tile
    header = astropy_fits.getheader(plain, 1)
    sizes = {"ZNAXIS1": table.row_bytes, "ZNAXIS2": N, "ZPCOUNT": 0, "ZTILELEN": length}
    for n, c in enumerate(table.columns, 1):
        header[f"ZFORM{n}"], header[f"TFORM{n}"] = header[f"TFORM{n}"], "1QB"
        header[f"ZCTYP{n}"] = algorithms.get(c.name, "GZIP_1")
    header["ZDATASUM"], header["ZHECKSUM"] = header["DATASUM"], header["CHECKSUM"]
    del header["DATASUM"], header["CHECKSUM"]
    data = np.array(descriptors, ">i8").tobytes() + heap
    header.update(sizes | {"ZTABLE": True, "NAXIS1": 16 * len(table.columns), "NAXIS2": -(-N // length)})
    header.update({"PCOUNT": len(heap)} | changed)
    text = header.tostring(padding=True).encode()
    padded = data + bytes(-len(data) % 2880)
    packed.write_bytes(content[: table.hdu.offset] + text + padded + content[table.hdu.end :])
    return packed


@cache
def squeezed(cells: bytes, algorithm: str, code: str) -> bytes:
    if algorithm == "GZIP_2":
        width = SHUFFLED.get(code, 1)
        cells = np.frombuffer(cells, np.uint8).reshape(-1, width).T.tobytes()
    if algorithm == "RICE_1":
        values = np.frombuffer(cells, {"J": ">i4", "I": ">i2", "B": "u1"}[code])
        native = values.astype(values.dtype.newbyteorder("="))
        file = io.BytesIO()
        image = astropy_fits.CompImageHDU(native, compression_type="RICE_1", tile_shape=(values.size,))
        astropy_fits.HDUList([astropy_fits.PrimaryHDU(), image]).writeto(file)
        file.seek(0)
        with astropy_fits.open(file, disable_image_compression=True) as hdus:
            return hdus[1].data["COMPRESSED_DATA"][0].tobytes()
    return cells if algorithm == "NOCOMPRESS" else gzip.compress(cells)


def rows(path: Path) -> pa.Table:
    cat = fits.open(path, 1)
    return pa.Table.from_batches(list(cat.batches(cat.names, 300)))


ALGORITHMS = {
    "gzip": {},
    "gzip sorted": dict.fromkeys("iked", "GZIP_2"),
    "rice": {"row": "RICE_1", "i": "RICE_1", "b": "RICE_1", "v": "RICE_1"},
    "none": {"a": "NOCOMPRESS", "row": "NOCOMPRESS"},
}


@pytest.mark.parametrize(
    ("algorithm", "length"),
    [*((name, 300) for name in ALGORITHMS), ("gzip sorted", N), ("gzip", 1), ("rice", 23)],
)
def test_the_table_is_as_it_was(tmp_path: Path, algorithm: str, length: int) -> None:
    """Columns, nulls, scales, units, to the last short tile."""
    plain = make(tmp_path / "t.fits")
    packed = pack(plain, tmp_path / "p.fits", ALGORITHMS[algorithm], length)
    assert fits.open(packed).columns == fits.open(plain, 1).columns
    assert rows(packed).equals(rows(plain))


def test_parts_are_all_rows_in_their_order(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each process restores the table once, however many parts it reads; so it is with a gzipped file."""
    plain = make(tmp_path / "t.fits")
    packed, zipped = pack(plain, tmp_path / "p.fits", {}, 300), tmp_path / "z.fits.gz"
    zipped.write_bytes(gzip.compress(packed.read_bytes()))
    made = []
    restore = fits.decompressed
    monkeypatch.setattr(fits, "decompressed", lambda *given: made.append(1) or restore(*given))
    for path in (packed, zipped):
        made.clear()
        cat = fits.open(path, 1)
        (partition,) = cat.partitions
        parts = partition.divided(400)
        assert len(parts) == -(-N // 400) > 1
        batches = [batch for part in parts for batch in part.batches(cat.names, 150)]
        assert pa.Table.from_batches(batches).equals(rows(plain))
        assert made == [1]


def test_annotated_copies_are_plain(tmp_path: Path) -> None:
    """As if the plain table had been annotated, but for the order of cards."""
    plain = make(tmp_path / "t.fits")
    packed = pack(plain, tmp_path / "p.fits", ALGORITHMS["gzip sorted"], 300)

    def compute(batch: pa.RecordBatch) -> dict[str, Any]:
        return {"blr_mark": np.ones(batch.num_rows, np.int32)}

    cats, folder = (fits.open(p, 1) for p in (plain, packed)), tmp_path / "out"
    outs = [annotate(cat, folder, MARK, compute, read=["row"])[0] for cat in cats]
    with astropy_fits.open(outs[0]) as a, astropy_fits.open(outs[1], checksum=True) as b:
        assert [h.name for h in b] == ["PRIMARY", "DATA", "LAST"]
        assert b[1]._checksum_valid
        told = ((c for c in h[1].header.cards if c.keyword != "CHECKSUM") for h in (a, b))
        cards = [{(c.keyword, str(c.value)) for c in of_one} for of_one in told]
        assert cards[0] == cards[1]
        assert a[1].data.tobytes() == b[1].data.tobytes()


@pytest.mark.skipif(shutil.which("fpack") is None, reason="fpack is not installed (Debian: libcfitsio-bin)")
def test_what_fpack_made(tmp_path: Path) -> None:
    plain = make(tmp_path / "t.fits")
    kept = tmp_path / "kept.fits"
    shutil.copy(plain, kept)
    subprocess.run(["fpack", "-table", "-O", tmp_path / "p.fits.fz", plain], check=True, capture_output=True)
    assert rows(tmp_path / "p.fits.fz").equals(rows(kept))
    assert fits.open(tmp_path / "p.fits.fz").metadata["extname"] == "DATA"


@pytest.mark.parametrize(
    ("changed", "error", "message"),
    [
        ({"ZNAXIS1": 5}, DamagedFileError, r"tiles states .*'ZNAXIS1': 5.* but its columns take"),
        ({"ZNAXIS2": 10**12}, DamagedFileError, "but its columns take"),
        ({"ZTILELEN": 0}, DamagedFileError, "but its columns take"),
        ({"ZNAXIS2": -1}, DamagedFileError, "ZNAXIS2 is -1, expected a whole number"),
        ({"ZFORM1": "Z"}, DamagedFileError, "ZFORM1 is 'Z'"),
        ({"ZFORM1": "1PJ"}, DamagedFileError, "but its columns take"),
        ({"ZCTYP2": "HCOMPRESS_1"}, FormatError, "'i' is compressed by 'HCOMPRESS_1'.*funpack"),
        ({"ZCTYP2": "NOCOMPRESS"}, DamagedFileError, "a tile of 'i' cannot be decompressed to 600 bytes"),
        ({"ZCTYP1": "RICE_1"}, DamagedFileError, "a tile of 'row' cannot be decompressed|have the sum"),
        ({"ZDATASUM": "12345"}, DamagedFileError, "have the sum .* expected 12345 by ZDATASUM"),
        ({"TFORM3": "1QJ"}, CatalogError, "but its columns take"),
    ],
)
def test_headers_that_lie(tmp_path: Path, changed: dict[str, Any], error: Any, message: str) -> None:
    packed = pack(make(tmp_path / "t.fits"), tmp_path / "p.fits", {}, 300, **changed)
    with pytest.raises(error, match=message):
        rows(packed)


@pytest.mark.parametrize("seed", range(30))
def test_bytes_overwritten_at_random(tmp_path: Path, seed: int) -> None:
    """The sum of the whole table is known, so damage of the tiles is never a wrong table."""
    plain = make(tmp_path / "t.fits")
    packed = pack(plain, tmp_path / "p.fits", ALGORITHMS[["gzip", "rice"][seed % 2]], 300)
    with open_source(packed, stamp(packed)) as source:
        hdu = read_hdus(source)[1]
    content, rng = bytearray(packed.read_bytes()), np.random.default_rng(seed)
    for place in rng.integers(hdu.data_offset, hdu.data_offset + hdu.data_bytes, 3):
        content[place] = rng.integers(256)
    packed.write_bytes(content)
    try:
        found = rows(packed)
    except CatalogError:
        return
    assert found.equals(rows(plain))


def test_cells_of_variable_length_are_left_to_funpack(tmp_path: Path) -> None:
    packed = pack(make(tmp_path / "t.fits", variable=True), tmp_path / "p.fits", {}, 300)
    with pytest.raises(FormatError, match=r"which cannot be read here; run `funpack`"):
        fits.open(packed)
