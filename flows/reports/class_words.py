"""How a sentence names a class: "class 5", where the name alone would be read as a number."""

from __future__ import annotations

__all__ = ["class_words"]


def class_words(name: str) -> str:
    """Return the name of a class for a sentence that has numbers too."""
    return name if any(c.isalpha() for c in name) else f"class {name}"
