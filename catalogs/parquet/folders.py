"""Which files of a folder are Parquet, and which folders are no catalogue though they hold such files."""

from __future__ import annotations

import re
from pathlib import Path

from catalogs.errors import FormatError
from catalogs.files.folders import files_below
from catalogs.parquet._footer import ENCRYPTED, MAGIC

__all__ = ["SUFFIXES", "check_no_log", "check_none_wrapped", "is_parquet"]

SUFFIXES = (".parquet", ".parq", ".pq")

CODEC = re.compile(r"\.(?:parquet|parq|pq)\.(?:gz|gzip|snappy|zst|zstd|br|brotli|lz4|bz2|xz)$", re.IGNORECASE)
"""Names that say how pages are compressed, as pandas' own example does, or that the file is as a whole."""

LOGS = {
    "_delta_log": "Delta Lake",
    "metadata/*.metadata.json": "Apache Iceberg",
    ".hoodie": "Apache Hudi",
    "_spark_metadata": "Spark's streaming sink",
}
"""Folders in which tables with changing rows list their present files; the other files hold old rows."""


def is_parquet(path: Path) -> bool:
    """Say whether a file is named as Parquet is, or begins as it does under no suffix (Hive's) or a codec's."""
    if path.name.lower().endswith(SUFFIXES):
        return True
    return (not path.suffix or CODEC.search(path.name) is not None) and begins_as_parquet(path)


def begins_as_parquet(path: Path) -> bool:
    """Say whether a file begins as Parquet does."""
    with path.open("rb") as stream:
        return stream.read(len(MAGIC)) in {MAGIC, ENCRYPTED}


def check_no_log(folder: Path) -> None:
    """Raise FormatError where a folder is a table of a kind whose log says which of its files count."""
    for log, kind in LOGS.items():
        if next(folder.glob(log), None) is not None:
            raise FormatError(
                f"{folder} is a table of {kind}, in which {log} says which files hold the present rows; expected a "
                "folder in which every file does: export the table to plain Parquet with the program that wrote it"
            )


def check_none_wrapped(folder: Path) -> None:
    """Raise FormatError where a file of a folder is compressed as a whole: it would be left out in silence."""
    for path in files_below(folder):
        if CODEC.search(path.name) and not begins_as_parquet(path):
            raise FormatError(
                f"{path} is compressed as a whole, expected a Parquet file, which compresses its own pages; "
                "decompress the file"
            )
