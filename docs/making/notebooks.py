"""Run the notebooks of `docs/notebooks`, and fail where a cell fails; nothing is written into them.

python docs/making/notebooks.py [PART OF A NAME ...]
"""

from __future__ import annotations

__all__ = ["main"]

import sys
import time

import nbformat
from links import DOCS
from nbclient import NotebookClient
from nbclient.exceptions import CellExecutionError

LONGEST_CELL = 900
"""Seconds that a cell may take."""


def main(wanted: list[str]) -> int:
    """Run the notebooks whose names contain one of the words, or all; return 1 if a cell failed."""
    failed = False
    for path in sorted((DOCS / "notebooks").glob("*.ipynb")):
        if wanted and not any(word in path.stem for word in wanted):
            continue
        start = time.perf_counter()
        notebook = nbformat.read(path, as_version=4)
        try:
            NotebookClient(
                notebook, timeout=LONGEST_CELL, resources={"metadata": {"path": path.parent}}
            ).execute()
        except CellExecutionError as error:
            failed = True
            print(f"{path.name}: {error}")
        else:
            print(f"{path.name}: ran in {time.perf_counter() - start:.0f} s")
    return int(failed)


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
