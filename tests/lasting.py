"""The files that are equal after two equal runs, without the time of the run and the path on the disk."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

OF_THE_RUN = frozenset({"created", "made", "since", "mtime_ns", "inode", "input_mtime_ns", "input_inode"})
"""The keys under which manifests and summaries say when a run was, or where a disk has put a file."""
MINUTE = re.compile(rb"\b20\d\d-\d\d-\d\d \d\d:\d\d\b")
"""Since when a file is quarantined, in a table that people read."""
TABLES = "_files"
"""The folder of tables of files, which are named by the hash of their bytes."""


def lasting_bytes(path: Path) -> bytes:
    """Return a file's bytes, a JSON document and a report without what is of the run.

    Raises ValueError for a JSON document that is cut off.
    """
    if path.name == "report.html":
        return MINUTE.sub(b"", re.sub(rb"Made on [^<]*", b"", path.read_bytes()))
    if path.suffix == ".json" and not path.name.startswith("."):
        return MINUTE.sub(b"", json.dumps(_without(json.loads(path.read_bytes()))).encode())
    if path.parent.name == TABLES:
        table = pq.read_table(path)
        return repr(
            (table.schema.metadata, table.drop_columns([*OF_THE_RUN & {*table.column_names}]).to_pylist())
        ).encode()
    return path.read_bytes()


def lasting_contents(folder: Path) -> dict[str, bytes]:
    """Return what lasts of each file of a folder, by its path in the folder."""
    files = (path for path in sorted(folder.rglob("*")) if path.is_file())
    return {lasting_name(path.relative_to(folder)): lasting_bytes(path) for path in files}


def output_bytes(folder: Path) -> dict[str, bytes]:
    """Return what lasts of each file of a folder, without documents and tables, which say where inputs lie."""
    files = (
        path
        for path in sorted(folder.rglob("*"))
        if path.is_file() and path.suffix != ".json" and path.parent.name != TABLES
    )
    return {str(path.relative_to(folder)): lasting_bytes(path) for path in files}


def lasting_name(path: Path) -> str:
    """Return a file's path in its folder; that of the table of files without its hash, which changes with the run."""
    return f"{TABLES}/table" if path.parent.name == TABLES else str(path)


def _without(tree: Any) -> Any:
    if isinstance(tree, dict):
        return {
            key: _without({"rows": value["rows"]} if key == "table" and "sha256" in value else value)
            for key, value in tree.items()
            if key not in OF_THE_RUN
        }
    return [_without(item) for item in tree] if isinstance(tree, list) else tree
