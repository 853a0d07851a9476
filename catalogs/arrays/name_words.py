"""The words that a column's name is made of, however a survey joins them: `raMean`, `PLUG_RA`, `R.A. (deg)`."""

from __future__ import annotations

import re

__all__ = ["name_words"]

JOINT = re.compile(r"[\W_]+|(?<=[a-z])(?=[A-Z])")


def name_words(name: str) -> list[str]:
    """Return the words of a name, in small letters: 'gMeanPSFMag' is g, mean, psfmag."""
    return [word.lower() for word in JOINT.split(name) if word]
