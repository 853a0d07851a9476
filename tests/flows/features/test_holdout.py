"""The share that is held out is close to the one asked for, or the training is refused; the report states it."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from flows.cli._models import show_trained
from flows.errors import TrainingError
from tests.flows.verbs import train

BY_PLACE = """[catalog]
ra = "ra"
dec = "dec"
"""


def prepared(folder: Path, make: Any, lon: Any, lat: Any, more: str = "") -> None:
    """Write the survey with positions, and its specification split by place."""
    make.parquet(folder / "survey.parquet", make.survey(len(lon)) | {"ra": lon, "dec": lat})
    text = make.specification.replace("[catalog]\n", BY_PLACE)
    (folder / "spec.toml").write_text(text + f'[split]\nby = "healpix"\n{more}')


def few_fields(n: int = 900) -> Any:
    """Return places in three fields of a degree, of which pixels of order 5 hold out far more or less than a fifth."""
    rng = np.random.default_rng(3)
    field = rng.choice([0, 1, 2], n, p=[0.6, 0.3, 0.1])
    return np.array([30.0, 150.0, 271.0])[field] + rng.normal(0, 0.3, n), rng.normal(0, 0.3, n) + 20


def test_a_survey_of_few_fields_is_split_by_finer_pixels(
    folder: Path, make: SimpleNamespace, capsys: pytest.CaptureFixture[str]
) -> None:
    prepared(folder, make, *few_fields())
    told = train(folder / "spec.toml", folder / "models")
    split = told.training.split
    assert split.healpix_order > 5
    assert 0.15 <= split.share <= 0.25
    skill = told.metrics.skill
    assert skill.n_groups < skill.n
    show_trained(told, verbose=True)
    shown = " ".join(capsys.readouterr().out.split())
    assert f"HEALPix pixels of order {split.healpix_order}: {split.share:.1%} of them" in shown


def test_rows_in_one_place_are_refused(folder: Path, make: SimpleNamespace) -> None:
    rng = np.random.default_rng(0)
    prepared(folder, make, 30 + rng.normal(0, 0.001, 400), 20 + rng.normal(0, 0.001, 400))
    with pytest.raises(TrainingError, match="got 'healpix', which "):
        train(folder / "spec.toml", folder / "models")


def test_an_order_that_is_stated_is_taken_unless_the_share_is_far_off(
    folder: Path, make: SimpleNamespace
) -> None:
    lon, lat = few_fields()
    prepared(folder, make, lon, lat, "healpix_order = 9\n")
    split = train(folder / "spec.toml", folder / "models", dry_run=True).training.split
    assert split.healpix_order == 9
    prepared(folder, make, lon, lat, "healpix_order = 2\n")
    with pytest.raises(TrainingError, match="healpix_order: got 2, whose pixels"):
        train(folder / "spec.toml", folder / "models", dry_run=True)


def test_a_column_of_few_values_is_refused_where_the_share_is_far_off(
    folder: Path, make: SimpleNamespace
) -> None:
    columns = make.survey()
    columns["field"] = np.where(np.arange(400) < 360, "a", "b")
    make.parquet(folder / "survey.parquet", columns)
    for share in (0.1, 0.85):  # a name's hash holds it out at one of these
        (folder / "spec.toml").write_text(make.specification + f'[split]\nby = "field"\nheld_out = {share}\n')
        with pytest.raises(TrainingError, match=r"whose 2 different values|without"):
            train(folder / "spec.toml", folder / "models", dry_run=True)
