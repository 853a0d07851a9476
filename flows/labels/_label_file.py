"""A file of SQLite with labels: made once, then read by any number of processes, without locks."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from urllib.parse import quote

from catalogs.files.atomic import StorageError
from flows.labels._held_labels import SHOWN, Conflicts, plain_number

__all__ = ["conflicts_in", "count", "label_file", "new_label_file"]

CACHE_KILOBYTES = 65_536


@contextmanager
def new_label_file(path: Path) -> Iterator[sqlite3.Connection]:
    """Open a new file, quickly: if the process ends before the file is complete, nobody reads it.

    Raises
    ------
    StorageError
        If there is no room on the disk, or the file cannot be made.
    """
    try:
        with closing(sqlite3.connect(_address(path, "nolock=1"), uri=True, isolation_level=None)) as con:
            con.execute("PRAGMA journal_mode = OFF")
            con.execute("PRAGMA synchronous = OFF")
            con.execute(f"PRAGMA cache_size = -{CACHE_KILOBYTES}")
            con.create_function("plain_number", 1, plain_number, deterministic=True)
            con.execute("BEGIN")
            yield con
            con.execute("COMMIT")
    except sqlite3.OperationalError as error:
        raise StorageError(
            f"{path.parent}: got '{error}' while the labels of a table were sorted, expected enough space there "
            "and among temporary files; free some space, or choose a model store on another disk with --store"
        ) from error


def _address(path: Path, how: str) -> str:
    """Return the address of a file; SQLite takes no locks on it, which shared disks may lack."""
    return f"file:{quote(str(path.absolute()))}?{how}"


@contextmanager
def label_file(path: Path) -> Iterator[sqlite3.Connection]:
    """Open a file that nobody writes."""
    with closing(
        sqlite3.connect(_address(path, "mode=ro&immutable=1"), uri=True, isolation_level=None)
    ) as con:
        con.execute("PRAGMA temp_store = MEMORY")
        yield con


def count(con: sqlite3.Connection, table: str) -> int:
    """Return the number of rows of a table."""
    return int(con.execute(f"SELECT count(*) FROM {table}").fetchone()[0])  # noqa: S608  our own names


def conflicts_in(con: sqlite3.Connection, suffix: str = "") -> Conflicts:
    """Return the conflicts that the tables `conflicts` and `shown` have, or those of another suffix."""
    names = [n for (n,) in con.execute(f"SELECT name FROM conflicts{suffix} ORDER BY name LIMIT {SHOWN}")]  # noqa: S608
    texts = f"SELECT text FROM shown{suffix} WHERE name = ? ORDER BY row"  # noqa: S608
    shown = {name: tuple(dict.fromkeys(t for (t,) in con.execute(texts, (name,)))) for name in names}
    return Conflicts(count(con, f"conflicts{suffix}"), shown)
