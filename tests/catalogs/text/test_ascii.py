"""ASCII tables as astropy reads them, and texts that are annotated again."""

from __future__ import annotations

import gzip
import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from astropy.io import ascii as astropy_ascii
from astropy.table import Table

import catalogs
from catalogs.catalog.catalog import Catalog, levels
from catalogs.catalog.new_columns import NewColumn, Provenance, standard_columns
from catalogs.errors import DamagedFileError, FormatError, NameClashError
from catalogs.text import ascii as ascii_read
from catalogs.writing import annotate
from tests.catalogs.catalog.test_reannotate import values_of

EXAMPLES = Path(astropy_ascii.__file__).parent / "tests" / "data"
NEW = (NewColumn("blr_p", pa.float32(), "stat.probability", description="a share"),)

READ = {
    "cds2.dat": {"format": "cds"},
    "cds/null/table.dat": {"format": "cds", "readme": "cds/null/ReadMe"},
    "cds/glob/lmxbrefs.dat": {"format": "cds", "readme": "cds/glob/ReadMe"},
    "vizier/table5.dat.gz": {"format": "cds", "readme": "vizier/ReadMe"},
    "cds_mrt_dashes.txt": {"format": "mrt"},
    "ipac.dat": {"format": "ipac"},
    "sextractor2.dat": {"format": "sextractor"},
    "commented_header.dat": {"format": "commented_header"},
    "commented_header2.dat": {"format": "commented_header", "header_start": -1},
    "space_delim_blank_lines.txt": {"format": "basic"},
    "fixed_width_2_line.txt": {"format": "fixed_width_two_line"},
}
"""Files of astropy's own tests, and how astropy is told to read them."""

BLANKS = """# A survey of stars.
# name     ra       dec     mag  flag
 NGC0224   10.6847  41.269  3.44 007
 NGC0598   23.4621  30.660  5.72 012
 "NGC 55"   3.7233 -39.197  -    003
"""


def compute(batch: pa.RecordBatch) -> dict[str, Any]:
    return {"blr_p": np.arange(batch.num_rows, dtype=np.float32) / 8}


def rows_of(cat: Catalog) -> dict[str, list[Any]]:
    return pa.Table.from_batches(cat.batches(cat.names, 7)).to_pydict()


def annotated(cat: Catalog, out: Path, **options: Any) -> Catalog:
    provenance = Provenance(entries={"model": "m-1"})
    (copy,) = catalogs.annotate(cat, out, NEW, compute, read=[cat.names[0]], provenance=provenance, **options)
    return catalogs.open(copy)


@pytest.mark.parametrize("name", READ)
def test_as_astropy_reads_it_and_its_copy(tmp_path: Path, name: str) -> None:
    if not (EXAMPLES / name).exists():
        pytest.skip("this astropy has no such file")
    options = dict(READ[name])
    if "readme" in options:
        options["readme"] = str(EXAMPLES / options["readme"])
    cat = catalogs.open(EXAMPLES / name)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        expected = astropy_ascii.read(str(EXAMPLES / name), guess=False, **options)
    assert (cat.format, cat.n_rows, cat.names) == ("ascii", len(expected), tuple(expected.colnames))
    for column in expected.itercols():
        if cat.column(column.name).datatype != pa.string():
            got = pa.Table.from_batches(cat.batches([column.name]))[column.name].to_pylist()
            ours, theirs = (["--" if v is None else v for v in some] for some in (got, column.tolist()))
            assert ours == theirs, column.name
        assert cat.column(column.name).unit == (str(column.unit or "") or None)
    copy = annotated(cat, tmp_path)
    assert (copy.format, copy.path.suffix) == ("ecsv", ".ecsv")
    again = rows_of(copy)
    assert again.pop("blr_p") == [i / 8 for i in range(cat.n_rows)]
    old = {n: [v or None if isinstance(v, str) else v for v in values] for n, values in rows_of(cat).items()}
    assert {n: [v or None if isinstance(v, str) else v for v in vs] for n, vs in again.items()} == old
    told = [[(c.unit, c.description) for c in one.columns] for one in (copy, cat)]
    assert told[0][:-1] == told[1]
    assert copy.metadata["blr.model"] == "m-1"
    assert Table.read(copy.path).meta.keys() >= expected.meta.keys(), "keywords and comments stay"


def test_names_of_a_comment_quoted_words_and_codes_with_a_zero_in_front(tmp_path: Path) -> None:
    path = tmp_path / "t.dat"
    path.write_text(BLANKS)
    cat = catalogs.open(path, missing=["-"])
    assert rows_of(cat) == {
        "name": ["NGC0224", "NGC0598", "NGC 55"],
        "ra": [10.6847, 23.4621, 3.7233],
        "dec": [41.269, 30.66, -39.197],
        "mag": [3.44, 5.72, None],
        "flag": ["007", "012", "003"],
    }
    assert cat.column("mag").datatype == pa.float64()
    assert catalogs.open(path).column("mag").datatype == pa.string()


@pytest.mark.parametrize("text", ['"a, b"', "a,b", '"(0.5; 1.0)"'])
def test_marks_within_texts_are_no_delimiters(tmp_path: Path, text: str) -> None:
    """As STILTS writes vectors: the first object was taken for two names."""
    (tmp_path / "t.txt").write_text(f"# id x note\n0 2.5 {text}\n1 2.5 {text}\n")
    note = text.strip('"')
    assert rows_of(catalogs.open(tmp_path / "t.txt")) == {"id": [0, 1], "x": [2.5] * 2, "note": [note] * 2}


def test_large_identifiers_do_not_pass_through_float(tmp_path: Path) -> None:
    (tmp_path / "t.tbl").write_text("id x\n1152921504606846977 1.5\n-5 2\n")
    assert rows_of(catalogs.open(tmp_path / "t.tbl"))["id"] == [2**60 + 1, -5]


def test_gzip_other_formats_slim_copies_and_annotating_again(tmp_path: Path) -> None:
    (tmp_path / "t.dat.gz").write_bytes(gzip.compress(BLANKS.encode()))
    cat = catalogs.open(tmp_path / "t.dat.gz")
    first = annotated(cat, tmp_path / "a")
    assert first.path.name == "t.ecsv"
    assert annotated(first, tmp_path / "b").names == first.names
    assert annotated(cat, tmp_path / "c", mode="slim", keep=("name", "ra")).names == ("name", "ra", "blr_p")
    for form in ("fits", "parquet"):
        assert annotated(cat, tmp_path / form, form=form).names == first.names


REFUSED = {
    "1 3.4 hello\n2 6.4 world\n": "no line of column names: .*'1 3.4 hello'; expected 3 names .* 'name1 name2 name3'",
    "NGC 1,3,4.5,E\nNGC 2,4,5.5,S\n": "no line of column names: .* such as 'name1,name2,name3,...'",
    "M31\t00:42:44\t3\nM33\t01:33:50\t5\n": "no line of column names",
    "NGC 1,12\nNGC 2,13\n": "no line of column names",
    "  1  00 04 35.65 -47 36 19.1   0.87 0.04\n  2  00 05 01.11 -47 30 11.0   0.91\n": "columns of .* are not known",
    "1 2\n3 4\n": "no line of column names",
}


@pytest.mark.parametrize("content", REFUSED)
@pytest.mark.parametrize("name", ["t.dat", "t.csv"])
def test_the_first_object_is_not_the_column_names(tmp_path: Path, content: str, name: str) -> None:
    (tmp_path / name).write_text(content)
    with pytest.raises(FormatError, match=REFUSED[content]):
        catalogs.open(tmp_path / name)


@pytest.mark.parametrize("content", ["id,1500,1600\nG1,2.5,3.5\n", ",0,x\n0,1.5,a\n", "name,2MASS\nG1,a\n"])
def test_names_that_are_numbers_are_still_names(tmp_path: Path, content: str) -> None:
    (tmp_path / "t.csv").write_text(content)
    assert catalogs.open(tmp_path / "t.csv").names == tuple(content.split("\n", maxsplit=1)[0].split(","))


ODD_NAMES = "id,B-V,U-B,size,conc,1e5,nan,dust,x,y,z,kind\nG1,1.2,0.3,2.5,3.1,0.2,7.1,True,1.5,2.5,3.5,E\n"


def test_one_or_two_of_many_names_may_look_like_numbers(tmp_path: Path) -> None:
    """`1e5` and `nan` among a dozen names made a line of values of it."""
    (tmp_path / "t.csv").write_text(ODD_NAMES)
    assert catalogs.open(tmp_path / "t.csv").names == tuple(ODD_NAMES.split("\n", maxsplit=1)[0].split(","))
    (tmp_path / "t.csv").write_text("M31,And,Sb,spiral,a,b,c,d,e,f,3.4\nM33,Tri,Sc,spiral,a,b,c,d,e,f,5.7\n")
    with pytest.raises(FormatError, match="no line of column names"):
        catalogs.open(tmp_path / "t.csv")


@pytest.mark.parametrize("content", ["id x\n" + "1 2\n" * 60 + "1 2 3\n", "id x\n" + "1 2\n" * 60 + "1\n"])
def test_a_row_of_another_number_of_words_is_damage(tmp_path: Path, content: str) -> None:
    (tmp_path / "t.dat").write_text(content)
    with pytest.raises(DamagedFileError, match=r"damaged or not a table: .*; expected rows as its header"):
        catalogs.open(tmp_path / "t.dat")


def test_size_is_bounded_as_lines_of_one_length(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Astropy gives each text the room of the longest."""
    monkeypatch.setattr(ascii_read, "LARGEST_BYTES", 1 << 20)
    (tmp_path / "t.dat").write_text("id note x\n" + "1 a 2\n" * 1000 + f"2 {'b' * 2000} 3\n")
    with pytest.raises(FormatError, match="got 1,002 lines of up to 2,004 characters, expected at most 1 MB"):
        catalogs.open(tmp_path / "t.dat")


def test_a_file_that_changed_since_it_was_opened_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "t.dat"
    path.write_text("id x\n1 2\n")
    cat = catalogs.open(path)
    path.write_text("id x\n1 2\n3 4\n")
    with pytest.raises(DamagedFileError, match="changed after it was opened"):
        rows_of(cat)


N = 12
TWO, THREE = standard_columns(["early", "late"]), standard_columns(["1", "2", "3"])
FULL = standard_columns(["E", "S", "irregular"], columns="full")
DELIMITERS = {"t.csv": ",", "t.tsv": "\t", "t.txt": "|", "t.csv.gz": ","}


def write(path: Path) -> Path:
    delimiter = DELIMITERS[path.name]
    lines = ["# a comment", *(delimiter.join(r) for r in [("row", "x"), *((f"{i}", "") for i in range(N))])]
    data = ("\n".join(lines) + "\n").encode()
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(gzip.compress(data, mtime=0) if path.suffix == ".gz" else data)
    return path


def reannotated(path: Path, out: Path, columns: Sequence[NewColumn] = TWO, shift: int = 0) -> Path:
    whole = {c.name: values_of(c, shift, N, ("1", "2", "")) for c in columns}
    for values in whole.values():
        if values.dtype.kind == "f":
            values[:3] = np.nan

    def compute(batch: pa.RecordBatch) -> Mapping[str, Any]:
        return {name: v[batch.column("row").to_numpy()] for name, v in whole.items()}

    how: Any = {"read": ["row"], "rows": 5, "provenance": Provenance()}
    return annotate(catalogs.open(path), out, columns, compute, **how)[0]


@pytest.mark.parametrize("name", DELIMITERS)
@pytest.mark.parametrize("columns", [TWO, THREE, FULL], ids=["two", "three", "full"])
def test_again_is_as_if_it_had_not_been(tmp_path: Path, name: str, columns: Sequence[NewColumn]) -> None:
    """To the byte, whatever the classes are called, by the same model and by another."""
    source = write(tmp_path / "in" / name)
    first = reannotated(source, tmp_path / "one", columns)
    assert reannotated(first, tmp_path / "two", columns).read_bytes() == first.read_bytes()
    other = reannotated(first, tmp_path / "other", TWO, shift=1)
    assert other.read_bytes() == reannotated(source, tmp_path / "fresh", TWO, shift=1).read_bytes()


FOREIGN = {
    "one is gone": lambda f: f.drop(columns="blr_p_late"),
    "one has come between": lambda f: f.assign(q=1)[["row", "blr_class", "q", *f.columns[3:]]],
    "another order": lambda f: f[["row", *reversed(f.columns[2:])]],
    "text for flags": lambda f: f.assign(blr_flags="good"),
    "reals for flags": lambda f: f.assign(blr_flags=0.5),
    "reals for the model": lambda f: f.assign(blr_model=0.5),
    "text for probabilities": lambda f: f.assign(blr_p_late="high"),
    "no logit of two classes": lambda f: f.drop(columns="blr_logit_mean"),
    "a single class": lambda f: f.drop(columns=["blr_p_early", "blr_logit_mean"]),
    "only the class": lambda f: f[["row", "blr_class"]],
    "a name that we do not make": lambda f: f.rename(columns={"blr_p_late": "blr_p_late type"}),
}


@pytest.mark.parametrize("change", FOREIGN)
def test_less_than_a_whole_annotation_is_foreign(tmp_path: Path, change: str) -> None:
    """Whatever is not all of an annotation as we write it is somebody else's, and refused before any work."""
    first = reannotated(write(tmp_path / "in" / "t.csv"), tmp_path / "one")
    old = pd.read_csv(first, comment="#", sep=None, engine="python")
    FOREIGN[change](old).to_csv(tmp_path / "t.csv", index=False)
    assert levels(catalogs.open(tmp_path / "t.csv").metadata) == []
    with pytest.raises(NameClashError, match=r"already, so 'blr_.*choose another prefix"):
        reannotated(tmp_path / "t.csv", tmp_path / "two")
    assert not (tmp_path / "two").exists()
