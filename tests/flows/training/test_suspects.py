"""The end of a training says which features may tell how the labelled objects were chosen, as `blr init` does."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from astropy.table import Table

import catalogs
from flows.cli.app import run
from flows.draft.specification import starting_specification


def test_suspects_that_init_keeps_are_said_after_the_training(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rng = np.random.default_rng(3)
    n = 400
    star = rng.random(n) < 0.5
    columns = {
        "objid": np.arange(n) + 5_000_000,
        "g_r": star + rng.normal(size=n),
        "z": rng.uniform(14, 19, n),  # a magnitude
        "redshift": np.abs(rng.normal(0.3, 0.1, n)),
        "width": np.where(star & (rng.random(n) < 0.7), np.nan, rng.normal(size=n)),
        "kind": np.where(star, "STAR", "GALAXY"),
    }
    Table(columns).write(tmp_path / "sky.fits")
    start = starting_specification(catalogs.open(tmp_path / "sky.fits"), "kind", folder=tmp_path)
    assert set(start.suspects) == {"redshift", "width"}
    (tmp_path / "spec.toml").write_text(
        start.text[: start.text.index("[[candidate]]")] + '[[candidate]]\nbasis = { kind = "linear" }\n'
    )
    assert run(["train", str(tmp_path / "spec.toml"), "--store", str(tmp_path / "models"), "--direct"]) == 0
    said = " ".join(capsys.readouterr().out.split())
    share = np.isfinite(columns["width"][star]).mean()
    named = (
        "Suspects among the features: redshift (a distance), width (measured for 100% of class 'GALAXY' and "
    )
    assert (
        f"{named}{share:.0%} of class 'STAR'). Leave out those that the objects to classify lack, or have"
        in said
    )
