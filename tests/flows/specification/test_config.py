"""The specification: values that it accepts, ranges, its hash, and errors that name file, key, value and remedy."""

from __future__ import annotations

import inspect
import re
from collections import Counter
from pathlib import Path
from typing import Any, get_args

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from blr.basis.kinds import BASES
from catalogs.arrays import plain_texts
from catalogs.expressions.expression import parse
from catalogs.sky.photometry import is_sentinel
from flows.draft.inspection import starting_classes
from flows.errors import SpecificationError
from flows.features.columns import OurColumns
from flows.features.reader import FeatureReader
from flows.labels.reader import LabelReader
from flows.specification.catalog import Label, as_sentinels, number_range
from flows.specification.specification import Basis, Specification, specification_hash
from flows.specification.toml_file import load_specification, parse_specification, specification_toml
from tests.flows.children import python

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


def test_one_value_serves_as_a_list() -> None:
    specification = parsed()
    assert specification.catalog.sentinels == {"bmag": (-9999.0,)}
    assert specification.label.classes == {"early": ("E", "S0"), "late": ("Sc",)}


def test_the_hash_ignores_the_folder_the_order_of_keys_and_stated_defaults(tmp_path: Path) -> None:
    (tmp_path / "spec.toml").write_text(TEXT)
    assert load_specification(tmp_path / "spec.toml").base_folder == str(tmp_path)
    same = [
        load_specification(tmp_path / "spec.toml"),
        parsed(TEXT.replace('paths = ["a.fits"]\nid = "name"', 'id = "name"\npaths = ["a.fits"]')),
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
    assert python("-c", code).stdout.strip() == specification_hash(parsed())


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

CASES = [
    (
        '{ kind = "polynomial", degree = 2 }',
        '{ kind = "rbf", width = -1 }',
        r"^folder/spec.toml: candidate.0.basis.width: got -1, expected greater than 0; change it$",
    ),
    ("[catalog]", "[target]", "catalog: this key is missing, expected the table .catalog.; add it"),
    ('column = "hubble"', "", "label: got no 'column', expected the column that holds the class; add column"),
    ("[label]", "[labek]", r"labek: got an unknown key, expected one of [\w, ]*; did you mean 'label'"),
    (
        "[label]",
        '[select]\nby = "stak"\n[label]',
        r"select.by: got 'stak', .* or 'stack'; did you mean 'stack'",
    ),
    ("polynomial", "polinomial", r"candidate.0.basis: got kind 'polinomial'.*did you mean 'polynomial'"),
    ("degree", "degre", r"candidate.0.basis.degre: got an unknown key.*did you mean 'degree'"),
    (
        "[features]",
        '[photometry.j]\nmagnitude = "jmag"\nextinction = { ebv = "EBV", coefficient = 3 }\n[features]',
        r"photometry.j.extinction.ebv: got an unknown key, expected one of band, .*did you mean 'e_bv'",
    ),
    ('kind = "polynomial", ', "", r"0.basis: got .*, expected a table with the key 'kind'; add kind"),
    ("degree = 2", "degree = 99", r"candidate.0.basis.degree: got 99, expected .*6 - highest total"),
    ('id = "name"', "id = 3", "catalog.id: got 3, expected a valid string"),
    (', late = ["S"]', "", "label: got 1 class.es. in 'classes', expected at least two; add the other"),
    ('["S"]', '["S", "E"]', "label: 'E' is in class 'early' and in 'late'; keep it in one"),
    ('["S"]', '["S", "E "]', "label: 'E' is in class 'early' and in 'late'; keep it in one"),
    ('["S"]', "[]", "label: class 'late' lists no spelling, expected at least one"),
    ("bmag - jmag", "bmag - ", "features.b_j: "),
    ("basis = {", 'features = ["b_jj"]\nbasis = {', r"candidate.0.features: got 'b_jj'.*'b_j'"),
    ("basis = {", 'features = ["b_j", "b_j"]\nbasis = {', "candidate.0.features: got a feature twice"),
    ("[[candidate]]", '[errors]\nb_k = "x"\n[[candidate]]', "errors: got 'b_k', expected one of"),
    ('id = "name"', "", "split.by: got 'id' without catalog.id, expected"),
    ('name = "m"', 'name = "../m"', "name: got '../m', expected"),
    ("[catalog]", "[catalog", "got text that is not TOML: .*line 3"),
    ("[[candidate]]", "[flags]\nclose_call = nan\n[[candidate]]", "flags.close_call: got nan, expected"),
]


@pytest.mark.parametrize(("old", "new", "message"), CASES)
def test_bad_specification(old: str, new: str, message: str) -> None:
    assert old in GOOD
    with pytest.raises(SpecificationError, match=message) as caught:
        parse_specification(GOOD.replace(old, new, 1), source="folder/spec.toml")
    assert all(line.startswith(("folder/spec.toml: ", " ")) for line in str(caught.value).splitlines())
    assert caught.value.exit_status == 2


def test_all_faults_are_told_at_once() -> None:
    assert parse_specification(GOOD, source="").candidate[0].basis.degree == 2
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
    with pytest.raises(SpecificationError, match=r"not UTF-8 at offset 0.*if this is the catalogue"):
        load_specification(tmp_path / "a.fits")


N = 700


def read(classes: dict[str, list[str]], values: list[float], exclude: tuple[str, ...] = ()) -> list[int]:
    label = Label(column="t", classes=classes, exclude=exclude)
    return LabelReader.of(label, Counter()).read(plain_texts(np.array(values))).tolist()


def test_a_range_holds_its_lower_end_only() -> None:
    early_late = {"early": ["..0"], "late": ["0..9.5", "10"]}
    assert read(early_late, [-5.2, -0.0, 0.0, 3.3, 9.5, 10, 11, np.nan]) == [0, 1, 1, 1, -1, 1, -1, -1]
    assert read({"a": ["..0"], "b": ["0.."]}, [-99, -9999, 99.9, 1e3]) == [-1, -1, -1, 1]
    assert read({"a": ["..5", "7"], "b": ["5..7", "7.5.."]}, [7, 6, 8]) == [0, 1, 1]
    assert read({"a": ["..5"], "b": ["5.."]}, [4, 5, 6], ("5",)) == [0, -1, 1]
    label = Label(column="t", classes={"a": ["S..", ".."], "b": ["E"]})
    assert LabelReader.of(label, Counter()).ranges == ()
    assert LabelReader.of(label, Counter()).knows("S..")


def test_ranges_that_cannot_be_are_refused() -> None:
    with pytest.raises(ValidationError, match=r"'\.\.1' and '0\.\.' overlap"):
        Label(column="t", classes={"a": ["..1"], "b": ["0.."]})
    with pytest.raises(ValidationError, match="whose lower end is not the first"):
        Label(column="t", classes={"a": ["3..1"], "b": ["4.."]})


@pytest.mark.parametrize(
    ("values", "cut"),
    [
        (np.round(np.linspace(-5, 9, 150), 1), 0),  # T types
        (np.tile(np.arange(-6, 11), 20), 0),
        (np.round(np.linspace(0, 1, 500), 3), 0.5),  # fractions of votes
        (np.linspace(0, 98, 300), 50),
        (np.linspace(9.1, 11.3, 300), 10.2),
        (np.arange(60), 30),  # counts of votes
        (1e6 + np.linspace(0, 1, 300), 1e6 + 150 / 299),
    ],
)
def test_numbers_in_order_are_cut_in_two(values: np.ndarray, cut: float) -> None:
    found = starting_classes(Counter([*plain_texts(values).tolist(), *["-99"] * 40, *["?"] * 3]))
    assert found.cut == cut
    shown = f"{cut:.0f}" if float(cut).is_integer() else repr(cut)
    assert [[*some] for some in found.kept.values()] == [[f"..{shown}"], [f"{shown}.."]]
    assert [*found.rows.values()] == [np.sum(values < cut), np.sum(values >= cut)]


def test_codes_are_classes_each_and_marks_are_nines() -> None:
    for codes in (range(1, 15), (-9, 0, 1, 2), (0.5, 1, 1.5, 2), (-1, *range(12))):
        assert starting_classes({f"{x:g}": 50 for x in codes}).cut is None
    assert set(starting_classes({"1": 50, "2": 60, "99.3": 40, "99.9": 40, "-9.5": 30}).doubtful) == {"99.9"}


ENDS = st.floats(-1e4, 1e4, width=32)


@given(low=ENDS, high=ENDS, x=st.lists(ENDS, min_size=1, max_size=20), single=st.booleans())
def test_a_range_holds_its_lower_end_and_not_its_upper_one(low: Any, high: Any, x: int, single: Any) -> None:
    if not low < high:
        low, high = high, low
    if low == high:
        return
    values = np.array([*x, low, high], dtype=np.float32 if single else np.float64)
    for text, expected in (
        (f"{low!r}..{high!r}", (values >= low) & (values < high)),
        (f"{low!r}..", values >= low),
        (f"..{high!r}", values < high),
    ):
        assert is_sentinel(values, as_sentinels([text])).tolist() == expected.tolist(), text


def test_texts_that_are_not_ranges() -> None:
    for text in ("..", "...", "-", "a..b", ">23.1", "1.5"):
        assert number_range(text) is None
        assert as_sentinels([text]) == [text]
    with pytest.raises(ValueError, match=r"got the range '5\.\.0', whose lower end is not the first"):
        number_range("5..0")


@pytest.mark.parametrize("key", ["sentinels", "not_detected", "masked"])
def test_an_empty_range_is_refused_before_any_work(key: str) -> None:
    with pytest.raises(SpecificationError, match=r"got the range '90\.\.80'"):
        parsed(GOOD.replace("[label]", f'{key} = {{ bmag = "90..80" }}\n[label]'))


@pytest.mark.parametrize("texts", [False, True])
def test_ranges_are_missing_not_detected_or_masked(*, texts: bool) -> None:
    numbers = [20.5, 98.7, 99.1, -9999.3, 60.0, -99.0]
    column = pa.array([str(x) for x in numbers]) if texts else pa.array(numbers, pa.float32())
    columns = OurColumns(not_detected={"mag": ("98..100",)}, masked={"mag": ("50..70",)})
    reader = FeatureReader({"f": parse("mag")}, sentinels={"mag": ("..-90",)}, columns=columns)
    found = reader.evaluate(pa.record_batch({"mag": column}))
    assert found.missing[:, 0].tolist() == [False, True, True, True, True, True]
    assert found.not_detected.tolist() == [False, True, True, False, False, False]


def test_integers_stay_whole() -> None:
    ids = pa.array([2**62 + 1, 5, -12], pa.int64())
    reader = FeatureReader({"f": parse("where(i == 4611686018427387905, 1, 0)")}, sentinels={"i": ("..-9",)})
    assert reader.evaluate(pa.record_batch({"i": ids})).X[:, 0].tolist() == [1, 0, 0]
