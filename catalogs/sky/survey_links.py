"""Pages of sky surveys that show a position.  Nothing is loaded: these are links for a person to follow."""

from __future__ import annotations

import math
from typing import Final
from urllib.parse import urlencode

__all__ = ["survey_links"]

ZOOM: Final = 15
FIELD: Final = 0.05
"""Width of the field that Aladin Lite shows, in degrees."""


def survey_links(ra: float, dec: float) -> dict[str, str]:
    """Return the pages of sky surveys that show a position, in degrees, by their names; none where it is unknown."""
    if not (math.isfinite(ra) and math.isfinite(dec)):
        return {}
    layer = urlencode({"ra": f"{ra:.6f}", "dec": f"{dec:.6f}", "layer": "ls-dr10", "zoom": ZOOM})
    target = urlencode({"target": f"{ra:.6f} {dec:+.6f}", "fov": FIELD})
    return {
        "Legacy Survey": f"https://www.legacysurvey.org/viewer?{layer}",
        "Aladin Lite": f"https://aladin.cds.unistra.fr/AladinLite/?{target}",
    }
