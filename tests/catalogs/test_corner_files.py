"""Every file of astropy's own test data and of ../shared/data: annotated with every old column equal, or refused.

A refusal is one of the kinds listed here, with its remedy; nothing crashes, nothing changes silently.
"""

import re
import warnings
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import astropy
import numpy as np
import pyarrow as pa
import pytest

import catalogs
from catalogs.catalog.catalog import Catalog
from catalogs.catalog.new_columns import NewColumn
from catalogs.errors import CatalogError

MARK = (NewColumn("blr_mark", pa.int32()),)
ASTROPY = Path(astropy.__file__).parent / "io"
FOLDERS = {
    "fits": ASTROPY / "fits" / "tests" / "data",
    "compressed": ASTROPY / "fits" / "hdu" / "compressed" / "tests" / "data",
    "votable": ASTROPY / "votable" / "tests" / "data",
    "misc": ASTROPY / "misc" / "tests" / "data",
    "ascii": ASTROPY / "ascii" / "tests" / "data",
}

REFUSALS = (
    r"holds no table; it holds the HDUs 0 PRIMARY",
    r"holds \d+ tables.*, expected one of .*; name one, or give its number",
    r"holds no table, expected at least one: fetch it again",
    r"is a server's answer to a query that failed: .*; expected a whole table: correct the query",
    r"the format of .* is unknown; expected one of hats: a folder; parquet",
    r"has its data in another file or address; expected TABLEDATA, or BINARY, .* inside the document: convert it",
    r"is damaged: .*; expected a whole VOTable: fetch it again",
    r"is not a VOTable: its outermost element is <\w+>, expected <VOTABLE>; open it",
    r"is damaged: it has \d+ fields but \d+ cells in each row, expected the same number",
    r"is damaged or not a table: .*; expected as many fields in every row",
    r"has several columns called .*; expected each name once: rename them",
    r"the columns of .* are not known: its lines hold \d+ to \d+ words, the first ",
    r"describes tables but holds no rows; open one of the tables instead: ",
    r"is damaged or not a table: .*; expected rows as its header describes them",
    r"holds no line of data; expected a line of column names, then rows",
    r"has no line of column names: its first line holds values, .*; expected \d+ names above it; write a line such as",
    r"is cut short: .*; copy it again",
    r"header is damaged; get another copy",
    r"a quotation in the record .* is never closed",
)
"""All ways in which these files are refused."""

READ = {
    "fits": {f"{n}.fits" for n in ["btable", "table", "tb", "tdim", "theap-gap", "variable_length_table"]},
    "compressed": set(),
    "votable": {"names.xml", "tb.fits.xml", "nonstandard_units.xml"},
    "misc": set(),
    "ascii": {"cds.dat", "cds2.dat", "ipac.dat", "sextractor.dat", "commented_header.dat"},
}
"""Files that are known to be tables, and must not be refused where this astropy has them."""


def astropy_files() -> Iterator[Any]:
    for kind, folder in FOLDERS.items():
        for path in sorted(p for p in folder.rglob("*") if p.is_file()):
            yield pytest.param(kind, path, id=f"{kind}/{path.relative_to(folder).as_posix()}")


def opened(path: Path) -> list[Catalog]:
    try:
        return [catalogs.open(path)]
    except CatalogError as error:
        said = re.search(r"holds (\d+) tables: (.*); name one", str(error))
        if said is None:
            raise
        numbers = re.findall(r"(?:^|, )(\d+) ", said[2])
        assert len(numbers) == int(said[1])
        return [catalogs.open(path, int(n)) for n in numbers]


def compute(batch: pa.RecordBatch) -> Mapping[str, Any]:
    return {"blr_mark": np.arange(batch.num_rows, dtype=np.int32)}


def values(cat: Catalog, names: tuple[str, ...]) -> list[list[dict[str, object]]]:
    """Return all values, margins' too, in a way in which NaN is NaN."""
    parts = (p.batches(names, 1 << 20) for p in cat.partitions)
    batches = [[dict(zip(names, b.columns, strict=True)) for b in part] for part in parts]
    return [[{name: comparable(array) for name, array in b.items()} for b in of_one] for of_one in batches]


def comparable(array: pa.Array) -> object:
    """Return the bytes of numbers, with one NaN, and the places of the nulls; else the values in words."""
    if not pa.types.is_floating(array.type):
        return repr(array.to_pylist())
    numbers = array.to_numpy(zero_copy_only=False).astype(np.float64)
    numbers[np.isnan(numbers)] = np.nan
    return array.is_null().to_numpy(zero_copy_only=False).tobytes(), numbers.tobytes()


def check_annotated(cat: Catalog, out: Path) -> None:
    """Annotate a catalogue, and compare every old column and what is known of it."""
    written = catalogs.annotate(cat, out, MARK, compute, read=cat.names[:1], checksums="ignore")
    assert written.warnings == ()
    table = cat.metadata.get("hdu") if cat.format == "fits" else None
    back = catalogs.open(out / cat.path.name if cat.whole else written[0], table and int(table))
    assert back.names == (*cat.names, "blr_mark")
    known = [(c.name, c.unit, c.ucd, c.description, c.shape) for c in cat.columns]
    assert [(c.name, c.unit, c.ucd, c.description, c.shape) for c in back.columns][:-1] == known
    assert values(back, cat.names) == values(cat, cat.names)


def read_or_refused(path: Path, out: Path) -> bool:
    """Say whether a file was read; what is refused names the file and says what to do."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # astropy's, of units and old editions
        try:
            tables = opened(path)
        except CatalogError as error:
            message = str(error)
            assert path.name in message
            assert any(re.search(kind, message, re.DOTALL) for kind in REFUSALS), message
            return False
        for i, cat in enumerate(tables):
            if len(set(cat.names)) == len(cat.names) and cat.names:
                check_annotated(cat, out / str(i))
    return True


@pytest.mark.parametrize(("kind", "path"), list(astropy_files()))
def test_astropys_own_corner_cases(kind: str, path: Path, tmp_path: Path) -> None:
    read = read_or_refused(path, tmp_path)
    assert read or path.name not in READ[kind]


def test_there_are_files_of_all_kinds() -> None:
    """So that nobody takes an astropy without its test data for a success."""
    if not FOLDERS["fits"].is_dir():
        pytest.skip("this astropy comes without its test data")
    assert len(list(astropy_files())) > 100
