"""NumPy arrays as .npy files, apart from `atomic`: who writes no arrays need not import NumPy, which is slow."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from catalogs.files.atomic import atomic_path


def atomic_write_array(final: Path, array: np.ndarray[Any, Any]) -> None:
    """Write an array, whole or not at all."""
    # To a file that is open for writing only, NumPy writes so that the cause of an error is lost: "7664 written".
    with atomic_path(final) as temporary, temporary.open("w+b") as stream:
        np.save(stream, array, allow_pickle=False)
