"""Ratios of the fluxes of emission lines: what ionises the gas, as in the diagrams of Baldwin, Phillips and Terlevich.

[N II]/Halpha, [O III]/Hbeta, [S II]/Halpha and [O I]/Halpha: the lines of each are neighbours in wavelength, so that
dust in the galaxy hardly changes them (1981, doi:10.1086/130766; Veilleux and Osterbrock 1987, doi:10.1086/191166).
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from catalogs.catalog.catalog import Column, Element
from catalogs.column_names import column_names
from catalogs.profile.quality import about_a_flux, about_an_error
from flows.draft._expressions import quoted

__all__ = ["line_ratios"]

RATIOS = (
    (("nii",), "h_alpha"),
    (("oiii",), "h_beta"),
    (("sii_1", "sii_2"), "h_alpha"),
    (("sii",), "h_alpha"),
    (("oi",), "h_alpha"),
)
"""Lines whose fluxes are added, and the line that they are divided by."""
MOSTLY = 0.5
"""Share of positive values from which the logarithm of a flux is worth taking."""


def line_ratios(
    columns: Mapping[str, Column], names: Sequence[str], rows: Mapping[str, NDArray[np.float64]]
) -> dict[str, tuple[str, list[str]]]:
    """Return the ratios of the lines among `names`, each an expression with the columns above its bar.

    The values (n,) of all are mostly positive, and their units are the same.
    """
    lines = _lines(columns, names)
    ratios = {}
    for above, below in RATIOS:
        used = [lines[line] for line in above if line in lines]
        if len(used) < len(above) or below not in lines:
            continue
        every = [*used, lines[below]]
        positive = all(np.mean(rows[n][np.isfinite(rows[n])] > 0) > MOSTLY for n in every)
        if positive and len({columns[n].unit for n in every}) == 1:
            total = " + ".join(map(quoted, used))
            text = f"log10({f'({total})' if len(used) > 1 else total} / {quoted(lines[below])})"
            ratios[f"log_{above[0].removesuffix('_1')}_{below}"] = (text, used)
    return ratios


def _lines(columns: Mapping[str, Column], names: Sequence[str]) -> dict[str, str]:
    """Return the column of each line's flux, the first one of several."""
    found: dict[str, str] = {}
    for name in names:
        column = columns[name]
        plain = re.sub(r"flux|[^a-z0-9]", "", name.lower())
        if isinstance(name, Element) or about_an_error(column) or not about_a_flux(column):
            continue
        for line, expressions in column_names().lines.items():
            if any(re.fullmatch(e, plain, re.IGNORECASE) for e in expressions):
                found.setdefault(line, name)
    return found
