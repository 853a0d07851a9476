"""The softening of asinh magnitudes and the units of fluxes, as a training finds them in its catalogues.

Both are added to the specification that the model stores, so that its magnitudes are the same in every catalogue.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import pyarrow as pa

from catalogs.catalog.catalog import Catalog
from catalogs.sky.photometry import ZERO_POINT, softening_of, unit_factor
from flows.errors import SpecificationError
from flows.features.reader import training_reader
from flows.features.units import in_units_of_the_first
from flows.inputs.opening import first_rows
from flows.specification.specification import Specification

__all__ = ["with_learned_photometry"]


def with_learned_photometry(
    specification: Specification, catalogs: Sequence[Catalog], *, limit: int | None = None
) -> Specification:
    """Return the specification with every softening and unit stated.

    A softening is the median flux error of the rows that fulfil `where`.  Held-out rows count too: the softening sets
    the scale of a feature, and does not depend on any class.
    """
    if not specification.photometry:
        return specification
    general = training_reader(specification)
    errors: dict[str, list[np.ndarray]] = {}
    readers = []
    for catalog in catalogs:
        general.check(catalog)
        readers.append(in_units_of_the_first(general, catalog, catalogs[0]))
    units = readers[0].derived.units
    _check_stated(specification, [reader.derived.units for reader in readers])
    for catalog, reader in zip(catalogs, readers, strict=True):
        wanted = {
            name
            for name, band in specification.photometry.items()
            if band.flux is not None and band.scale == "asinh" and band.softening is None
        }
        if not wanted:
            continue
        for batch in first_rows(catalog, reader.read, limit if limit is not None else max(1, catalog.n_rows)):
            chosen = batch.filter(pa.array(reader.select(batch)))
            values = reader.values(chosen, reader.names)
            for name in wanted:
                # All errors are converted to the first catalogue's unit, so that their median has a meaning.
                factor = unit_factor(reader.derived.units[name], units[name])
                errors.setdefault(name, []).append(factor * reader.derived.sigma(name, values))
    bands = {
        name: band.model_copy(
            update={"unit": units.get(name, band.unit)}
            | (
                {"softening": softening_of(np.concatenate(errors[name]), ZERO_POINT[units[name]])}
                if name in errors
                else {}
            )
        )
        for name, band in specification.photometry.items()
    }
    return specification.model_copy(update={"photometry": bands})


def _check_stated(specification: Specification, by_catalogue: Sequence[Mapping[str, str]]) -> None:
    """Raise SpecificationError where the stated unit of a flux differs from that of every catalogue."""
    for name, band in specification.photometry.items():
        said = [units[name] for units in by_catalogue if name in units]
        if band.unit is not None and said and band.unit not in said:
            factor = unit_factor(band.unit, said[0])
            raise SpecificationError(
                f"photometry.{name}.unit: got '{band.unit}', but the catalogue says that the flux is in "
                f"'{said[0]}'; remove unit, or, if the catalogue is wrong, scale the flux: flux = "
                f'"{factor:g} * ({band.flux})", and its error likewise'
            )
