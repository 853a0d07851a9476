"""Which folders a run may use: none are forbidden to a user's own command, but a server's form is open to others.

Where `BLR_ROOTS` names folders (separated as in PATH), every path that a parameter or a specification names, links
followed, has to lie in one of them.  A worker sets it; see docs/reprocessing.md.
"""

from __future__ import annotations

import os
from pathlib import Path

from flows.errors import UsageError

__all__ = ["ROOTS", "check_inside"]

ROOTS = "BLR_ROOTS"


def check_inside(path: Path, *, key: str) -> Path:
    """Return the path; UsageError where it leads out of the configured roots.  `key` says who named it."""
    roots = _roots()
    if roots and not any(path.resolve().is_relative_to(root) for root in roots):
        raise UsageError(
            f"{key}: got '{path}', which leads to {path.resolve()}, expected a path inside "
            f"{' or '.join(map(str, roots))}: this worker may use no other folder ({ROOTS}); move the files there, "
            "or have the folder added"
        )
    return path


def _roots() -> list[Path]:
    return [Path(root).resolve() for root in os.environ.get(ROOTS, "").split(os.pathsep) if root]
