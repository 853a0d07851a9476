"""Errors in a specification: each message names the file, the key, the value, what was expected, and the remedy."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from flows.errors import SpecificationError
from flows.specification.toml_file import load_specification, parse_specification

GOOD = """
name = "m"
[catalog]
paths = ["a.fits"]
id = "name"
[label]
column = "hubble"
classes = { early = ["E"], late = ["S"] }
[features]
b_j = "bmag - jmag"
[[candidate]]
basis = { kind = "polynomial", degree = 2 }
"""

CASES = {
    "one width or several": (
        '{ kind = "polynomial", degree = 2 }',
        '{ kind = "rbf", width = -1 }',
        r"^folder/spec.toml: candidate.0.basis.width: got -1, expected greater than 0; change it$",
    ),
    "unknown key": (
        "paths =",
        "pats =",
        "catalog.pats: got an unknown key, expected one of .*; did you mean 'paths'?",
    ),
    "missing table": (
        "[catalog]",
        "[target]",
        "catalog: this key is missing, expected the table .catalog.; add it",
    ),
    "missing key": (
        'column = "hubble"',
        "",
        "label: got no 'column', expected the column that holds the class; add column",
    ),
    "unknown basis": (
        "polynomial",
        "polinomial",
        r"candidate.0.basis: got kind 'polinomial'.*did you mean 'polynomial'",
    ),
    "unknown option": (
        "degree",
        "degre",
        r"candidate.0.basis.degre: got an unknown key.*did you mean 'degree'",
    ),
    "unknown key of a band's table": (
        "[features]",
        '[photometry.j]\nmagnitude = "jmag"\nextinction = { ebv = "EBV", coefficient = 3 }\n[features]',
        r"photometry.j.extinction.ebv: got an unknown key, expected one of band, .*did you mean 'e_bv'",
    ),
    "no kind": (
        'kind = "polynomial", ',
        "",
        r"candidate.0.basis: got .*, expected a table with the key 'kind'; add kind",
    ),
    "out of bounds": (
        "degree = 2",
        "degree = 99",
        r"candidate.0.basis.degree: got 99, expected .*6 - highest total",
    ),
    "wrong type": ('id = "name"', "id = 3", "catalog.id: got 3, expected a valid string"),
    "one class": (
        ', late = ["S"]',
        "",
        "label: got 1 class.es. in 'classes', expected at least two; add the other",
    ),
    "class twice": ('["S"]', '["S", "E"]', "label: 'E' is in class 'early' and in 'late'; keep it in one"),
    "empty class": ('["S"]', "[]", "label: class 'late' lists no spelling, expected at least one"),
    "bad expression": ("bmag - jmag", "bmag - ", "features.b_j: "),
    "unknown feature": (
        "basis = {",
        'features = ["b_jj"]\nbasis = {',
        r"candidate.0.features: got 'b_jj'.*'b_j'",
    ),
    "feature twice": (
        "basis = {",
        'features = ["b_j", "b_j"]\nbasis = {',
        "candidate.0.features: got a feature twice",
    ),
    "error of no feature": (
        "[[candidate]]",
        '[errors]\nb_k = "x"\n[[candidate]]',
        "errors: got 'b_k', expected one of",
    ),
    "no name for the split": ('id = "name"', "", "split.by: got 'id' without catalog.id, expected"),
    "bad name": ('name = "m"', 'name = "../m"', "name: got '../m', expected"),
    "not TOML": ("[catalog]", "[catalog", "got text that is not TOML: .*line 3"),
    "no such choice": (
        "[[candidate]]",
        '[select]\nby = "aic"\n[[candidate]]',
        "select.by: got 'aic', expected 'evidence'",
    ),
    "not a number": (
        "[[candidate]]",
        "[flags]\nclose_call = nan\n[[candidate]]",
        "flags.close_call: got nan, expected",
    ),
}


@pytest.mark.parametrize(("old", "new", "message"), CASES.values(), ids=CASES.keys())
def test_bad_specification(old: str, new: str, message: str) -> None:
    assert old in GOOD
    with pytest.raises(SpecificationError, match=message) as caught:
        parse_specification(GOOD.replace(old, new, 1), source="folder/spec.toml")
    assert all(line.startswith(("folder/spec.toml: ", " ")) for line in str(caught.value).splitlines())
    assert caught.value.exit_status == 2


def test_the_good_specification_is_accepted() -> None:
    assert parse_specification(GOOD, source="").candidate[0].basis.degree == 2


def test_all_faults_are_told_at_once() -> None:
    bad = GOOD.replace("paths", "pats").replace("degree = 2", "degree = 0")
    with pytest.raises(SpecificationError) as caught:
        parse_specification(bad, source="s")
    assert {line.split(":")[1].strip() for line in str(caught.value).splitlines()} == {
        "catalog.paths",
        "catalog.pats",
        "candidate.0.basis.degree",
    }


def test_a_folder_and_a_catalogue_are_no_specification(tmp_path: Path) -> None:
    with pytest.raises(SpecificationError, match=re.escape(f"{tmp_path}: got")):
        load_specification(tmp_path)
    (tmp_path / "a.fits").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(SpecificationError, match=r"not UTF-8 at offset 0.*this may be the catalogue"):
        load_specification(tmp_path / "a.fits")


def test_features_that_differ_only_in_a_blank_are_refused(tmp_path: Path) -> None:
    text = GOOD.replace("[features]\n", '[features]\n"f 1" = "`f 1`"\nf_1 = "f_1"\n')
    assert text != GOOD
    file = tmp_path / "spec.toml"
    file.write_text(text)
    message = f"{file}: features: got 'f 1' and 'f_1', which differ only in a blank or an underscore"
    with pytest.raises(SpecificationError, match=re.escape(message)):
        load_specification(file)
    assert {"f 1", "f_1"} <= set(parse_specification(text, source="a model").features)  # stored ones are read
    file.write_text(text.replace('"f 1" =', "f_first ="))
    assert "f_first" in load_specification(file).features
