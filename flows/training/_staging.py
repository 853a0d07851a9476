"""What a training keeps in its staging folder: the rows, their filled features, and what was said of them."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from blr.gaussian import Gaussian
from blr.missing.moments import FeatureMoments
from flows.runs.manifest import write_json
from flows.specification.specification import Specification
from flows.specification.stored import specification_tree, stored_specification
from flows.training._candidates import CandidateData
from flows.training._rows import TrainingRows, read_rows, write_array
from flows.training._shift import with_density_weights_of_all
from flows.training._target_rows import read_shift

__all__ = [
    "StagedTraining",
    "filled_features",
    "read_described",
    "read_drafts",
    "write_described",
    "write_drafts",
]

Json = dict[str, Any]
Floats = NDArray[np.float64]

INGESTED = "ingested.json"


def filled_features(rows: TrainingRows) -> tuple[FeatureMoments, Floats]:
    """Return the moments of the training rows' features, and all features with the missing ones at their mean."""
    training, weight = rows.training, rows.weight
    moments = FeatureMoments.estimate(
        rows.X[training], rows.missing[training], weight=None if weight is None else weight[training]
    )
    return moments, moments.impute(rows.X, rows.missing)


def write_drafts(drafts: Sequence[Gaussian], folder: Path, index: int) -> None:
    """Write the drafts of a candidate's parts: a row of the mean (D,) above the precision (D, D) in each file."""
    for number, q in enumerate(drafts):
        write_array(np.vstack([q.mean, q.precision]), folder / f"draft-{index:03d}-{number}.npy")


def read_drafts(folder: Path, index: int) -> tuple[Gaussian, ...]:
    """Return what `write_drafts` wrote, part by part; nothing where it wrote nothing."""
    paths = sorted(
        folder.glob(f"draft-{index:03d}-*.npy")
    )  # at most nine: their order is that of the numbers
    arrays = (np.load(path, allow_pickle=False) for path in paths)
    return tuple(Gaussian(array[0], array[1:]) for array in arrays)


def write_described(specification: Specification, described: Json, folder: Path) -> None:
    """Write what is said of the rows; the file comes last, so with it all of the ingest is there."""
    write_json(folder / INGESTED, {"specification": specification_tree(specification), **described})


def read_described(folder: Path) -> tuple[Specification, Json]:
    """Return what `write_described` wrote."""
    described: Json = json.loads((folder / INGESTED).read_text(encoding="utf-8"))
    return stored_specification(described["specification"]), described


@dataclass(frozen=True)
class StagedTraining:
    """The staging folder, read."""

    folder: Path
    specification: Specification
    described: Json
    data: CandidateData

    @cached_property
    def fits(self) -> dict[str, CandidateData]:
        """The rows that the judged model is fitted to, and those of the kept one where it is to be refitted."""
        rows = self.data.rows
        if not (self.specification.split.refit and rows.held_out.any()):
            return {"judged": self.data}
        ratio = read_shift(self.folder).ratio
        if ratio is not None and self.specification.shift.density_weights:
            rows = with_density_weights_of_all(rows, ratio)
        whole = replace(rows, held_out=np.zeros_like(rows.held_out))
        return {"judged": self.data, "kept": replace(self.data, rows=whole, filled=filled_features(whole)[1])}

    @property
    def kept(self) -> str:
        """Which of the fits is kept."""
        return "kept" if "kept" in self.fits else "judged"

    @classmethod
    def read(cls, folder: Path) -> StagedTraining:
        """Return what `ingest` has written into the folder."""
        specification, described = read_described(folder)
        filled = np.load(folder / "filled.npy", allow_pickle=False)
        return cls(
            folder,
            specification,
            described,
            CandidateData(read_rows(folder), filled, tuple(described["classes"])),
        )
