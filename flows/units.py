"""Units of a catalogue against those of the first one of a training: converted where unambiguous, else refused.

A column of which either side states no unit is taken as it is, but for magnitudes, which are in mag.  Fluxes of
[photometry] are converted there, by their zero points.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from astropy import units

from catalogs.catalog import Catalog
from catalogs.errors import CatalogError
from catalogs.photometry import unit_factor
from flows.features import FeatureReader
from flows.flux_units import flux_unit

__all__ = ["conversions", "converted", "in_units_of_the_first"]

PLAIN = {
    "degrees": "deg",
    "degree": "deg",
    "radians": "rad",
    "radian": "rad",
    "mags": "mag",
    "magnitude": "mag",
}
PLAIN |= {"magnitudes": "mag", "arcsecs": "arcsec", "arcmins": "arcmin", "seconds of arc": "arcsec"}


def converted(
    reader: FeatureReader,
    catalog: Catalog,
    *,
    trained: Mapping[str, Mapping[str, Any]],
    stated: Mapping[str, str] | None,
) -> FeatureReader:
    """Return the reader for one catalogue, columns in units other than the training's converted as they are read.

    `trained` and `stated` as of `conversions`.
    """
    reader = replace(reader, stated=stated)
    reader.check(catalog)
    scales = conversions(
        {
            name: _in_magnitudes(said, magnitude=name in reader.derived.magnitudes)
            for name, said in trained.items()
        },
        catalog,
        columns=reader.columns,
        stated=stated,
        fluxes=reader.derived.fluxes,
    )
    derived = reader.of(catalog).derived
    # A limit is stated in the training's unit, and is converted with the column that it stands in.
    limits = {name: limit / scales.get(name, 1.0) for name, limit in derived.limits.items()}
    return replace(reader, scales=scales, derived=replace(derived, limits=limits))


def _in_magnitudes(said: Mapping[str, Any], *, magnitude: bool) -> Mapping[str, Any]:
    """Return what a catalogue says of a column, with the unit that a magnitude has where it states none."""
    magnitude = magnitude or (said.get("ucd") or "").lower().startswith("phot.mag")
    return {**said, "unit": "mag"} if magnitude and not said.get("unit") else said


def in_units_of_the_first(reader: FeatureReader, catalog: Catalog, first: Catalog) -> FeatureReader:
    """Return the reader for one of several labelled catalogues; positions and votes stay as they are."""
    if catalog is first:
        return reader.of(catalog)
    known = {name: first.column(name) for name in reader.names if name not in reader.also}
    trained = {name: {"unit": column.unit, "ucd": column.ucd} for name, column in known.items()}
    return converted(reader, catalog, trained=trained, stated=None)


def conversions(
    trained: Mapping[str, Mapping[str, Any]],
    catalog: Catalog,
    *,
    columns: Mapping[str, str],
    stated: Mapping[str, str] | None,
    fluxes: frozenset[str] = frozenset(),
) -> dict[str, float]:
    """Return the factor of each column that has to be converted, by our names.

    `trained` says of each column what the training's catalogue did, `columns` what they are called here, `stated`
    the units that the specification gives where this catalogue says none, or the wrong one; None of a labelled
    catalogue, of which it gives none.
    """
    here = {c.name: c.unit for c in catalog.columns}
    found = {}
    for name, said in trained.items():
        theirs = columns.get(name, name)
        if theirs not in here or name in fluxes:
            continue
        factor = _factor(said.get("unit"), (stated or {}).get(name) or here[theirs])
        if factor is None:
            raise CatalogError(_unlike(catalog, theirs, name, str(said["unit"]), training=stated is None))
        if factor != 1:
            found[name] = factor
    return found


def _unlike(catalog: Catalog, theirs: str, name: str, trained: str, *, training: bool) -> str:
    """Return what is wrong with a column whose unit cannot be converted."""
    got = f"{catalog.path}: got column '{theirs}' in '{catalog.column(theirs).unit}', expected '{trained}', in which "
    if training:
        return f"{got}the first labelled catalogue has it; convert it, or correct its unit"
    return (
        f"{got}the model was trained; convert it, or, if they are the same, state it: units = {{ {name} = "
        f'"{trained}" }} under [target]'
    )


def _factor(trained: str | None, here: str | None) -> float | None:
    """Return what brings a value here to the unit of the training; None where nothing does."""
    ours, theirs = ((PLAIN.get(t.strip().lower(), t.strip()) if t else "") for t in (trained, here))
    if not ours or not theirs or ours == theirs:
        return 1.0
    flux, other = flux_unit(ours), flux_unit(theirs)
    if flux is not None and other is not None:
        return unit_factor(other, flux) if flux != other else 1.0
    old, new = (units.Unit(t, parse_strict="silent") for t in (ours, theirs))
    try:
        return float(new.to(old))
    except (units.UnitsError, TypeError, AttributeError):
        # Only after astropy, to which mJy and MJy are two.
        return 1.0 if ours.lower() == theirs.lower() else None
