"""An expression of columns: parsed, checked against a catalogue, evaluated on a batch; its unit, and bins of values."""

from __future__ import annotations

import keyword
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial, reduce
from itertools import pairwise
from typing import Any, cast

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from catalogs.arrays import Array, Floats, batch_values, column_values, plain_texts
from catalogs.errors import ColumnNotFoundError, nearest
from catalogs.expressions._parser import (
    ARITHMETIC,
    FUNCTIONS,
    MisfitError,
    Node,
    Value,
    bitwise,
    compare,
    complaint,
    is_text,
    number,
    numeric,
    parse_tree,
    truth,
    walk,
)

# Feature expressions: a small language over a catalogue's columns, evaluated on arrays.  Nothing in an `Expression`
# can do more than the operators and functions of `_parser`.


def parse(text: str) -> Expression:
    """Return the expression of columns that a text stands for, such as `bmag - jmag`.

    Raises
    ------
    catalogs.errors.ExpressionError
        If the text is not an expression; the message shows what is wrong, and where.

    Examples
    --------
    >>> colour = catalogs.parse("bmag - jmag")
    >>> sorted(colour.names), colour.unit({"bmag": "mag", "jmag": "mag"})
    (['bmag', 'jmag'], 'mag')
    >>> colour.evaluate({"bmag": np.array([4.5]), "jmag": np.array([1.0])}).tolist()
    [3.5]
    """
    return Expression(text, parse_tree(text))


def expression_name(column: str) -> str:
    """Return a column's name as expressions have it: in backticks where it would mean something else."""
    odd = not re.fullmatch(r"[A-Za-z_]\w*", column) or keyword.iskeyword(column) or column in FUNCTIONS
    return f"`{column}`" if odd else column


@dataclass(frozen=True)
class Expression:
    """A parsed expression: its text, and the tree that it is evaluated from."""

    text: str
    tree: Node

    @cached_property
    def names(self) -> frozenset[str]:
        """The columns that it needs."""
        return frozenset(name for name, _ in self.cells)

    @cached_property
    def cells(self) -> frozenset[tuple[str, tuple[int, ...]]]:
        """The columns that it needs, each with the index of the element, () of a whole column."""
        return frozenset((n.value, n.index) for n in walk(self.tree) if n.kind == "column")

    @property
    def is_column(self) -> bool:
        """Whether it is a column as it is, or an element of one."""
        return self.tree.kind == "column"

    @cached_property
    def tells_presence(self) -> bool:
        """Whether it asks of its columns only if they have a value: `isfinite(jmag)`, or what is made of that."""
        seen = walk(self.tree, but=lambda node: (node.kind, node.value) == ("call", "isfinite"))
        return bool(self.names) and not any(node.kind == "column" for node in seen)

    def unit(self, units: Mapping[str, str | None]) -> str | None:
        """Return the unit of the values from the columns' units: '' where they have none, None if not known."""
        if self.is_column and not any(units.get(name) for name in self.names):
            return None
        astropy_unit = unit(self.tree, units)
        return None if astropy_unit is None else str(astropy_unit.to_string())

    def check_names(self, known: Iterable[str]) -> None:
        """Raise `ColumnNotFoundError` where a column is not among the `known`."""
        known = tuple(known)
        for node in walk(self.tree):
            if node.kind == "column" and node.value not in known:
                message = f"there is no column '{node.value}'; {nearest(node.value, known)}"
                raise ColumnNotFoundError(str(complaint(self.text, node.at, message)))

    def evaluate(self, columns: Mapping[str, Any]) -> Array:
        """Return the values, one a row; without columns, a single one.

        Numbers come back as float64 (NaN where missing) unless they are a column as it is, conditions as
        booleans, text as objects.  Masked arrays are taken as missing where masked.
        """
        self.check_names(columns)
        with np.errstate(all="ignore"):
            value = self._value(self.tree, columns)
        rows = {len(columns[name]) for name in self.names} or {len(c) for c in columns.values()}
        array = plain(value)
        return np.broadcast_to(array, (*rows,)).copy() if array.ndim == 0 and len(rows) == 1 else array

    def evaluate_batch(self, batch: pa.RecordBatch) -> Array:
        """Return the values of a record batch, one a row."""
        values = self.evaluate(batch_values(batch, self.names))
        return values if values.ndim else np.full(batch.num_rows, values)

    def selects(self, columns: Mapping[str, Any]) -> Array:
        """Return the rows where the expression holds; `ExpressionError` where it is no condition."""
        values = self.evaluate(columns)
        if values.dtype.kind != "b":
            raise complaint(self.text, 0, "got values, expected a condition such as 'bmag < 21'")
        return values

    def _value(self, node: Node, columns: Mapping[str, Any]) -> Value:
        """Return what a node comes to; a type that does not fit is shown in its place."""
        try:
            if node.kind == "column":
                return self._column(node, columns)
            if node.kind in {"number", "text"}:  # integers stay Python's, which compare exactly with any type
                return np.asarray(node.value) if isinstance(node.value, bool) else cast("Value", node.value)
            return APPLY[node.kind](node.value, [self._value(part, columns) for part in node.parts])
        except MisfitError as error:
            remedy = "compare text with quoted text, numbers with numbers; put parentheses round conditions"
            raise complaint(self.text, node.at, f"got {error}; {remedy}") from None

    def _stored(self, node: Node, columns: Mapping[str, Any]) -> Array:
        """Return a column as an array; bytes become text, masked text is empty."""
        column = columns[node.value]
        arrow = isinstance(column, pa.Array | pa.ChunkedArray)
        values = column_values(column, name=node.value) if arrow else np.asanyarray(column)
        if values.dtype.kind == "S":
            texts = np.ma.filled(values, b"").astype(object)
            values = np.frompyfunc(lambda text: text.decode("utf-8", "replace"), 1, 1)(texts)
        elif is_text(values):
            values = np.asarray(np.ma.filled(values, ""))
        if values.dtype.kind not in "biufOUTV":
            raise complaint(self.text, node.at, f"got the type {values.dtype}; expected numbers or text")
        return values

    def _column(self, node: Node, columns: Mapping[str, Any]) -> Array:
        """Return a column with one value a row, or one element of a vector column."""
        values = self._stored(node, columns)
        sizes = values.shape[1:]
        got = f"'{node.value}' holds vectors of {' x '.join(map(str, sizes))} elements"
        if not node.index:
            if sizes:
                raise complaint(self.text, node.at, f"{got}; name one of them, as in {node.value}[0]")
            return values
        if len(sizes) != len(node.index) or any(i >= n for i, n in zip(node.index, sizes, strict=True)):
            expected = ", ".join(f"0 to {n - 1}" for n in sizes)
            message = (
                f"{got}; expected {expected} in the brackets"
                if sizes
                else "this column holds single numbers: leave out the brackets"
            )
            raise complaint(self.text, node.at, message)
        at: tuple[Any, ...] = (slice(None), *node.index)
        return np.asanyarray(values[at])


LOGICAL = {"and": np.logical_and, "or": np.logical_or}
UNARY: Mapping[str, Callable[[Value], Array]] = {
    "not": lambda value: ~truth(value),
    "~": partial(bitwise, "~"),
    "-": lambda value: -number(value),
    "+": number,
}


def compared(symbols: Sequence[str], parts: Sequence[Value]) -> Array:
    """Return where every pair of a chain compares so."""
    pairs = zip(symbols, pairwise(parts), strict=True)
    return reduce(np.logical_and, [compare(symbol, a, b) for symbol, (a, b) in pairs])


def member(word: str, parts: Sequence[Value]) -> Array:
    """Return where the item is one of the choices; a missing number is neither in nor not in."""
    item, *choices = parts
    symbol, combine = ("!=", np.logical_and) if word == "not in" else ("==", np.logical_or)
    return reduce(combine, [compare(symbol, item, choice) for choice in choices])


APPLY: Mapping[str, Callable[[Any, Sequence[Value]], Array]] = {
    "unary": lambda symbol, parts: UNARY[symbol](*parts),
    "binary": lambda symbol, parts: (
        bitwise(symbol, *parts) if symbol in "&|" else numeric(ARITHMETIC[symbol])(*parts)
    ),
    "compare": compared,
    "logical": lambda word, parts: reduce(LOGICAL[word], map(truth, parts)),
    "member": member,
    "call": lambda name, parts: FUNCTIONS[name][2](*parts),
}
"""What a node makes of its value and of the values of its parts, by its kind."""


def plain(value: Value) -> Array:
    """Return a result without masks: integers under a mask would not survive as such."""
    if isinstance(value, np.ma.MaskedArray):
        return truth(value) if value.dtype.kind == "b" else number(value)
    array = np.asarray(value)
    return number(array) if array.dtype.kind == "V" else array


# Bins of the values of an expression: edges between bins of as many values each, and the bins' names.  Bin 0 is below
# the first edge; a value at an edge is in the bin above it.  Shapes: n values, E edges, E + 1 bins.

MISSING = "missing"
"""The bin of values that are missing."""


@dataclass(frozen=True)
class Bins:
    """Bins between `edges`, of a condition (no edges), or one for each of the `kinds` of texts; `names` in order.

    Numbers that are missing are in the last bin.
    """

    names: tuple[str, ...]
    edges: tuple[float, ...] = ()
    kinds: tuple[str, ...] = ()

    @classmethod
    def between(cls, text: str, edges: Sequence[float]) -> Bins:
        """Return the bins of an expression between edges; those of a condition without any."""
        if not edges:
            return cls((f"not {text}", text))
        return cls((*names_between(edges, text), f"{text}: {MISSING}"), tuple(edges))

    def places(self, values: NDArray[Any]) -> NDArray[np.intp]:
        """Return the bin (n,) of each value."""
        if self.kinds:
            index = {kind: i for i, kind in enumerate(self.kinds)}
            return np.array([index[text or MISSING] for text in plain_texts(values).tolist()], dtype=np.intp)
        if values.dtype.kind == "b":
            return values.astype(np.intp)
        place = np.searchsorted(np.asarray(self.edges, dtype=np.float64), values, side="right")
        return np.where(np.isfinite(values), place, len(self.names) - 1).astype(np.intp)


def even_edges(values: Floats, n_bins: int) -> tuple[float, ...]:
    """Return the edges (E,) between `n_bins` bins of about as many finite values (n,) each, to six digits.

    Fewer where many values are equal; none where all are.
    """
    known = values[np.isfinite(values)]
    inner = np.quantile(known, np.arange(1, n_bins) / n_bins) if len(known) else np.empty(0)
    rounded = {float(f"{edge:.6g}") for edge in inner.tolist()}
    return tuple(sorted(edge for edge in rounded if edge > known.min()))


def names_between(edges: Sequence[float], text: str) -> tuple[str, ...]:
    """Return the names (E + 1,) of the bins of an expression, such as 16 <= r < 18; none without an edge."""
    if not edges:
        return ()
    inner = (f"{low:g} <= {text} < {high:g}" for low, high in pairwise(edges))
    return (f"{text} < {edges[0]:g}", *inner, f"{text} >= {edges[-1]:g}")


def astropy_units() -> Any:
    """Return astropy's module of units, which few commands need."""
    import astropy.units  # noqa: PLC0415 -- slow to import, and most expressions are asked for values alone

    return astropy.units


def unit(node: Node, known: Mapping[str, str | None]) -> Any:
    """Return the unit of a node as astropy's, or None."""
    match node.kind, node.value:
        case "column", name:
            text = known.get(name)
            return None if text is None else astropy_units().Unit(text, parse_strict="silent")
        case "unary", "+" | "-":
            return unit(node.parts[0], known)
        case ("binary", "+" | "-") | ("call", "abs" | "hypot" | "clip"):
            return shared_unit(node.parts, known)
        case "call", "where":
            return shared_unit(node.parts[1:], known)
        case ("binary", "*" | "/" | "**") | ("call", "sqrt"):
            return product(node, [factor(part, known) for part in node.parts])
    return astropy_units().dimensionless_unscaled


def product(node: Node, factors: Sequence[Any]) -> Any:
    """Return the unit of a product, a ratio or a power, or None."""
    first, plain_number = factors[0], astropy_units().dimensionless_unscaled
    if node.value == "**":
        power, sign = node.parts[1], 1
        if power.kind == "unary":
            power, sign = power.parts[0], -1 if power.value == "-" else 1
        if first is None or first == plain_number or power.kind != "number":
            return first if first == plain_number else None
        return first ** (sign * power.value)
    if None in factors:
        return None
    if node.value == "sqrt":
        return first**0.5
    return first * factors[1] if node.value == "*" else first / factors[1]


def factor(node: Node, known: Mapping[str, str | None]) -> Any:
    """Return the unit of what is multiplied; None of one that astropy cannot read, with which it refuses to compute."""
    astropy_unit = unit(node, known)
    return None if isinstance(astropy_unit, astropy_units().UnrecognizedUnit) else astropy_unit


def shared_unit(nodes: Sequence[Node], known: Mapping[str, str | None]) -> Any:
    """Return the unit that all have, plain numbers aside; None where they differ."""
    node_units = [unit(n, known) for n in nodes if not is_plain(n)]
    if not node_units:
        return astropy_units().dimensionless_unscaled
    return node_units[0] if all(u is not None and u == node_units[0] for u in node_units) else None


def is_plain(node: Node) -> bool:
    """Say whether a node is a number as written, with a sign perhaps."""
    return node.kind == "number" or (node.kind == "unary" and is_plain(node.parts[0]))
