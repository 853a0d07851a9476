"""Files that are still being written: waited for a while, then left for the next run.

A file counts as settled once nothing has been written to it for some seconds, by its own time or, where clocks
differ, by our watching.  A copy that stalls for longer is noticed because it does not open.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

QUIET = 5.0
"""Seconds without a change after which a file counts as whole."""
PATIENCE = 30.0
"""Seconds that a run waits for files to settle."""
BETWEEN_LOOKS = 0.2


@dataclass(frozen=True)
class _Look:
    """What a file looked like, and when (by a clock that is never set) it was first seen so."""

    size: int
    mtime_ns: int
    since: float

    def quiet_for(self) -> float:
        """Return for how many seconds nothing was written, as far as is known."""
        by_its_time = time.time() - self.mtime_ns / 1e9
        return max(by_its_time, time.monotonic() - self.since)


def still_written(
    files: Sequence[Path], *, quiet: float = QUIET, patience: float = PATIENCE
) -> dict[Path, str]:
    """Return the files that somebody is still writing to, and what is said of each; waits for them before.

    Files that go away while they are waited for do not count.
    """
    looks: dict[Path, _Look] = {}
    for file in files:
        _look(file, looks)
    end = time.monotonic() + max(patience, quiet)
    while True:
        writing = [file for file, look in looks.items() if look.quiet_for() < quiet]
        if not writing or time.monotonic() >= end:
            return dict.fromkeys(
                writing, f"it changed less than {quiet:g} s ago, so it is left for the next run"
            )
        time.sleep(min(BETWEEN_LOOKS, quiet))
        for file in writing:
            _look(file, looks)


def _look(file: Path, looks: dict[Path, _Look]) -> None:
    try:
        seen = file.stat()
    except FileNotFoundError:
        looks.pop(file, None)
        return
    known = looks.get(file)
    if known is None or (known.size, known.mtime_ns) != (seen.st_size, seen.st_mtime_ns):
        looks[file] = _Look(seen.st_size, seen.st_mtime_ns, time.monotonic())
