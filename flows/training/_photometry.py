"""The softening of asinh magnitudes and the units of fluxes, as a training finds them in its catalogues.

Both are added to the specification that the model stores, so that its magnitudes are the same in every catalogue.
Shapes: n rows.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from catalogs.catalog.catalog import Catalog
from catalogs.sky.photometry import ZERO_POINT, softening_of, unit_factor
from flows.errors import SpecificationError
from flows.features.reader import FeatureReader, training_reader
from flows.features.units import in_units_of_the_first
from flows.inputs.opening import first_rows, thinned
from flows.inputs.pieces import Piece, Workers
from flows.specification.specification import Specification

__all__ = ["with_learned_photometry"]

Floats = NDArray[np.float64]

MOST_ROWS = 1_000_000
"""Most rows whose flux errors are held; of more rows, those of every n-th one are."""


def with_learned_photometry(
    specification: Specification,
    catalogs: Sequence[Catalog],
    *,
    limit: int | None = None,
    workers: Workers | None = None,
) -> Specification:
    """Return the specification with every softening and unit stated; `workers` read the flux errors of whole files.

    A softening is the median flux error of the rows that fulfil `where`: of every n-th row, if there are more than a
    million.  Held-out rows count too: the softening sets the scale of a feature, and does not depend on any class.
    """
    if not specification.photometry:
        return specification
    general = training_reader(specification)
    for catalog in catalogs:
        general.check(catalog)
    readers = [in_units_of_the_first(general, catalog, catalogs[0]) for catalog in catalogs]
    units = readers[0].derived.units
    _check_stated(specification, [reader.derived.units for reader in readers])
    rows = [catalog.n_rows if limit is None else min(limit, catalog.n_rows) for catalog in catalogs]
    learned: dict[str, dict[str, float]] = {}
    wanted = _without_softening(specification)
    if wanted and any(rows):
        work = FluxErrors.of(readers, wanted, step=-(-sum(rows) // MOST_ROWS))
        if workers is None:
            parts = [*_read_here(work, catalogs, rows)]
        else:
            parts = [errors for _, errors in workers.in_order(work)]
        for name in wanted:
            errors = np.concatenate([part[name] for part in parts])
            learned[name] = {"softening": softening_of(errors, ZERO_POINT[units[name]])}
    bands = {
        name: band.model_copy(update={"unit": units.get(name, band.unit), **learned.get(name, {})})
        for name, band in specification.photometry.items()
    }
    return specification.model_copy(update={"photometry": bands})


def _without_softening(specification: Specification) -> tuple[str, ...]:
    """Return the bands whose softening has to be learned."""
    return tuple(
        name
        for name, band in specification.photometry.items()
        if band.flux is not None and band.scale == "asinh" and band.softening is None
    )


@dataclass(frozen=True, eq=False)
class FluxErrors:
    """Reads the flux errors of bands, of every `step`-th row; `readers` are those of each catalogue.

    All are in the first catalogue's unit, so that their median has a meaning: `factors` brings each catalogue's to it.
    """

    readers: tuple[FeatureReader, ...]
    factors: tuple[Mapping[str, float], ...]
    bands: tuple[str, ...]
    step: int

    @classmethod
    def of(cls, readers: Sequence[FeatureReader], bands: tuple[str, ...], *, step: int) -> FluxErrors:
        """Return the work for catalogues by their readers, of which it needs the bands and the condition alone."""
        own = (replace(r, features={}, errors={}, also=dict.fromkeys(bands, "photometry")) for r in readers)
        first = readers[0].derived.units
        factors = ({n: unit_factor(r.derived.units[n], first[n]) for n in bands} for r in readers)
        return cls(tuple(own), tuple(factors), bands, step)

    def __call__(self, piece: Piece) -> dict[str, Floats]:
        """Return the errors (n,) of each band in a piece."""
        batches = piece.partition.batches(self.readers[piece.catalog].read)
        return self.among(batches, piece.catalog, start=piece.first)

    def among(self, batches: Iterable[pa.RecordBatch], catalog: int, *, start: int) -> dict[str, Floats]:
        """Return the errors (n,) of each band in batches of a catalogue; `start` is the number of their first row."""
        reader, found = self.readers[catalog], {name: [np.empty(0)] for name in self.bands}
        for batch in thinned(batches, self.step, start=start):
            chosen = batch.filter(pa.array(reader.select(batch)))
            values = reader.values(chosen, reader.names)
            for name in self.bands:
                found[name].append(self.factors[catalog][name] * reader.derived.sigma(name, values))
        return {name: np.concatenate(arrays) for name, arrays in found.items()}


def _read_here(
    work: FluxErrors, catalogs: Sequence[Catalog], rows: Sequence[int]
) -> Iterator[dict[str, Floats]]:
    """Yield the errors of the first `rows` of each catalogue, read by this process."""
    start = 0
    for number, (catalog, n) in enumerate(zip(catalogs, rows, strict=True)):
        yield work.among(first_rows(catalog, work.readers[number].read, n), number, start=start)
        start += n


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
