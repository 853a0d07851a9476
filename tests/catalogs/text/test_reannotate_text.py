"""Annotating an annotated CSV file, which has no place for provenance: a whole annotation is known by its columns."""

import gzip
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

import catalogs
from catalogs.catalog.catalog import levels
from catalogs.catalog.new_columns import NewColumn, Provenance, standard_columns
from catalogs.errors import FormatError, NameClashError
from catalogs.writing import annotate

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


def values_of(column: NewColumn, shift: int) -> np.ndarray[Any, Any]:
    if pa.types.is_string(column.datatype):
        return np.array(["1", "2", ""])[(np.arange(N) + shift) % 3]
    if column.name.endswith("flags"):
        return (np.arange(N) + shift).astype(np.int32)
    values = np.linspace(0, 1, N).astype(column.datatype.to_pandas_dtype())
    if values.dtype.kind == "f":
        values[:3] = np.nan
    return values


def annotated(
    path: Path, out: Path, columns: Sequence[NewColumn] = TWO, shift: int = 0, **options: Any
) -> Path:
    whole = {c.name: values_of(c, shift) for c in columns}

    def compute(batch: pa.RecordBatch) -> Mapping[str, Any]:
        return {name: v[batch.column("row").to_numpy()] for name, v in whole.items()}

    (written,) = annotate(
        catalogs.open(path), out, columns, compute, read=["row"], rows=5, provenance=Provenance(), **options
    )
    return written


@pytest.mark.parametrize("name", DELIMITERS)
@pytest.mark.parametrize("columns", [TWO, THREE, FULL], ids=["two", "three", "full"])
def test_again_is_as_if_it_had_not_been(tmp_path: Path, name: str, columns: Sequence[NewColumn]) -> None:
    """To the byte, whatever the classes are called, by the same model and by another."""
    source = write(tmp_path / "in" / name)
    first = annotated(source, tmp_path / "one", columns)
    assert annotated(first, tmp_path / "two", columns).read_bytes() == first.read_bytes()
    other = annotated(first, tmp_path / "other", TWO, shift=1)
    assert other.read_bytes() == annotated(source, tmp_path / "fresh", TWO, shift=1).read_bytes()


def test_users_keep_their_bits_through_pandas(tmp_path: Path) -> None:
    first = annotated(write(tmp_path / "in" / "t.csv"), tmp_path / "one")
    frame = pd.read_csv(first, comment="#")
    theirs = (np.arange(N) * 21) << 16
    frame["blr_flags"] |= theirs
    frame["remark"] = "mine"
    frame.to_csv(tmp_path / "t.csv", index=False)
    again = pd.read_csv(annotated(tmp_path / "t.csv", tmp_path / "two", THREE, shift=3))
    assert list(again) == ["row", "x", "remark", *(c.name for c in THREE)]
    assert again["blr_flags"].tolist() == ((np.arange(N) + 3) | theirs).tolist()


def frame_of(path: Path) -> pd.DataFrame:
    return pd.read_csv(path, comment="#", sep=None, engine="python")


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
    first = annotated(write(tmp_path / "in" / "t.csv"), tmp_path / "one")
    FOREIGN[change](frame_of(first)).to_csv(tmp_path / "t.csv", index=False)
    assert levels(catalogs.open(tmp_path / "t.csv").metadata) == []
    with pytest.raises(NameClashError, match=r"already, so 'blr_.*choose another prefix"):
        annotated(tmp_path / "t.csv", tmp_path / "two")
    assert not (tmp_path / "two").exists()


def test_a_column_beyond_the_annotation_stays_foreign(tmp_path: Path) -> None:
    """Behind ours: kept by an annotation that has none of that name, and never overwritten by one that has."""
    first = annotated(write(tmp_path / "in" / "t.csv"), tmp_path / "one", FULL[: len(THREE)])
    frame_of(first).assign(blr_entropy=7).to_csv(tmp_path / "t.csv", index=False)
    names = catalogs.open(annotated(tmp_path / "t.csv", tmp_path / "two", THREE)).names
    assert names == ("row", "x", "blr_entropy", *(c.name for c in THREE))
    with pytest.raises(NameClashError, match="'blr_entropy' already"):
        annotated(tmp_path / "t.csv", tmp_path / "three", FULL)


def test_files_of_one_catalogue_agree_on_whose_the_columns_are(tmp_path: Path) -> None:
    first = annotated(write(tmp_path / "in" / "t.csv"), tmp_path / "one")
    frame = frame_of(first)
    frame.to_csv(tmp_path / "a.csv", index=False)
    frame.to_csv(tmp_path / "b.csv", index=False)
    assert catalogs.open(tmp_path / "[ab].csv").metadata["blr.columns"].startswith("blr_class, ")
    frame.assign(blr_flags="good").to_csv(tmp_path / "b.csv", index=False)
    with pytest.raises(
        FormatError,
        match=r"b\.csv cannot be read as one catalogue: .*only one of them records that it was annotated",
    ):
        catalogs.open(tmp_path / "[ab].csv")
