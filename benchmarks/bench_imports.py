"""The start of `import blr` and of quick commands, beside `import numpy`: seconds, and ratios to NumPy's own.

Each command is a new process; Python's own start is taken off.  The commands take turns, so that other programs' load
falls on all alike, and ratios are of processor time.  `bench_imports.py [STORE [ROUNDS]]`; STORE is a folder of models
to list, by default an empty one.
"""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROUNDS = 9
BLR = str(Path(sys.executable).with_name("blr"))


def seconds(command: list[str], folder: str) -> tuple[float, float]:
    """Return the time on the wall and of the processor that a command takes."""
    before, began = os.times(), time.perf_counter()
    subprocess.run(command, cwd=folder, check=True, capture_output=True)  # noqa: S603  our own
    after = os.times()
    spent = after.children_user - before.children_user + after.children_system - before.children_system
    return time.perf_counter() - began, spent


def main(store: str | None, rounds: int) -> None:
    """Print a table: medians over the rounds."""
    with tempfile.TemporaryDirectory() as folder:
        commands = {
            "python -c pass": [sys.executable, "-c", "pass"],
            "import numpy": [sys.executable, "-c", "import numpy"],
            "import blr": [sys.executable, "-c", "import blr"],
            "import blr; blr.fit": [sys.executable, "-c", "import blr; blr.fit"],
            "import catalogs": [sys.executable, "-c", "import catalogs"],
            "import flows": [sys.executable, "-c", "import flows"],
            "blr --help": [BLR, "--help"],
            "blr models list": [BLR, "models", "list", "--store", str(Path(store or folder).resolve())],
        }
        taken: dict[str, list[tuple[float, float]]] = {what: [] for what in commands}
        for i in range(rounds + 1):
            for what, command in commands.items():
                one = seconds(command, folder)
                if i:  # the first round reads the files from the disk
                    taken[what].append(one)
    wall, spent = (
        {what: statistics.median(t[i] for t in times) for what, times in taken.items()} for i in (0, 1)
    )
    start = spent["python -c pass"]
    numpy = spent["import numpy"] - start
    print("| process | s | processor s | the latter less Python's start, / NumPy's |")
    print("|---|---|---|---|")
    for what in commands:
        print(f"| `{what}` | {wall[what]:.3f} | {spent[what]:.3f} | {(spent[what] - start) / numpy:.2f} |")


if __name__ == "__main__":
    main(
        sys.argv[1] if len(sys.argv) > 1 else None,
        int(sys.argv[2]) if len(sys.argv) > 2 else ROUNDS,
    )
