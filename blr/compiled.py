"""The inner loops in C, where a compiler could build them: see `blr/loops/loops.c`.

Each has a twin in NumPy, at the place that calls it, and equals it to rounding.  Where the loops were not built, or the
environment variable BLR_COMPILED is 0, the twins do the work.
"""

from __future__ import annotations

import os

__all__ = ["MOST_OUTPUTS", "loops"]

MOST_OUTPUTS = 16
"""Classes or outputs that the loops take at most; the twins take any number."""

try:
    import blr._loops as _loops  # noqa: PLR0402  not a name of the package
except ImportError:  # no compiler, or one without vectors
    loops = None
else:
    loops = None if os.environ.get("BLR_COMPILED") == "0" else _loops
