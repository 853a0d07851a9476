"""Units of the fluxes of [photometry], and of their errors: what the catalogue says, or who states it.

An error may be in another unit than its flux: it is brought to the flux's.  One of which nobody can tell the unit is
taken to be in the flux's.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from catalogs.catalog.catalog import Catalog
from catalogs.errors import CatalogError
from catalogs.expressions.expression import Expression
from catalogs.sky.photometry import ZERO_POINT, unit_factor
from flows.specification.catalog import Band

__all__ = ["error_scale", "flux_unit", "unit_of_band", "written_unit"]

FLUX_UNITS: Final = {
    "nanomaggy": "nanomaggy",
    "nanomaggies": "nanomaggy",
    "nmgy": "nanomaggy",
    "nmaggy": "nanomaggy",
    "njy": "nJy",
    "nanojy": "nJy",
    "ujy": "uJy",
    "\u00b5jy": "uJy",  # the micro sign
    "\u03bcjy": "uJy",  # the Greek letter
    "microjy": "uJy",
    "microjansky": "uJy",
    "nanojansky": "nJy",
    "mjy": "mJy",
    "millijy": "mJy",
    "jy": "Jy",
    "janskys": "Jy",
}

Units = Mapping[str, str | None]
"""Units of columns, by our names."""


def flux_unit(written: str | None) -> str | None:
    """Return the unit of flux that a catalogue writes, or None for an unknown one."""
    text = (written or "").strip()
    # A capital M is mega: MJy is a unit of surface brightness maps, a thousand million mJy.
    return None if text.startswith("MJ") else FLUX_UNITS.get(text.lower())


def unit_of_band(
    name: str, band: Band, flux: Expression, units: Units, catalog: Catalog, *, training: bool
) -> str:
    """Return the unit of a band's flux from its columns' `units`; CatalogError where they do not say it.

    What the catalogue says of itself comes first: a target in nJy is read as nJy.  Words that nobody can read are
    overruled by who states the unit, for the labelled catalogue under [photometry], for a target under [target].
    """
    written = written_unit(flux, units)
    said = flux_unit(written)
    if said is not None:
        return said
    if band.unit is not None and (training or not written):
        return str(band.unit)
    expected = band.unit or f"one of {', '.join(ZERO_POINT)}"
    column = min(flux.names, default=str(band.flux))
    remedy = (
        f'unit = "nanomaggy" under [photometry.{name}]'
        if training
        else f'units = {{ "{column}" = "{band.unit}" }} under [target]'
    )
    raise CatalogError(
        f"photometry.{name}: got a flux in '{written or 'no unit'}' in {catalog.path}, expected {expected}; "
        f"state it: {remedy}, or convert the column"
    )


def error_scale(name: str, text: str, error: Expression, units: Units, flux: str, written: Units) -> float:
    """Return what brings the one-sigma error of a band, or its inverse variance's, to the unit of its flux.

    `text` is the key of the error, `written` are the units of the flux's own columns.
    """
    unit_text = written_unit(error, units)
    if not unit_text or unit_text in written.values():
        return 1.0
    error_unit = _root(unit_text) if text == "inverse_variance" else unit_text
    known = flux_unit(error_unit)
    if known is not None:
        return unit_factor(known, flux)
    import astropy  # noqa: PLC0415 -- slow to import, and most units are known

    if isinstance(astropy.units.Unit(unit_text, parse_strict="silent"), astropy.units.UnrecognizedUnit):
        return 1.0
    wanted = f"{flux}^-2" if text == "inverse_variance" else flux
    raise CatalogError(
        f"photometry.{name}.{text}: got '{error.text}' in '{unit_text}', expected {wanted}, as its flux has; "
        "name the column with the error of this flux, or correct its unit"
    )


def _root(unit_text: str) -> str | None:
    """Return the unit whose inverse square is written; or None."""
    import astropy  # noqa: PLC0415 -- as above

    unit = astropy.units.Unit(unit_text, parse_strict="silent")
    try:
        return str((unit**-0.5).to_string())
    except (ValueError, astropy.units.UnitsError):
        return None


def written_unit(expression: Expression, units: Units) -> str | None:
    """Return the unit of an expression's values from its columns' `units`: of one column as the catalogue writes it."""
    own = {name: units.get(name) for name in expression.names}
    if expression.is_column:
        return next(iter(own.values()))
    return expression.unit({name: flux_unit(text) or text for name, text in own.items()})
