"""Errors that surveys have published are stopped, by a check that names them and their place."""

from __future__ import annotations

import shutil

import pytest

from flows.cli.app import run
from tests.release.conftest import working_folder
from tests.release.faults import FAULTS
from tests.release.planting import planted

QUICK = {
    ("fits", "a file damaged by input/output"),
    ("fits", "a boolean became int8"),
    ("fits", "probabilities of another model"),
    ("fits", "texts of other rows"),
    ("parquet", "a companion with other rows"),
    ("parquet", "flags of an earlier stage"),
    ("parquet", "null stored as 0"),
    ("parquet", "a boolean inverted"),
}
"""Errors that the ordinary run plants: of each kind of check some, in either format."""


CASES = [
    pytest.param(what, form, marks=() if (form, what) in QUICK else pytest.mark.long)
    for form in ("fits", "parquet")
    for what in FAULTS
]


@pytest.mark.parametrize(("what", "form"), CASES)
def test_each_error_is_stopped_by_name_and_place(
    what: str, form: str, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    survey = request.getfixturevalue("survey")
    folder = working_folder(survey, request.getfixturevalue(f"{form}_releases"))
    monkeypatch.chdir(folder)
    fault = FAULTS[what]
    found = planted(fault, survey, folder, form)
    mine = [
        c
        for c in found
        if c["verdict"] == "stop" and c["name"] == fault.check and fault.words in str(c["found"])
    ]
    assert mine, [(c["verdict"], c["name"], c["found"], c.get("file")) for c in found]
    assert any(str(c.get("file", "")).startswith(fault.place) for c in mine), mine
    assert run(["release", "sign", form, "2", "--by", "Ada"]) == 1
    monkeypatch.undo()
    shutil.rmtree(folder)
