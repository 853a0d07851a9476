"""Who takes part in a Prefect home: whoever is alone in it knows that all runs begun before are at an end.

The lock is the system's and shared; it goes with its process, however that ends.
"""

from __future__ import annotations

import fcntl
import os
from datetime import UTC, datetime
from functools import cache
from pathlib import Path

__all__ = ["share"]

FILE = "at-work"


@cache
def share(home: Path) -> datetime | None:
    """Take part in a home until this process ends; return the time of it, if nobody else took part then."""
    try:
        # Never closed: that would let go.
        held = os.open(home / FILE, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
        alone_at = datetime.now(UTC) if _alone(held) else None
        fcntl.flock(held, fcntl.LOCK_SH)  # waits for those only who find out whether they are alone
    except OSError:  # there are no locks here, or no writing: then nothing is known
        return None
    return alone_at


def _alone(held: int) -> bool:
    try:
        fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
