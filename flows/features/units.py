"""Units of a catalogue against those of the first one of a training: converted where unambiguous, else refused.

A column of which one side states no unit is taken as it is, with a remark; magnitudes are in mag without one.
Fluxes of [photometry] are converted there, by their zero points.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from catalogs.catalog.catalog import Catalog, ColumnMetadata
from catalogs.errors import CatalogError
from catalogs.expressions.expression import expression_name
from catalogs.sky.photometry import ZERO_POINT, unit_factor
from flows.features.columns import ColumnMapping, flux_unit
from flows.features.reader import FeatureReader

PLAIN = dict.fromkeys(("degrees", "degree"), "deg") | dict.fromkeys(("radians", "radian"), "rad")
PLAIN |= dict.fromkeys(("mags", "magnitude", "magnitudes"), "mag") | {"arcmins": "arcmin"}
PLAIN |= dict.fromkeys(("arcsecs", "seconds of arc"), "arcsec")


def converted(
    reader: FeatureReader,
    catalog: Catalog,
    *,
    trained: Mapping[str, ColumnMetadata],
    stated: Mapping[str, str] | None,
) -> FeatureReader:
    """Return the reader for one catalogue, columns in units other than the training's converted as they are read.

    `trained` and `stated` as of `conversions`.
    """
    reader = replace(reader, stated=stated)
    reader.check(catalog)
    scales = conversions(
        _with_magnitudes(trained, reader),
        catalog,
        mapping=reader.mapping,
        stated=stated,
        fluxes=reader.derived.fluxes,
    )
    derived = reader.of(catalog).derived
    # A limit of the model is in the training's unit, and is converted with its column; the target's own is not.
    limits = {name: limit / scales.get(name, 1.0) for name, limit in derived.limits.items()}
    return replace(reader, scales=scales, derived=replace(derived, limits={**limits, **reader.limits}))


def unchecked(
    reader: FeatureReader, catalog: Catalog, trained: Mapping[str, ColumnMetadata]
) -> tuple[str, ...]:
    """Return the columns, in words, of which one side alone states a unit, so that nothing could be compared.

    A catalogue that states no unit at all, as CSV files do, gets no remark: nobody expects units there.
    """
    here = {c.name: c.unit for c in catalog.columns}
    mapping = reader.mapping
    stated_names = reader.derived.fluxes.union(reader.stated or (), mapping.expressions)
    unstated = []
    for name, column in _with_magnitudes(trained, reader).items():
        if name in stated_names or name not in reader.names:
            continue
        ours, unit = column.unit, mapping.unit(name, here)
        if unit and not ours:
            unstated.append(f"{mapping.said(name)} is in '{unit}', but had no unit in training")
        elif ours and not unit and any(here.values()):
            unstated.append(f"{mapping.said(name)} has no unit, but was in '{ours}' in training")
    return tuple(unstated)


def _with_magnitudes(
    trained: Mapping[str, ColumnMetadata], reader: FeatureReader
) -> dict[str, ColumnMetadata]:
    """Return what the training's catalogue said of columns, with the unit that a magnitude has where it stated none."""
    known = {n for n, c in trained.items() if (c.ucd or "").lower().startswith("phot.mag")}
    known |= reader.derived.magnitudes
    return {n: replace(c, unit="mag") if n in known and not c.unit else c for n, c in trained.items()}


def in_units_of_the_first(reader: FeatureReader, catalog: Catalog, first: Catalog) -> FeatureReader:
    """Return the reader for one of several labelled catalogues; positions and votes stay as they are."""
    if catalog is first:
        return reader.of(catalog)
    named = [name for name in reader.names if name not in reader.also]
    trained = {name: ColumnMetadata.of(first.column(name)) for name in named}
    return converted(reader, catalog, trained=trained, stated=None)


def conversions(
    trained: Mapping[str, ColumnMetadata],
    catalog: Catalog,
    *,
    mapping: ColumnMapping,
    stated: Mapping[str, str] | None,
    fluxes: frozenset[str] = frozenset(),
) -> dict[str, float]:
    """Return the factor of each column that has to be converted, by our names.

    `trained` says of each column what the training's catalogue did, `mapping` what stands for them here, `stated`
    the units that the specification gives where this catalogue says none, or the wrong one; None of a labelled
    catalogue, of which it gives none.
    """
    here = {c.name: c.unit for c in catalog.columns}
    factors = {}
    for name, column in trained.items():
        if name in fluxes or not here.keys() >= {*mapping.theirs(name)}:
            continue
        unit = (stated or {}).get(name) or mapping.unit(name, here)
        factor = _factor(column.unit, unit)
        if factor is None:
            raise CatalogError(
                f"{catalog.path}: got {mapping.said(name)} in '{unit}', expected '{column.unit}', in which "
                + _remedy(name, str(column.unit), mapping.read([name]), unit or "", training=stated is None)
            )
        if factor != 1:
            factors[name] = factor
    return factors


def _remedy(name: str, trained: str, theirs: tuple[str, ...], unit: str, *, training: bool) -> str:
    """Return what to do about a column whose unit cannot be converted, and why it has to be done."""
    if training:
        return "the first labelled catalogue has it; convert it, or correct its unit"
    state = f'the model was trained; if they are the same, state it: units = {{ {name} = "{trained}" }} under [target]'
    flux, old_flux = flux_unit(unit), flux_unit(trained)
    column = expression_name(theirs[0]) if len(theirs) == 1 else "..."
    if flux is not None and PLAIN.get(trained.lower(), trained).startswith("mag"):
        value = f"{ZERO_POINT[flux]} - 2.5 * log10({column})"
    elif old_flux is not None and PLAIN.get(unit.lower(), unit).startswith("mag"):
        value = f"10 ** (0.4 * ({ZERO_POINT[old_flux]} - {column}))"
    else:
        return f"{state}; else convert it, or compute it from the target's columns under [target.expressions]"
    return f"{state}; if they are AB magnitudes, convert them: expressions = {{ {name} = '{value}' }} under [target]"


def _factor(trained: str | None, here: str | None) -> float | None:
    """Return what brings a value here to the unit of the training; None where nothing does."""
    ours, theirs = ((PLAIN.get(t.strip().lower(), t.strip()) if t else "") for t in (trained, here))
    if not ours or not theirs or ours == theirs:
        return 1.0
    flux, other = flux_unit(ours), flux_unit(theirs)
    if flux is not None and other is not None:
        return unit_factor(other, flux) if flux != other else 1.0
    import astropy  # noqa: PLC0415 -- slow to import, and most units are spelt alike

    old, new = (astropy.units.Unit(t, parse_strict="silent") for t in (ours, theirs))
    try:
        return float(new.to(old))
    except (astropy.units.UnitsError, TypeError, AttributeError):
        # Only after astropy, to which mJy and MJy are two.
        return 1.0 if ours.lower() == theirs.lower() else None
