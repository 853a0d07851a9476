"""What a training learns of its photometry: the softening of asinh magnitudes, and the units of the fluxes.

Both become part of the specification that the model keeps, so that its magnitudes are the same in every catalogue.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from catalogs.catalog import Catalog
from catalogs.photometry import unit_factor
from flows.config import Specification
from flows.features import training_reader
from flows.trial import first_rows

__all__ = ["with_learned_photometry"]


def with_learned_photometry(
    specification: Specification, catalogs: Sequence[Catalog], *, limit: int | None = None
) -> Specification:
    """Return the specification with every softening and unit stated.

    A softening is the median error of the rows inside `where`, of the held-out ones too: it sets the scale of a
    feature, and knows no class.
    """
    if not specification.photometry:
        return specification
    general = training_reader(specification)
    errors: dict[str, list[np.ndarray]] = {}
    units: dict[str, str] = {}
    for catalog in catalogs:
        general.check(catalog)
        reader = general.of(catalog)
        for name, unit in reader.derived.units.items():
            units.setdefault(name, unit)
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
                # In the first catalogue's unit: a median of errors in two units would mean nothing.
                factor = unit_factor(reader.derived.units[name], units[name])
                errors.setdefault(name, []).append(factor * reader.derived.sigma(name, values))
    bands = {
        name: band.model_copy(
            update={"unit": units.get(name, band.unit)}
            | (
                {"softening": general.derived.stated(units).learned(name, np.concatenate(errors[name]))}
                if name in errors
                else {}
            )
        )
        for name, band in specification.photometry.items()
    }
    return specification.model_copy(update={"photometry": bands})
