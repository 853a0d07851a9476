"""`blr init` on columns as surveys call them: vectors, positions, bands, bare fluxes, votes, foreign names."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from astropy.table import Table

import catalogs
from catalogs.catalog.catalog import Element, element_columns
from flows.draft.inspection import StartedSpecification, inspect_catalog
from flows.draft.specification import starting_specification
from flows.errors import UsageError
from tests.flows.starting import checked, start_of

N = 600


def galaxies(n: int = N) -> dict[str, Any]:
    """Return early and late galaxies: magnitudes of five bands (n, 5), and what else is of use."""
    rng = np.random.default_rng(5)
    late = rng.random(n) < 0.5
    r = rng.normal(17, 1, n)
    steps = np.stack([1.6 - 0.5 * late, 0.8 - 0.3 * late, 0 * r, -0.35 + 0.1 * late, -0.6 + 0.2 * late], 1)
    return {
        "rng": rng,
        "type": np.where(late, "S", "E"),
        "mags": r[:, None] + steps + rng.normal(0, 0.15, (n, 5)),
        "id": np.arange(n) + 1237648720142401536,
        "ra": rng.uniform(0, 360, n),
        "dec": rng.uniform(-60, 60, n),
    }


def started(
    path: Path, columns: dict[str, Any], label: str = "type"
) -> tuple[StartedSpecification, dict[str, Any]]:
    """Return the start and its tables, after a training could gather its rows."""
    if path.suffix == ".parquet":
        pq.write_table(pa.table(columns), path)
    else:
        Table(columns).write(path)
    start = checked(path, label)
    return start, tomllib.loads(start.text)


def test_elements_of_vectors_are_columns_with_their_sentinels_and_errors(tmp_path: Path) -> None:
    g = galaxies()
    mags = g["mags"].astype(np.float32)
    mags[:40, 3] = -9999
    sizes = g["rng"].lognormal(1, 0.4, (N, 5))
    columns = {
        "OBJID": g["id"],
        "PLUG_RA": g["ra"],
        "PLUG_DEC": g["dec"],
        "type": g["type"],
        "MODELMAG": mags,
    }
    columns |= {"MODELMAGERR": np.full((N, 5), 0.02) + 0.01 * g["rng"].random((N, 5))}
    columns |= {"PETROR50": sizes, "PETROR90": 2.5 * sizes * g["rng"].uniform(0.9, 1.1, (N, 5))}
    start, written = started(tmp_path / "photo.fits", columns)
    assert (written["catalog"]["ra"], written["catalog"]["dec"]) == ("PLUG_RA", "PLUG_DEC")
    assert written["catalog"]["sentinels"] == {"MODELMAG": [-9999.0]}
    expressions = list(start.features.values())
    assert expressions[:4] == [f"MODELMAG[{i}] - MODELMAG[{i + 1}]" for i in range(4)]
    assert expressions[5:7] == ["PETROR50[2] / PETROR90[2]", "log10(PETROR90[2])"]
    assert len(expressions) == 5 + 2 * 5
    assert "#   MODELMAGERR: an error of MODELMAG, not a measurement" in start.text


def test_a_column_that_is_called_as_an_element_is_none(tmp_path: Path) -> None:
    g = galaxies()
    columns = {"id": g["id"], "type": g["type"], "m[0]": g["mags"][:, 1], "m[1]": g["mags"][:, 2]}
    start, _ = started(tmp_path / "flat.parquet", columns)
    assert "`m[0]`" in start.text
    vector = catalogs.Column("m", pa.list_(pa.float32(), 2), shape=(2,))
    assert element_columns(vector, ("m", "m[0]")) == ()
    first, second = (c.name for c in element_columns(vector, ("m",)))
    assert isinstance(second, Element)
    assert (first, second.vector, second.place) == ("m[0]", "m", 1)


def test_inspection_shows_elements_and_their_range_and_takes_no_vector_for_a_label(tmp_path: Path) -> None:
    columns = {"id": [1, 2, 3], "flux": [[1.0, 4.0], [2.0, 5.0], [3.0, np.nan]], "g": [9.0, 8.0, 7.5]}
    Table(columns).write(tmp_path / "v.fits")
    catalog = catalogs.open(tmp_path / "v.fits")
    first, second = inspect_catalog(catalog).columns[1].elements
    assert (first.name, first.minimum, first.maximum, first.missing) == ("flux[0]", 1.0, 3.0, 0.0)
    assert second.missing == pytest.approx(1 / 3)
    with pytest.raises(UsageError, match="which holds fixed_size_list"):
        starting_specification(catalog, "flux", folder=tmp_path)
    with pytest.raises(UsageError, match="which holds fixed_size_list"):
        inspect_catalog(catalog, label="flux")


def test_votes_beside_their_counts_are_no_features(tmp_path: Path) -> None:
    g = galaxies()
    smooth = np.where(g["type"] == "E", 0.6, 0.4) + g["rng"].normal(0, 0.15, N)
    columns = {"dr7objid": g["id"], "type": g["type"], "petroMag_r": g["mags"][:, 2]}
    columns |= {"t01_a01_smooth_count": np.round(40 * smooth), "t01_a01_smooth_fraction": smooth}
    columns |= {"bulge_fraction": g["rng"].random(N), "votes_mag": g["mags"][:, 1]}
    answers = g["rng"].binomial(40, np.where(g["type"] == "E", 0.6, 0.4))
    columns |= {"NVOTE": answers + 40, "smooth_votes": answers}
    start, _ = started(tmp_path / "zoo.parquet", columns)
    assert start.left_out["t01_a01_smooth_fraction"].startswith("votes, as t01_a01_smooth_count")
    assert "bulge_fraction" not in start.left_out
    assert {n for n, why in start.left_out.items() if why.startswith("votes: ")} == {"NVOTE", "smooth_votes"}


def test_known_texts_among_the_numbers_of_a_large_file_are_no_values(tmp_path: Path) -> None:
    """2MASS writes them; the sample of a large file could lack another text, but not these."""
    g, times = galaxies(), 40
    rows = []
    for i in range(N * times):
        k = i % N
        j_m = "\\N" if i % 30 == 0 else f"{g['mags'][k, 1]:.3f}"
        other = "odd" if i == N * times - 1 else f"{g['mags'][k, 2]:.3f}"
        rows.append(f"{i}|{j_m}|{g['mags'][k, 3]:.3f}|{other}|{g['type'][k]}")
    (tmp_path / "xsc.txt").write_text("id|j_m|k_m|other|type\n" + "\n".join(rows) + "\n")
    start = start_of(tmp_path / "xsc.txt", "type")
    assert next(iter(start.features.values())) == "j_m - k_m"
    assert tomllib.loads(start.text)["catalog"]["sentinels"] == {"j_m": ["\\N"]}
    assert start.left_out["other"] == "text: 19,999 of 20,000 texts are numbers, but not 'odd'"
