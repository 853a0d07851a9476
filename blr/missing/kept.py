"""What depends on a pattern of features alone, kept from batch to batch: a catalogue has the same ones all over."""

from __future__ import annotations

__all__ = ["kept"]

from collections.abc import Callable
from typing import Any, TypeVar

from numpy.typing import NDArray

T = TypeVar("T")

_MOST = 512  # patterns: more are rare, and their matrices would fill the memory where features are many


def kept(found: dict[bytes, T], pattern: NDArray[Any], make: Callable[[], T]) -> T:
    """Return what `make` gives for a pattern, or gave before.

    `found` holds it by the pattern's bytes, and starts anew when it is full.
    """
    key = pattern.tobytes()
    known = found.get(key)
    if known is None:
        known = make()
        if len(found) >= _MOST:
            found.clear()
        found[key] = known
    return known
