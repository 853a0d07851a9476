"""Memory that arrays took goes back to the system when they are freed."""

from __future__ import annotations

import json
import os
import platform
import subprocess
import sys

import pytest

HOLES = """
import json, sys
import numpy as np
import psutil
if sys.argv[1] == "returned":
    from flows.training._rows import return_freed_arrays
    return_freed_arrays()
np.ones(4_000_000)  # 32 MB, freed at once: glibc keeps whatever is smaller from now on
arrays = [np.ones(1_250_000) for _ in range(20)]  # 10 MB each
full = psutil.Process().memory_info().rss
del arrays[::2]
print(json.dumps((full - psutil.Process().memory_info().rss) / 1e6))
"""


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="the bound is glibc's")
def test_what_lies_between_other_arrays_is_given_back() -> None:
    def freed_mb(how: str) -> float:
        plain = {name: text for name, text in os.environ.items() if not name.startswith("MALLOC_")}
        command = [sys.executable, "-c", HOLES, how]
        done = subprocess.run(command, env=plain, capture_output=True, text=True, check=True)
        return float(json.loads(done.stdout))

    assert freed_mb("kept") < 20
    assert freed_mb("returned") > 90
