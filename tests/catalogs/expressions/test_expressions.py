"""The expression language against Python and NumPy, what it refuses; and bins beside a loop over their edges."""

from __future__ import annotations

import contextlib
import math
import operator
from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from catalogs.errors import ColumnNotFoundError, ExpressionError
from catalogs.expressions._parser import MAX_DEPTH, MAX_LENGTH
from catalogs.expressions.expression import Bins, even_edges, names_between, parse

NAN = math.nan

COLUMNS = {
    "a": np.array([1.0, -2.0, NAN, 4.0]),
    "b": np.array([2.0, 0.0, 3.0, NAN]),
    "k": np.array([1, 2, 3, 4], np.int16),
    "byte": np.array([250, 251, 252, 253], np.uint8),
    "good": np.array([True, False, True, False]),
    "hubble": np.array(["E", "S0", "", "Sb"], object),
    "class": np.array(["G", "G", "S", "G"], object),
    "flux": np.arange(12.0).reshape(4, 3),
    "matrix": np.arange(24.0).reshape(4, 2, 3),
    "MAG-B": np.array([20.0, 21.0, 22.0, 23.0], np.float32),
}

BY_HAND = {
    "a + b": [3, -2, NAN, NAN],
    "a - b * 2": [-3, -2, NAN, NAN],
    "(a - b) * 2": [-2, -4, NAN, NAN],
    "a / b": [0.5, NAN, NAN, NAN],
    "-a ** 2": [-1, -4, NAN, -16],
    "2 ** -k": [0.5, 0.25, 0.125, 0.0625],
    "b ** -1": [0.5, NAN, 1 / 3, NAN],
    "byte + 10": [260, 261, 262, 263],
    "k - byte": [-249, -249, -249, -249],
    "abs(a)": [1, 2, NAN, 4],
    "sqrt(a)": [1, NAN, NAN, 2],
    "log(b)": [math.log(2), NAN, math.log(3), NAN],
    "log10(k * 0)": [NAN] * 4,
    "exp(a * 1000)": [NAN, 0, NAN, NAN],
    "hypot(k, b)": [math.hypot(1, 2), 2, math.hypot(3, 3), NAN],
    "arcsinh(a)": [math.asinh(1), math.asinh(-2), NAN, math.asinh(4)],
    "clip(a, 0, 2)": [1, 0, NAN, 2],
    "where(a > 0, a, -1)": [1, -1, -1, 4],
    "flux[1]": [1, 4, 7, 10],
    "flux[2] - flux[0]": [2, 2, 2, 2],
    "matrix[1, 2]": [5, 11, 17, 23],
    "`MAG-B` - 20": [0, 1, 2, 3],
    "good + 1": [2, 1, 2, 1],
    "k & 1": [1, 0, 1, 0],
    "k | 4": [5, 6, 7, 4],
    "~k": [-2, -3, -4, -5],
    "a > 0": [True, False, False, True],
    "a != 1": [False, True, False, True],
    "not (a > 0)": [False, True, True, False],
    "0 < k <= 2": [True, True, False, False],
    "1 < k > 2 < 9": [False, False, True, True],
    "isfinite(a) and isfinite(b)": [True, True, False, False],
    "isfinite(a) & ~isfinite(b)": [False, False, False, True],
    "a > 3 or b == 0 or k == 3": [False, True, True, True],
    "(a > 3) | (k == 1)": [True, False, False, True],
    "(k & 2) == 2": [False, True, True, False],
    "good and k < 3": [True, False, False, False],
    "good == True": [True, False, True, False],
    "hubble == 'E'": [True, False, False, False],
    "hubble == 'E  '": [True, False, False, False],
    'hubble != ""': [True, True, False, True],
    "hubble in ['E', 'S0']": [True, True, False, False],
    "hubble not in ('E', 'S0')": [False, False, True, True],
    "hubble < 'F'": [True, False, True, False],
    "a in [-2, 4]": [False, True, False, True],
    "a not in [-2, 4]": [True, False, False, False],
    "class == 'G' and not good": [False, True, False, True],
    "2 + 3": [5, 5, 5, 5],
}


@pytest.mark.parametrize("text", BY_HAND)
def test_by_hand(text: str) -> None:
    """Every operator and function, missing values included, against values worked out by hand."""
    expected = np.array(BY_HAND[text])
    got = parse(text).evaluate(COLUMNS)
    assert got.shape == (4,)
    np.testing.assert_array_equal(got, expected, strict=expected.dtype.kind == "b")


@st.composite
def arithmetic(draw: st.DrawFn, depth: int = 4) -> tuple[str, Callable[..., Any]]:
    """Return a text and the Python function that it should be, over a dictionary of floats."""
    if depth == 0 or draw(st.booleans()):
        name = draw(st.sampled_from(["x", "y", "`z-z`"]))
        literal = draw(st.floats(0, 1e6) | st.integers(0, 1000))
        if draw(st.booleans()):
            return name, lambda row: row[name.strip("`")]
        return repr(literal), lambda _: float(literal)
    if draw(st.integers(0, 5)) == 0:
        text, inner = draw(arithmetic(depth - 1))
        return f"-({text})", lambda row: -inner(row)
    symbol = draw(st.sampled_from("+-*/"))
    (left, f), (right, g) = draw(arithmetic(depth - 1)), draw(arithmetic(depth - 1))
    function = {"+": operator.add, "-": operator.sub, "*": operator.mul, "/": divide}[symbol]
    return f"({left}) {symbol} ({right})", lambda row: finite(function(f(row), g(row)))


def divide(a: float, b: float) -> float:
    return a / b if b else NAN


def finite(value: float) -> float:
    return value if math.isfinite(value) else NAN


@given(arithmetic(), st.lists(st.tuples(*[st.floats(-1e9, 1e9)] * 3), min_size=1, max_size=5))
def test_arithmetic_is_pythons(tree: tuple[str, Callable[..., Any]], rows: list[tuple[float, ...]]) -> None:
    """Random trees give what Python's own floats give, to the last bit."""
    text, function = tree
    names = ("x", "y", "z-z")
    expected = [function(dict(zip(names, row, strict=True))) for row in rows]
    columns = {n: np.array(v) for n, v in zip(names, zip(*rows, strict=True), strict=True)}
    np.testing.assert_array_equal(parse(text).evaluate(columns), expected)


@given(st.text(alphabet="ab1.5'\"`()[],+-*/<>=!&|~ :;{}@#%^_\\\né×", max_size=40) | st.text(max_size=40))
def test_any_text_parses_or_is_refused(text: str) -> None:
    """Nothing but an `ExpressionError` comes of any text, with every message in three parts."""
    try:
        parse(text)
    except ExpressionError as error:
        assert len(str(error).splitlines()) in {1, 3}  # noqa: PT017


WORDS = [*"a1()[],+-&~", "'t'", "`q`", "**", "==", "in", "not", "and", "abs"]


@given(st.lists(st.sampled_from(WORDS), max_size=12))
def test_what_parses_evaluates_or_is_refused(words: list[Any]) -> None:
    """What the parser lets through never fails in any other way than by an `ExpressionError`."""
    columns = {"a": np.array([1.0, NAN]), "q": np.array([[1, 2], [3, 4]])}
    with contextlib.suppress(ExpressionError):
        parse(" ".join(words)).evaluate(columns)


REFUSED = {
    "a.real": r"got '\.'; expected columns",
    "().__class__": r"got '\.",
    "__import__('os')": "call of '__import__'",
    "__name__": "two underscores",
    "open('x')": "call of 'open'",
    "sqr(a)": "did you mean 'sqrt'",
    "lambda: 1": "':'",
    "[a for a in b]": "did not expect a",
    "f'{a}'": "did not expect",
    "(a := 1)": "':'",
    "abs(*a)": "before an argument",
    "abs(x=a)": "'='",
    "abs(a, b)": "2 arguments",
    "abs": "without arguments",
    "a > 1 AND b < 2": "did not expect AND here; expected columns",
    "abs('a')": "text in 'abs'",
    "a if b else c": "did not expect if",
    "a is b": "did not expect is",
    "None": "isfinite",
    "a = 1": "got '='; .* == !=",
    "a && b": "got '&'; .* and or not",
    "a ^ 2": r"\*\*",
    "a // b": "got '/'",
    "a % b": "'%'",
    "a << 2": "'<'",
    "a @ b": "'@'",
    "a[-1]": "count from 0",
    "a[b]": "count from 0",
    "a[0][1]": "not a column",
    "a[1:2]": "':'",
    "10 ** 101": "exponent",
    "a ** -101": "exponent",
    "1e999": "1e999",
    "1j": "malformed",
    "1_000": "malformed",
    "18446744073709551616": "18446744073709551615",
    "a > 1 & b < 2": "parentheses",
    "'a' + 'b'": "text in arithmetic",
    "-'a'": "text in arithmetic",
    "'a' 'b' == c": "side by side",
    "a in b": "literals",
    "a in []": "literals",
    "a in [b]": "literals only",
    "a in ['x', 1]": "one kind",
    "a < b in [1]": "join the parts",
    "a, b": "comma",
    "{1}": r"'\{'",
    "a; b": "';'",
    "a # note": "`columns of any name`",
    "'a": "'text'",
    "'\\n' == a": "'text'",
    "`a": "`columns of any name`",
    "a +": "is not complete",
    "(a": "without its other half",
    "(a]": "without its other half",
    "a b": "did not expect b",
    "": "empty",
    "+".join("a" * (MAX_DEPTH + 2)): "operations",
    "(" * 201 + "a" + ")" * 201: "deep",
    "-" * 3000 + "a": "deep|inside each other",  # Python 3.13 parses it
    "a" * (MAX_LENGTH + 1): str(MAX_LENGTH),
}


@pytest.mark.parametrize("text", REFUSED)
def test_refused(text: str) -> None:
    """What is not of the language is refused by name, as is what is no text."""
    with pytest.raises(ExpressionError, match="put it in quotes"):
        parse(12)
    with pytest.raises(ExpressionError, match=REFUSED[text]):
        parse(text)


def test_the_caret_shows_the_place() -> None:
    """Line 2 is the text, line 3 has the caret below the fault, after non-ASCII names too."""
    for text, place in (("bmag - sqr(j)", 7), ("`é` + ε * f(x)", 10)):
        with pytest.raises(ExpressionError) as caught:
            parse(text)
        _, shown, caret = str(caught.value).splitlines()
        assert shown.strip() == text
        assert caret.index("^") - (len(shown) - len(text)) == place


MISFITS = {
    "hubble > 1": "a comparison of text with a number",
    "hubble + 1": "text where a number",
    "a == 'E'": "a comparison of text with a number",
    "flux + 1": r"flux\[0\]",
    "flux[3]": "0 to 2",
    "matrix[1]": "2 x 3 elements",
    "a[0]": "holds single numbers",
    "a & 1.5": "fraction",
    "(a > 1) & k": "condition '&' a number",
    "time > 1": "datetime64",
}


@pytest.mark.parametrize("text", MISFITS)
def test_types_that_do_not_fit(text: str) -> None:
    """What only the columns' types make wrong is said at evaluation, with the place."""
    columns = {**COLUMNS, "time": np.zeros(4, "datetime64[s]")}
    with pytest.raises(ExpressionError, match=MISFITS[text]):
        parse(text).evaluate(columns)


def test_identifiers_compare_exactly() -> None:
    """64-bit identifiers are not rounded to float64, with nulls among them neither."""
    wanted = 1237648720693755918
    whole = pa.array([wanted, wanted + 1, wanted - 1])
    nulls = pa.array([wanted, None, wanted + 1])
    assert parse(f"id == {wanted}").evaluate({"id": whole}).tolist() == [True, False, False]
    assert parse(f"id == {wanted}").evaluate({"id": nulls}).tolist() == [True, False, False]
    assert parse(f"id in [{wanted}, 5]").evaluate({"id": nulls}).tolist() == [True, False, False]
    assert parse(f"id != {wanted}").evaluate({"id": nulls}).tolist() == [False, False, True]
    largest = pa.array([2**64 - 1, 2**63], pa.uint64())
    assert parse("id == 18446744073709551615").evaluate({"id": largest}).tolist() == [True, False]


def test_nulls() -> None:
    """Arrow's nulls are missing: NaN, False in comparisons, empty as text."""
    columns = {
        "i": pa.array([1, None], pa.int32()),
        "b": pa.array([True, None]),
        "s": pa.array(["x ", None]),
        "f": pa.array([0.5, None], pa.float32()),
    }
    values = {text: parse(text).evaluate(columns).tolist() for text in ("i + f", "b", "s == ''", "s == 'x'")}
    assert math.isnan(values.pop("i + f")[1])
    assert values == {"b": [True, False], "s == ''": [False, True], "s == 'x'": [True, False]}
    np.testing.assert_array_equal(parse("i & 1").evaluate(columns), [1, NAN])
    np.testing.assert_array_equal(parse("b + 0").evaluate(columns), [1, NAN])


def test_a_column_of_nulls_only_is_numbers_or_text_as_it_is_used() -> None:
    """A file in which a column has no value at all does not say of which type it would be."""
    columns = {"v": pa.nulls(2), "k": np.array([1, 2])}
    for text in ("v + k", "-v", "v", "sqrt(v)", "v & 1"):
        np.testing.assert_array_equal(parse(text).evaluate(columns), [NAN, NAN])
    for text in (
        "v > 1",
        "v != 1",
        "v == 'E'",
        "v in ['E', 'S0']",
        "v and k",
        "isfinite(v)",
        "v != ''",
        "v != v",
    ):
        assert parse(text).evaluate(columns).tolist() == [False, False]
    assert parse("v == ''").evaluate(columns).tolist() == [True, True]
    assert parse("v != 'E'").evaluate(columns).tolist() == [True, True]


def test_masked_arrays_and_bytes() -> None:
    """Astropy's masked columns and FITS's bytes are taken as they come."""
    masked = np.ma.MaskedArray([1, 2, 3], mask=[False, True, False])
    words = np.ma.MaskedArray(np.array([b"E", b"S", b"E"]), mask=[False, False, True])
    np.testing.assert_array_equal(parse("m * 2").evaluate({"m": masked}), [2, NAN, 6])
    np.testing.assert_array_equal(parse("m").evaluate({"m": masked}), [1, NAN, 3])
    assert parse("w == 'E'").evaluate({"w": words}).tolist() == [True, False, False]
    assert parse("m != 1").evaluate({"m": masked}).tolist() == [False, False, True]


def test_selects_wants_a_condition() -> None:
    assert parse("a > 0").selects(COLUMNS).tolist() == [True, False, False, True]
    with pytest.raises(ExpressionError, match="condition"):
        parse("a + 0").selects(COLUMNS)


def test_evaluate_batch() -> None:
    """A record batch is evaluated column by column, constants included."""
    batch = pa.record_batch({"x": pa.array([1.0, None]), "n": pa.array(["p", "q"])})
    np.testing.assert_array_equal(parse("x + 1").evaluate_batch(batch), [2, NAN])
    np.testing.assert_array_equal(parse("7").evaluate_batch(batch), [7, 7])
    with pytest.raises(ColumnNotFoundError, match="'y' was not read"):
        parse("y").evaluate_batch(batch)


def test_a_column_is_not_changed() -> None:
    """Evaluation leaves its inputs alone, and an infinity in a column is no finite value."""
    x = np.array([np.inf, 1.0])
    np.testing.assert_array_equal(parse("-x + 1").evaluate({"x": x}), [NAN, 0])
    assert parse("isfinite(x)").evaluate({"x": x}).tolist() == [False, True]
    assert x[0] == np.inf


UNITS = {
    "b": "mag",
    "j": "mag",
    "f": "Jy",
    "g": "Jy",
    "odd": "nanomaggies^2",
    "u": None,
    "d": "arcsec",
    "n": "",
}
UNITS_BY_HAND = {
    "b - j": "mag",
    "b - 0.1": "mag",
    "-2.5 * b": "mag",
    "f / g": "",
    "f * g": "Jy2",
    "sqrt(d ** 2 + d * d)": "arcsec",
    "d ** -1": "1 / arcsec",
    "hypot(f, g)": "Jy",
    "clip(f, 0, 10)": "Jy",
    "where(f > 0, f, -1)": "Jy",
    "log10(f)": "",
    "f > g": "",
    "b - f": None,
    "b - u": None,
    "u * f": None,
    "f ** n": None,
    "2 ** n": "",
    "v[0]": None,
    "odd": "nanomaggies^2",
    "1 + 1": "",
    "n & 1": "",
}


@pytest.mark.parametrize("text", UNITS_BY_HAND)
def test_units(text: str) -> None:
    """Units as far as they can be told, strange ones passed on, None where columns or units do not agree."""
    assert parse(text).unit(UNITS) == UNITS_BY_HAND[text]


def test_bins_hold_as_many_values_each_and_say_which() -> None:
    values = np.random.default_rng(0).normal(18, 2, 4000)
    edges = even_edges(values, 4)
    assert len(edges) == 3
    place = Bins.between("r", edges).places(values)
    assert np.bincount(place) == pytest.approx([1000] * 4, abs=3)
    assert place.tolist() == [sum(edge <= x for edge in edges) for x in values.tolist()]
    assert even_edges(np.array([1.0] * 9 + [2.0]), 4) == ()
    assert even_edges(np.array([1.0] * 6 + [2.0] * 5 + [np.nan]), 4) == (2.0,)
    assert even_edges(np.array([np.nan]), 4) == ()


def test_names_say_where_an_edge_belongs() -> None:
    assert names_between((), "r") == ()
    assert names_between((16.0, 18.5), "r") == ("r < 16", "16 <= r < 18.5", "r >= 18.5")
    values = np.array([15.9, 16.0, 18.5, np.nan, np.inf])
    assert Bins.between("r", (16.0, 18.5)).places(values).tolist() == [0, 1, 2, 3, 3]
