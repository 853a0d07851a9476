"""First specifications of made catalogues, the rows that they train on, and a property of each."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

import catalogs
from blr.candidates.candidate import HELD_OUT_FROM
from flows.draft.inspection import StartedSpecification
from flows.draft.specification import starting_specification
from flows.specification.specification import Specification
from flows.specification.toml_file import parse_specification
from flows.training._gather import gather, with_learned_photometry
from flows.training._rows import TrainingRows
from tests.flows.conftest import write_parquet


def start_of(path: Path, label: str = "kind") -> StartedSpecification:
    """Return the first specification of a catalogue, which is to lie beside it."""
    return starting_specification(catalogs.open(path), label, folder=path.parent)


def started(
    folder: Path, columns: Mapping[str, Any], label: str = "kind", **units: str | None
) -> StartedSpecification:
    """Return the first specification of the catalogue `x.parquet` with these columns, some with units."""
    return start_of(write_parquet(folder / "x.parquet", columns, **units), label)


def checked(path: Path, label: str = "kind") -> StartedSpecification:
    """Return the first specification of a catalogue, after its labelled rows could be gathered as a training does."""
    start = start_of(path, label)
    gathered(start.text, path)
    return start


def gathered(text: str, path: Path) -> TrainingRows:
    catalog = catalogs.open(path)
    specification = parse_specification(text, source="here", base_folder=str(path.parent))
    rows = gather(with_learned_photometry(specification, [catalog]), [catalog]).rows
    check_split(specification, rows)
    return rows


def check_split(specification: Specification, rows: TrainingRows) -> None:
    """Check that some rows are held out; or of few labels none, and that no class has all rows in one group."""
    if len(rows.target) >= HELD_OUT_FROM:
        assert rows.held_out.any()
        return
    assert specification.split.held_out == 0
    assert not rows.held_out.any()
    assert rows.group is not None
    assert all(len(np.unique(rows.group[rows.target == k])) > 1 for k in np.unique(rows.target))
