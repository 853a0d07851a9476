"""VOTables of every type, written by astropy in any serialisation, and the slow way to read them: astropy's."""

import io
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from astropy.io.votable import parse
from astropy.io.votable.tree import Field, TableElement, VOTableFile

from catalogs.catalog.new_columns import NewColumn
from catalogs.files import stamp
from catalogs.metadata.astropy_header import arrow_array
from catalogs.votable import table as votable
from catalogs.votable._rows import ELEMENTS
from catalogs.writing import annotate

N = 12

NUMBERS = {
    "unsignedByte": ["0", "255", "7"],
    "short": ["-32768", "32767", "7"],
    "int": ["-2147483648", "2147483647", "7"],
    "long": ["-9223372036854775808", "9007199254740993", "7"],
    "float": ["1.5", "NaN", "-Inf", "1e-40"],
    "double": ["1.1", "NaN", "Inf", "-0.0"],
    "floatComplex": ["1 2", "NaN NaN", "-1 0"],
    "doubleComplex": ["1.1 2.2", "NaN NaN", "3 -4"],
    "boolean": ["T", "F", "?"],
    "bit": ["1", "0", "1"],
}
TEXTS = {
    ("char", "*"): ["a", "", "a long text &lt; &amp;"],
    ("char", "5"): ["abcde", "", "ab"],
    ("char", "8*"): ["abcdefgh", "", "ab"],
    ("char", None): ["a", "b", "c"],
    ("unicodeChar", "*"): ["é", "", "σ &gt; 5"],
    ("unicodeChar", "4"): ["éèà1", "", "ab"],
    ("unicodeChar", "4*"): ["éèà1", "", "ab"],
}


def cells() -> Iterator[tuple[str, list[str]]]:
    """Yield FIELD elements and N cells each: every type alone, with a null value, as vector and as matrix, or text."""
    for datatype, values in NUMBERS.items():
        n = 2 if "Complex" not in datatype else 1
        for size, times in {"": 1, "3": 3, "2x2": 4, "9": 9}.items():
            words = [" ".join(values[(i + j * n) % len(values)] for j in range(times)) for i in range(N)]
            attributes = f'datatype="{datatype}"' + (f' arraysize="{size}"' if size else "")
            yield f"<FIELD {attributes}/>", words
            if datatype in {"unsignedByte", "short", "int", "long", "double"}:
                null = f'<FIELD {attributes}><VALUES null="7"/></FIELD>'
                yield null, ["" if i % 5 == 4 and not size else word for i, word in enumerate(words)]
    for (datatype, arraysize), values in TEXTS.items():
        attributes = f'datatype="{datatype}"' + (f' arraysize="{arraysize}"' if arraysize else "")
        yield f"<FIELD {attributes}/>", [values[i % len(values)] for i in range(N)]


def lists() -> Iterator[tuple[str, list[str]]]:
    for datatype, values in NUMBERS.items():
        if datatype == "bit":
            continue  # astropy writes and reads those in a way of its own
        for size, times in {"*": 1, "2x*": 2}.items():
            rows = [" ".join(values[(i + j) % len(values)] for j in range(i % 3 * times)) for i in range(N)]
            yield f'<FIELD datatype="{datatype}" arraysize="{size}"/>', rows


def document(fields: list[tuple[str, list[str]]], attributes: str = "") -> bytes:
    head = "\n".join(
        f.replace("<FIELD ", f'<FIELD ID="f{i}" name="f{i}" ') for i, (f, _) in enumerate(fields)
    )
    rows = (
        "<TR>" + "".join(f"<TD>{word}</TD>" for word in row) + "</TR>"
        for row in zip(*(words for _, words in fields), strict=True)
    )
    return (
        '<?xml version="1.0"?>\n<VOTABLE version="1.3" xmlns="http://www.ivoa.net/xml/VOTable/v1.3">'
        f"<!-- kept apart --><RESOURCE><TABLE{attributes}>\n{head}\n<DATA><TABLEDATA>{''.join(rows)}</TABLEDATA></DATA>"
        '<INFO name="after" value="the rows"/></TABLE></RESOURCE></VOTABLE>'
    ).encode()


def parsed(data: bytes) -> tuple[VOTableFile, TableElement]:
    file = parse(io.BytesIO(data), verify="ignore")
    (table,) = file.iter_tables()
    return file, table


def by_astropy(data: bytes, serialisation: str) -> bytes:
    """Return a document in that serialisation, as astropy writes it."""
    file, table = parsed(data)
    for field, name in zip(table.fields, table.array.dtype.names, strict=True):
        if field.arraysize in {"*", "2x*"} and field.datatype in ELEMENTS:
            # astropy has them as int64 and float64, and would write that many bytes
            cells = [np.ma.MaskedArray(c, dtype=ELEMENTS[field.datatype]) for c in table.array.data[name]]
            table.array.data[name][:] = [*cells, None][:-1]
    stream = io.BytesIO()
    file.to_xml(stream, tabledata_format=serialisation)
    return stream.getvalue()


def our_values(path: Path) -> list[str]:
    """Return each column's values as we read them, of the only table of a file."""
    cat = votable.open(path)
    columns: list[list[object]] = [[] for _ in cat.columns]
    (rows,) = votable.document(path, stamp(path))[1]
    for arrays in rows.arrow(range(len(columns))):
        for column, array in zip(columns, arrays, strict=True):
            column.extend(array.to_pylist())
    assert all(len(column) == cat.n_rows for column in columns)
    return [str(column) for column in columns]


def slow_values(table: TableElement) -> list[str]:
    """Return each column's values as astropy has them, so that NaN is NaN; lists are of their field's numbers."""
    pairs = zip(table.fields, table.array.dtype.names, strict=True)
    return [str(slow_column(f, table.array[n])) for f, n in pairs]


def slow_column(field: Field, column: Any) -> list[Any]:
    """Return a column's values; what lists are made of is Python's numbers in astropy, whatever their field says."""
    if column.dtype.kind == "O" and field.datatype in ELEMENTS:
        gone, cells = np.ma.getmaskarray(column), np.ma.getdata(column)
        typed = [np.ma.MaskedArray(cell, dtype=ELEMENTS[field.datatype]) for cell in cells]
        return [None if g else arrow_array(t).to_pylist() for g, t in zip(gone, typed, strict=True)]
    return list(arrow_array(column).to_pylist())


def annotated(path: Path, out: Path, table: str | None = None) -> Path:
    cat = votable.open(path, table)
    new = {"p": np.zeros(cat.n_rows, np.float32)}
    (written,) = annotate(cat, out, [NewColumn("p", pa.float32())], lambda _: new, read=[cat.names[0]])
    return written
