"""The specification: the values that it accepts, and its hash."""

from __future__ import annotations

import inspect
import subprocess
import sys
from pathlib import Path
from typing import get_args

import pytest

from blr.basis.kinds import BASES
from flows.specification.specification import Basis, Specification, specification_hash
from flows.specification.toml_file import load_specification, parse_specification, specification_toml

TEXT = """
name = "m"
[catalog]
paths = ["a.fits"]
id = "name"
sentinels = { bmag = -9999 }
[label]
column = "hubble"
classes = { early = ["E", "S0"], late = "Sc" }
[features]
b_j = "bmag - jmag"
axis = "minax / majax"
"""


def parsed(text: str = TEXT) -> Specification:
    return parse_specification(text, source="spec.toml")


def reordered(text: str, first: str, second: str) -> str:
    return text.replace(first, "\0").replace(second, first).replace("\0", second)


def test_one_value_serves_as_a_list() -> None:
    specification = parsed()
    assert specification.catalog.sentinels == {"bmag": (-9999.0,)}
    assert specification.label.classes == {"early": ("E", "S0"), "late": ("Sc",)}


def test_relative_paths_start_at_the_files_folder(tmp_path: Path) -> None:
    (tmp_path / "spec.toml").write_text(TEXT)
    assert load_specification(tmp_path / "spec.toml").base_folder == str(tmp_path)


def test_the_hash_ignores_the_folder_the_order_of_keys_and_stated_defaults(tmp_path: Path) -> None:
    (tmp_path / "spec.toml").write_text(TEXT)
    same = [
        load_specification(tmp_path / "spec.toml"),
        parsed(reordered(TEXT, 'paths = ["a.fits"]', 'id = "name"')),
        parsed(TEXT + "[split]\nheld_out = 0.2\n[flags]\nclose_call = 0.1\n"),
        parsed(TEXT.replace("-9999", "-9999.0")),
    ]
    assert {specification_hash(s) for s in same} == {specification_hash(parsed())}


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ('early = ["E", "S0"], late = "Sc"', 'late = "Sc", early = ["E", "S0"]'),
        ('b_j = "bmag - jmag"\naxis = "minax / majax"', 'axis = "minax / majax"\nb_j = "bmag - jmag"'),
        ("a.fits", "b.fits"),
        ("-9999", "-999"),
    ],
)
def test_the_hash_depends_on_what_matters(old: str, new: str) -> None:
    assert old in TEXT
    assert specification_hash(parsed(TEXT.replace(old, new))) != specification_hash(parsed())


def test_the_hash_is_the_same_in_another_process() -> None:
    code = (
        "from flows.specification.specification import specification_hash; from flows.specification.toml_file import "
        "parse_specification; "
        f"print(specification_hash(parse_specification({TEXT!r}, source='')))"
    )
    told = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert told.stdout.strip() == specification_hash(parsed())


def test_toml_there_and_back_keeps_the_order_of_classes() -> None:
    specification = parsed(
        TEXT + '[[candidate]]\nfeatures = ["axis"]\nbasis = { kind = "rbf", centres = 7 }\n'
    )
    again = parsed(specification_toml(specification))
    assert again == specification
    assert list(again.label.classes) == ["early", "late"]


BASIS_KINDS = [get_args(t.model_fields["kind"].annotation)[0] for t in get_args(get_args(Basis)[0])]


@pytest.mark.parametrize("kind", BASIS_KINDS)
def test_every_basis_has_a_table_whose_options_blr_knows(kind: str) -> None:
    assert set(BASIS_KINDS) == set(BASES)
    table = parsed(TEXT + f'[[candidate]]\nbasis = {{ kind = "{kind}" }}\n').candidate[0].basis
    options = set(type(table).model_fields) - {"kind"}
    of_rows = {"X", "rng", "weight", "labels", "group"}
    assert options == set(inspect.signature(BASES[kind].fit).parameters) - of_rows
    for name in options - {"width", "lengthscale"}:
        assert getattr(table, name) == inspect.signature(BASES[kind].fit).parameters[name].default
