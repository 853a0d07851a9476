"""The names of columns in one file, and a team's own beside its specification."""

from __future__ import annotations

import json
import re
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from catalogs.column_names import OF_THE_PACKAGE, column_names, read_column_names, using, with_names_of
from catalogs.errors import ColumnNamesError
from flows.cli.app import run
from flows.draft._bands import wavelength

ROOT = Path(__file__).resolve().parents[3]
PAGE = ROOT / "docs" / "column-names.md"


def team_survey(path: Path, *, n: int = 400) -> Path:
    """Write a survey whose columns have names that only the team knows."""
    rng = np.random.default_rng(5)
    late = rng.random(n) < 0.5
    magnitude = rng.normal(18, 1, n)
    table = pa.table(
        {
            "object_id": np.arange(n) + 2**40,
            "mag_nb816": magnitude,
            "mag_nb921": magnitude - rng.normal(0.5 * late, 0.4),
            "mag_r": magnitude + rng.normal(1.0 * late, 0.4),
            "queue block": rng.integers(1, 60, n),
            "gal_ness_v2": np.clip(0.4 * late + rng.uniform(0, 0.6, n), 0.01, 0.99),
            "size": rng.normal(3, 0.3, n),
            "kind": np.where(late, "late", "early"),
        }
    )
    pq.write_table(table, path)
    return path


def init(capsys: pytest.CaptureFixture[str], *arguments: str) -> dict[str, object]:
    assert run(["init", *arguments, "--label", "kind", "--json"]) == 0
    return dict(json.loads(capsys.readouterr().out))


def test_the_documented_file_beside_the_specification_adds_names(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    survey = team_survey(tmp_path / "survey.parquet")
    out = tmp_path / "spec.toml"
    without = init(capsys, str(survey), "--out", str(out))
    team_file = re.findall(r"```toml\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)[0]
    (tmp_path / "blr-columns.toml").write_text(team_file, encoding="utf-8")
    told = init(capsys, str(survey), "--out", str(out), "--overwrite")
    assert without["columns_file"] is None
    assert told["columns_file"] == str(tmp_path / "blr-columns.toml")
    before, after = dict(without["left_out"]), dict(told["left_out"])  # type: ignore[call-overload]
    assert {"queue block", "gal_ness_v2"}.isdisjoint(before)
    assert "bookkeeping" in after["queue block"]
    assert "another classifier" in after["gal_ness_v2"]
    assert "mag_r - mag_nb816" in dict(told["features"]).values()  # type: ignore[call-overload]
    assert "mag_nb816 - mag_nb921" in dict(told["features"]).values()  # type: ignore[call-overload]
    other = tmp_path / "elsewhere" / "spec.toml"
    other.parent.mkdir()
    named = init(capsys, str(survey), "--out", str(other), "--columns", str(tmp_path / "blr-columns.toml"))
    assert named["features"] == told["features"]


def test_a_teams_entries_come_before_the_packages(tmp_path: Path) -> None:
    file = tmp_path / "names.toml"
    file.write_text(
        '[bands.wavelengths]\nZ = 0.88\n[positions]\nright_ascension = ["Meridian"]\n', encoding="utf-8"
    )
    names = with_names_of(file)
    assert names.positions.right_ascension[:2] == ("meridian", "ra")
    assert names.positions.declination == column_names().positions.declination
    with using(names):
        assert wavelength("z") == 0.88
        assert wavelength("r") == 0.62
        assert "meridian" in column_names().positions.words
    assert wavelength("z") == 0.9
    assert "meridian" not in column_names().positions.words


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("[flux", "not TOML"),
        ("[flux]\nwrds = ['x']", "flux.wrds: got an unknown key, expected one of those in "),
        ("[flux]\nwords = 'x'", "flux.words: got 'x', expected a valid list"),
        ("[flux]\nwords = ['ok', 7]", "flux.words.1: got 7, expected a valid string"),
        ("[flux]\nwords = ['a(']", "flux.words.0: got 'a(', expected a regular expression"),
        ("[flux]\nwords = ['x*']", "at least one character"),
        ("flux = 3", "flux: got 3, expected a valid table"),
        ("[bands.wavelengths]\nr = 'red'", "bands.wavelengths.r: got 'red', expected a valid number"),
        ("[bands.wavelengths]\nr = -1", "bands.wavelengths.r: got -1, expected greater than 0"),
        ("[[bands.filters]]\npattern = 'f\\d+'", "expected a group"),
        ("[[conditions]]\nwords = ['x']\nlow = 0", "conditions.0.high: got"),
        ("[sentinels]\nnumbers = [nan]", "sentinels.numbers.0: got nan, expected a finite number"),
    ],
)
def test_a_mistake_is_named_with_file_key_and_what_was_expected(
    tmp_path: Path, text: str, expected: str
) -> None:
    file = tmp_path / "blr-columns.toml"
    file.write_text(text, encoding="utf-8")
    with pytest.raises(ColumnNamesError) as caught:
        with_names_of(file)
    message = str(caught.value)
    assert all(line.startswith(f"{file}: ") for line in message.splitlines())
    assert expected.replace("\\", "") in message


def test_a_file_that_is_not_there_or_too_large_is_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    survey = team_survey(tmp_path / "survey.parquet", n=20)
    assert run(["init", str(survey), "--label", "kind", "--columns", str(tmp_path / "none.toml")]) != 0
    assert "none.toml: got no file that can be read" in capsys.readouterr().err
    (tmp_path / "large.toml").write_bytes(b"#" * (1 << 20) + b"\n")
    with pytest.raises(ColumnNamesError, match="more than"):
        with_names_of(tmp_path / "large.toml")


def test_each_role_of_the_package_has_names_and_is_on_the_page() -> None:
    names = read_column_names(OF_THE_PACKAGE)
    assert names.model_fields_set == set(type(names).model_fields)
    page = PAGE.read_text(encoding="utf-8")
    assert [role for role in type(column_names()).model_fields if f"`{role}`" not in page] == []
