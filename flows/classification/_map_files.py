"""A map as files: HEALPix FITS and a HATS table, one row a pixel."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pyarrow as pa

from blr.census.fraction_map import Fractions
from catalogs.fits.healpix import HealpixColumn, centres, write_healpix
from catalogs.hats.create import write_hats
from flows.classification._map_sums import Survey
from flows.classification.map_results import What

__all__ = ["write_map"]

SKY = 4 * np.pi * np.degrees(1) ** 2
"""The whole sky, in square degrees."""


def write_map(
    fits: Path,
    hats: Path,
    survey: Survey,
    cells: Fractions,
    *,
    what: What,
    class_name: str,
    order: int,
    made_by: Mapping[str, str],
) -> None:
    """Write the pixels of a survey with their fractions; `made_by` is written into both."""
    columns = _columns(survey, cells, what, order)
    history = [
        f"blr map of {what}, class {class_name}",
        *(f"blr {key} = {said}" for key, said in made_by.items()),
    ]
    write_healpix(fits, survey.pixels, columns, order=order, history=history)
    ra, dec = centres(survey.pixels, order)
    fields = [pa.field(name, pa.float64(), metadata={"unit": "deg"}) for name in ("ra", "dec")]
    arrays = [pa.array(ra), pa.array(dec)]
    for column in columns:
        array = pa.array(column.values)
        said = {"description": column.description} | ({"unit": column.unit} if column.unit else {})
        fields.append(pa.field(column.name.lower(), array.type, metadata=said))
        arrays.append(array)
    extra = {**{f"blr.{key}": said for key, said in made_by.items()}, "blr.map": f"{what} of {class_name}"}
    write_hats(hats, pa.table(arrays, schema=pa.schema(fields)), survey.pixels, order=order, extra=extra)


def _columns(survey: Survey, cells: Fractions, what: What, order: int) -> list[HealpixColumn]:
    trial, success = survey.labelled.counts(what)
    place = np.searchsorted(survey.pixels, survey.labelled.rows.pixel)
    n, k = (np.bincount(place[x], minlength=len(survey.pixels)).astype(np.int32) for x in (trial, success))
    area = SKY / (12 * 4**order)
    return [
        HealpixColumn("DENSITY", cells.whole / area, "deg-2", "objects among which the fraction is counted"),
        HealpixColumn("EXPECTED", cells.expected, "", "fraction by the classifier"),
        HealpixColumn("FRACTION", cells.fraction, "", "fraction by the labels"),
        HealpixColumn("LOW", cells.low, "", "lower end of its 95 % interval"),
        HealpixColumn("HIGH", cells.high, "", "upper end of its 95 % interval"),
        HealpixColumn("N_LABELLED", n, "", "labelled objects among these"),
        HealpixColumn("K_LABELLED", k, "", "labelled objects that count for the fraction"),
    ]
