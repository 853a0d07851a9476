"""A model of one survey's file classifies another's, whose columns have other names, on real catalogues."""

from __future__ import annotations

from pathlib import Path

import pytest
from astropy.table import Table

from tests.flows.verbs import classify, train

DATA = Path(__file__).resolve().parents[3] / "shared" / "data"
SIXDF = DATA / "sixdfgs" / "6dfgs_mini.xml.bz2"
SDSS = DATA / "sdss_dr14_10k" / "Skyserver_SQL2_27_2018.csv"

SPECIFICATION = """
name = "stars-and-galaxies"

[catalog]
paths = ["sdss.csv"]
ra = "ra"
dec = "dec"
where = "`class` != 'QSO'"

[target]
paths = ["sixdf.xml.bz2"]
columns = { g = "BMAG", r = "RMAG" }
where = "r > 0"

[label]
column = "class"
classes = { star = ["STAR"], galaxy = ["GALAXY"] }

[split]
by = "healpix"

[features]
g_r = "g - r"
r = "r"

[select]
posterior = "laplace"
"""


def test_sdss_trains_and_6dfgs_is_classified(tmp_path: Path) -> None:
    for name, path in (("sdss.csv", SDSS), ("sixdf.xml.bz2", SIXDF)):
        if not path.exists():
            pytest.skip(f"{path} is not here")
        # Specifications speak of files beside them.
        (tmp_path / name).write_bytes(path.read_bytes())
    (tmp_path / "spec.toml").write_text(SPECIFICATION)
    told = train(tmp_path / "spec.toml", tmp_path / "models")
    assert told.metrics.log_loss < told.metrics.log_loss_baseline
    found = classify(
        [tmp_path / "sixdf.xml.bz2"], model=told.model, out=tmp_path / "out", store=tmp_path / "models"
    )
    assert found.summary.n_rows == 875
    (out,) = (tmp_path / "out").glob("sixdf*.xml*")
    new = Table.read(out, format="votable")
    assert {"BMAG", "RMAG", "blr_p_star", "blr_p_galaxy", "blr_flags"} <= set(new.colnames)
    assert len(new) == 875
