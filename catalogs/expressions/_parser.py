"""The language of features: its functions, and its grammar as a tree."""

from __future__ import annotations

import ast
import math
import operator
import re
from bisect import bisect_right
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import numpy as np

from catalogs.arrays import EXACT_INTEGER, Array, floats
from catalogs.errors import ExpressionError, nearest, printable

# Arithmetic is done in float64, whatever the columns' types, so that 8-bit columns do not wrap around.
# What has no finite value (log of 0, division by 0, overflow) is NaN, which is missing.  A comparison
# with a missing value is False, `!=` included.  Integers compare as integers: identifiers never pass
# through float.  Missing integers and booleans come as masked arrays where NaN could not stand for them.

Value = Array | float | str
"""What a node evaluates to: an array of as many elements as rows, or a literal."""


class MisfitError(TypeError):
    """Values of a kind that an operator cannot use; the evaluation adds the place in the text."""


def is_text(value: Value) -> bool:
    """Say whether a value holds text: object arrays do, by the contract of `column_values`."""
    return isinstance(value, str) or (isinstance(value, np.ndarray) and value.dtype.kind in "OUST")


def number(value: Value) -> Array:
    """Return a value as float64, NaN where it is missing; `MisfitError` where it is no number."""
    if is_text(value):
        raise MisfitError("text where a number is expected")
    array = np.asanyarray(value)
    if array.dtype.kind not in "biufV":
        raise MisfitError(f"values of type {array.dtype} where a number is expected")
    return array if array.dtype == np.float64 and type(array) is np.ndarray else floats(array)


def truth(value: Value) -> Array:
    """Return a value as booleans: numbers are true where neither 0 nor missing."""
    if isinstance(value, np.ndarray) and value.dtype.kind == "b":
        return np.asarray(np.ma.filled(value, fill_value=False))
    values = number(value)
    return np.asarray((values != 0) & ~np.isnan(values))


def finite(values: Array) -> Array:
    """Return the values with all that is not finite made NaN."""
    bad = ~np.isfinite(values)
    return np.where(bad, np.nan, values) if bad.any() else values


ARITHMETIC: Mapping[str, Callable[[Array, Array], Array]] = {
    "+": np.add,
    "-": np.subtract,
    "*": np.multiply,
    "/": np.divide,
    "**": np.power,
}

COMPARISON: Mapping[str, Callable[[Any, Any], Any]] = {
    "==": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}


BITWISE: Mapping[str, tuple[Callable[..., Any], Callable[..., Any]]] = {
    "&": (np.logical_and, np.bitwise_and),
    "|": (np.logical_or, np.bitwise_or),
    "~": (np.logical_not, np.invert),
}


def missing(value: Value) -> Array | bool:
    if isinstance(value, np.ma.MaskedArray):
        return np.ma.getmaskarray(value) | missing(np.asarray(value.data))
    if isinstance(value, np.ndarray) and value.dtype.kind in "fV":
        return np.isnan(number(value))
    return False


def compare(symbol: str, left: Value, right: Value) -> Array:
    """Compare two numbers or two texts; False where either number is missing."""
    left, right = like(left, right), like(right, left)
    if is_text(left) != is_text(right):
        raise MisfitError("a comparison of text with a number")
    if is_text(left):
        return np.asarray(COMPARISON[symbol](left, right), dtype=bool)
    result = COMPARISON[symbol](exact(left), exact(right))
    return np.asarray(result, dtype=bool) & ~np.asarray(missing(left) | missing(right))


def like(value: Value, other: Value) -> Value:
    """Return a column of nulls only as text where it is compared with text, else as numbers."""
    if not isinstance(value, np.ndarray) or value.dtype.kind != "V":
        return value
    return np.full(value.shape, "") if is_text(other) else number(value)


def exact(value: Value) -> Any:
    """Return integers as they are and all else as float64, so that float32 does not round the literal."""
    if isinstance(value, np.ndarray):
        return np.asarray(np.ma.getdata(value)) if value.dtype.kind in "biu" else number(value)
    return value


def bitwise(symbol: str, *values: Value) -> Array:
    """Return `&`, `|` or `~`: of conditions, or of the bits of integers (missing stays missing)."""
    logical, of_bits = BITWISE[symbol]
    kinds = {np.asarray(v).dtype.kind for v in values}
    if kinds == {"b"}:
        return np.asarray(logical(*map(truth, values)))
    if "b" in kinds:
        raise MisfitError(f"a condition '{symbol}' a number")
    gone = np.any(np.broadcast_arrays(*map(missing, values)), axis=0)
    bits = np.asarray(of_bits(*map(integer, values)))
    return np.where(gone, np.nan, bits.astype(np.float64)) if gone.any() else bits


def integer(value: Value) -> Array:
    """Return a value as int64, 0 where missing; `MisfitError` where it has a fraction."""
    if is_text(value):
        raise MisfitError("text where an integer is expected")
    array = np.asarray(np.ma.filled(value, 0)) if isinstance(value, np.ma.MaskedArray) else np.asarray(value)
    if array.dtype.kind in "iu":
        return array if array.dtype.kind == "u" and array.dtype.itemsize == 8 else array.astype(np.int64)
    # An integer column with nulls arrives as float64.
    whole = np.nan_to_num(number(value), nan=0.0)
    if np.any(whole != np.trunc(whole)) or np.any(np.abs(whole) > EXACT_INTEGER):
        raise MisfitError("a number with a fraction where an integer is expected")
    return whole.astype(np.int64)


def numeric(ufunc: Callable[..., Any]) -> Callable[..., Array]:
    """Return the function over float64 with what is not finite made NaN."""
    return lambda *values: finite(np.asarray(ufunc(*(number(v) for v in values))))


FUNCTIONS: Mapping[str, tuple[str, int, Callable[..., Array]]] = {
    "abs": ("abs(x)", 1, numeric(np.abs)),
    "sqrt": ("sqrt(x)", 1, numeric(np.sqrt)),
    "log": ("log(x), natural", 1, numeric(np.log)),
    "log10": ("log10(x)", 1, numeric(np.log10)),
    "exp": ("exp(x)", 1, numeric(np.exp)),
    "hypot": ("hypot(x, y)", 2, numeric(np.hypot)),
    "arcsinh": ("arcsinh(x)", 1, numeric(np.arcsinh)),
    "clip": ("clip(x, low, high)", 3, numeric(np.clip)),
    "where": ("where(condition, yes, no)", 3, lambda c, y, n: np.where(truth(c), number(y), number(n))),
    "isfinite": ("isfinite(x)", 1, lambda x: np.isfinite(number(x))),
}
"""Each function of the language: how it is called, how many arguments it takes, and what it does."""


# The words of a feature expression, by a whitelist: what is no word of the language is refused here.  `anonymous`
# hands the words on to Python's grammar with every name and text made anonymous: so a column may be called `class` or
# `lambda`, nothing in a text can reach the grammar, and places stay the places of the text.

OPEN_ENDED = frozenset({"and", "or", "not", "in"})
MAX_NESTING = 200
"""Parentheses inside each other, at which Python's own parser stops."""

ALLOWED = (
    "columns, `columns of any name`, numbers, 'text', + - * / ** == != < <= > >=, in [...], and or not, "
    "& | ~, vector[0], " + " ".join(FUNCTIONS)
)

TOKEN = re.compile(
    r"""(?P<space>[ \t\r\n]+)
      | (?P<number>(?:0[xX][0-9a-fA-F]+ | (?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?)(?![\w.]))
      | (?P<name>[^\W\d]\w*)
      | (?P<quoted>`[^`\r\n]+`)
      | (?P<text>'[^'\\\r\n]*' | "[^"\\\r\n]*")
      | (?P<symbol>\*\*(?!=) | [<>=!]= | [-+*~](?!=) | /(?![/=]) | &(?![&=]) | \|(?![|=]) | <(?!<) | >(?!>)
                   | [(),\[\]])""",
    re.VERBOSE,
)

Token = re.Match[str]
"""A word of the text, of the kind of the group that matched."""


def cut(text: str) -> Iterator[Token]:
    """Yield the text's tokens; refuse characters that the language does not have."""
    at = 0
    while at < len(text):
        token = TOKEN.match(text, at)
        if token is None:
            message = f"got {text[at]!r}; expected {ALLOWED}"
            if text[at].isdigit():
                message = "got a malformed number; expected one such as 22.5, 1e-9 or 0xFF"
            raise complaint(text, at, message)
        if token.lastgroup != "space":
            yield token
        at = token.end()


def anonymous(tokens: Sequence[Token]) -> Iterator[str]:
    """Yield what Python's grammar is to see: each token at its own place, the user's names and texts replaced."""
    at = 0
    for token in tokens:
        yield " " * (token.start() - at)
        at = token.end()
        word = token[0]
        if token.lastgroup == "text":
            yield "'" + "_" * (len(word) - 2) + "'"
        elif token.lastgroup == "quoted" or (token.lastgroup == "name" and word not in OPEN_ENDED):
            yield "x" + "_" * (len(word) - 1)
        else:
            yield word


# The tree of a feature expression: all that can be said in the language, and nothing else.  `at` is the place in the
# text, kept for messages and left out of comparisons.


@dataclass(frozen=True)
class Node:
    """A part of an expression: its kind, what it says, and the parts that it is made of.

    =============== ============================== ==========================================
    kind            value                          parts
    =============== ============================== ==========================================
    number, text    the literal; integers exact    none
    column          its name                       none; `index` of a vector's element, from 0
    unary, binary   the operator                   one or two operands
    compare         the operators of `a < b <= c`  operands, one more than operators
    member          `in` or `not in`               the item, then the literals of the list
    logical         `and` or `or`                  operands
    call            the function's name            arguments
    =============== ============================== ==========================================
    """

    kind: Literal["number", "text", "column", "unary", "binary", "compare", "member", "logical", "call"]
    value: Any
    parts: tuple[Node, ...] = ()
    index: tuple[int, ...] = ()
    at: int = field(default=0, compare=False)


def walk(node: Node, *, but: Callable[[Node], bool] = lambda _: False) -> Iterator[Node]:
    """Yield the node and all below it, but for nodes of a kind and what is below them."""
    if but(node):
        return
    yield node
    for part in node.parts:
        yield from walk(part, but=but)


def complaint(text: str, at: int, message: str) -> ExpressionError:
    """Return the error that shows the place in the text with a caret below it."""
    # A long expression is cut to the neighbourhood of the fault, so that the caret stays on the screen.
    start = max(0, at - 60)
    shown = ("..." if start else "") + printable(text[start : start + 100])
    caret = " " * (at - start + (3 if start else 0)) + "^"
    return ExpressionError(f"{message}\n    {shown}\n    {caret}")


# From text to the tree of a feature expression.  Python's own grammar puts the tokens in order (`ast.parse` only
# reads; nothing is compiled or run), and every node is translated to one of ours or refused.

MAX_LENGTH = 4096
MAX_DEPTH = 100
MAX_EXPONENT = 100
MAX_NUMBER = 1e300
MAX_INTEGER = 2**64 - 1
"""The largest identifier that a column can hold."""

MAX_INDEX = 2**31

BINARY: Mapping[type[ast.operator], str] = {
    ast.Add: "+",
    ast.Sub: "-",
    ast.Mult: "*",
    ast.Div: "/",
    ast.Pow: "**",
    ast.BitAnd: "&",
    ast.BitOr: "|",
}
UNARY: Mapping[type[ast.unaryop], str] = {ast.UAdd: "+", ast.USub: "-", ast.Not: "not", ast.Invert: "~"}
COMPARE: Mapping[type[ast.cmpop], str] = {
    ast.Eq: "==",
    ast.NotEq: "!=",
    ast.Lt: "<",
    ast.LtE: "<=",
    ast.Gt: ">",
    ast.GtE: ">=",
}
COMPARE_TEXT = "compare text with == or in"
STRANGERS: Mapping[type[ast.AST], str] = {
    ast.List: "a list that does not follow 'in'",
    ast.Tuple: "a comma outside a call",
    ast.Starred: "'*' before an argument",
}


def parse_tree(text: str) -> Node:
    """Return the tree of an expression, or raise an `ExpressionError` that shows the place."""
    if not isinstance(text, str):
        raise ExpressionError(f"got {text!r}; expected an expression such as 'bmag - jmag'; put it in quotes")
    if len(text) > MAX_LENGTH:
        raise ExpressionError(
            f"got an expression of {len(text)} characters; expected at most {MAX_LENGTH}; split it"
        )
    tokens = tuple(cut(text))
    if not tokens:
        raise ExpressionError("got an empty expression; expected one such as 'bmag - jmag'")
    return Translator(text, tokens).root()


class Translator:
    """Translates Python's tree of one text into ours."""

    def __init__(self, text: str, tokens: tuple[Token, ...]) -> None:
        self.text = text
        self.tokens = tokens
        self.starts = [t.start() for t in tokens]
        self.lead = self.starts[0]  # Python's grammar does not allow spaces at the beginning.
        self.translations: Mapping[type[ast.expr], Callable[[Any, int], Node]] = {
            ast.Constant: self.literal,
            ast.Name: self.name,
            ast.Subscript: self.element,
            ast.UnaryOp: self.unary,
            ast.BinOp: self.binary,
            ast.BoolOp: self.logical,
            ast.Compare: self.compare,
            ast.Call: self.call,
        }

    def root(self) -> Node:
        try:
            tree = ast.parse("".join(anonymous(self.tokens))[self.lead :], mode="eval")
        except SyntaxError as error:  # in our words
            at, end = self.lead + max((error.offset or 1) - 1, 0), self.tokens[-1].end()
            word = self.token(at)[0]
            message = f"did not expect {word} here; expected {ALLOWED}"
            if "nested" in error.msg:
                message = f"nested more than {MAX_NESTING} deep; split it over features"
            elif "never closed" in error.msg or "match" in error.msg:
                message = f"got {word} without its other half; add that, or remove this one"
            elif not error.offset or at >= end:
                at, message = end, "the expression is not complete; add what is missing"
            raise complaint(self.text, at, message) from None
        except (MemoryError, RecursionError):
            raise ExpressionError("got an expression nested too deeply; split it over features") from None
        return self.node(tree.body, 0)

    def place(self, node: ast.expr) -> int:
        return node.col_offset + self.lead

    def token(self, at: int) -> Token:
        return self.tokens[bisect_right(self.starts, at) - 1]

    def refuse(self, node: ast.expr, got: str, remedy: str) -> ExpressionError:
        """Return the error for syntax that is valid Python but not part of this language."""
        return complaint(self.text, self.place(node), f"got {got}; {remedy}")

    def node(self, node: ast.expr, depth: int) -> Node:
        if depth > MAX_DEPTH:
            raise self.refuse(node, f"more than {MAX_DEPTH} operations inside each other", "split it up")
        translate = self.translations.get(type(node))
        if translate is None or (isinstance(node, ast.BinOp) and type(node.op) not in BINARY):
            raise self.refuse(node, STRANGERS.get(type(node), type(node).__name__), f"expected {ALLOWED}")
        return translate(node, depth)

    def literal(self, node: ast.Constant, _depth: int = 0) -> Node:
        """Translate a number or a text, from the user's own characters."""
        token = self.token(self.place(node))
        if token.lastgroup == "text":
            if self.lead + (node.end_col_offset or 0) != token.end():
                raise self.refuse(node, "two texts side by side", "put an operator or a comma between them")
            # Catalogue text is compared without trailing blanks, since FITS pads with them.
            return Node("text", token[0][1:-1].rstrip(" "), at=token.start())
        value = node.value
        whole = isinstance(value, int) and value <= MAX_INTEGER
        if whole or (isinstance(value, float) and math.isfinite(value) and value <= MAX_NUMBER):
            return Node("number", value, at=token.start())
        raise self.refuse(
            node, f"the number {token[0]}", f"expected at most {MAX_NUMBER}, or {MAX_INTEGER} for an integer"
        )

    def name(self, node: ast.Name, _depth: int = 0) -> Node:
        """Translate the name of a column, or True and False."""
        token = self.token(self.place(node))
        word, at = token[0], token.start()
        if token.lastgroup == "quoted":
            return Node("column", word[1:-1], at=at)
        if word in {"True", "False"}:
            return Node("number", word == "True", at=at)
        if word in FUNCTIONS:
            remedy = f"write {FUNCTIONS[word][0]}, or back quotes round the name of a column"
            raise self.refuse(node, f"the function '{word}' without arguments", remedy)
        if word == "None":
            raise self.refuse(node, "None", "missing numbers are found by isfinite(x), missing text by == ''")
        if word.startswith("__"):
            remedy = "names may not begin with two underscores; write such a column in back quotes"
            raise self.refuse(node, f"the name '{word}'", remedy)
        return Node("column", word, at=at)

    def element(self, node: ast.Subscript, _depth: int = 0) -> Node:
        """Translate `vector[3]` and `matrix[3, 1]`."""
        base = self.name(node.value) if isinstance(node.value, ast.Name) else None
        if base is None or base.kind != "column":
            raise self.refuse(node, "an index after something that is not a column", "expected column[0]")
        parts = node.slice.elts if isinstance(node.slice, ast.Tuple) else [node.slice]
        index = tuple(p.value for p in parts if isinstance(p, ast.Constant) and type(p.value) is int)
        if not parts or len(index) != len(parts) or max(index) > MAX_INDEX:
            raise self.refuse(node.slice, "an index that is no whole number", "they count from 0: column[0]")
        return replace(base, index=index)

    def unary(self, node: ast.UnaryOp, depth: int) -> Node:
        return Node("unary", UNARY[type(node.op)], self.operands([node.operand], depth), at=self.place(node))

    def binary(self, node: ast.BinOp, depth: int) -> Node:
        """Translate an operation with two sides; exponents stay small."""
        left, right = self.operands([node.left, node.right], depth)
        symbol = BINARY[type(node.op)]
        exponent = right.parts[0] if right.kind == "unary" else right
        if symbol == "**" and exponent.kind == "number" and exponent.value > MAX_EXPONENT:
            raise self.refuse(node.right, f"the exponent {exponent.value}", f"expected up to {MAX_EXPONENT}")
        return Node("binary", symbol, (left, right), at=self.place(node))

    def logical(self, node: ast.BoolOp, depth: int) -> Node:
        symbol = "and" if isinstance(node.op, ast.And) else "or"
        parts = tuple(self.node(v, depth + 1) for v in node.values)
        return Node("logical", symbol, parts, at=self.place(node))

    def compare(self, node: ast.Compare, depth: int) -> Node:
        """Translate a chain of comparisons, or a membership."""
        sides = [node.left, *node.comparators]
        for side in sides:
            self.check_bits(side)
        if len(node.ops) == 1 and isinstance(node.ops[0], ast.In | ast.NotIn):
            return self.member(node, depth)
        for operation, side in zip(node.ops, node.comparators, strict=True):
            if type(operation) not in COMPARE:
                raise self.refuse(side, "'in' within a chain of comparisons", "join the parts with 'and'")
        symbols = tuple(COMPARE[type(operation)] for operation in node.ops)
        return Node("compare", symbols, tuple(self.node(s, depth + 1) for s in sides), at=self.place(node))

    def check_bits(self, side: ast.expr) -> None:
        """Refuse `a > 1 & b < 2`, where & binds tighter than most readers think."""
        if not isinstance(side, ast.BinOp) or not isinstance(side.op, ast.BitAnd | ast.BitOr):
            return
        before = self.text[: self.place(side)].rstrip()
        behind = self.text[self.lead + (side.end_col_offset or 0) :].lstrip()
        if not (before.endswith("(") and behind.startswith(")")):
            raise self.refuse(
                side, "& or | beside a comparison", "put parentheses round each side, or write and, or"
            )

    def member(self, node: ast.Compare, depth: int) -> Node:
        """Translate `item in ['E', 'S0']`."""
        listed = node.comparators[0]
        if not isinstance(listed, ast.List | ast.Tuple) or not listed.elts:
            raise self.refuse(listed, "'in' without a list", "expected literals, as in hubble in ['E', 'S0']")
        choices = tuple(self.choice(e) for e in listed.elts)
        if len({c.kind for c in choices}) > 1:
            raise self.refuse(listed, "a list of both texts and numbers", "expected one kind")
        symbol = "not in" if isinstance(node.ops[0], ast.NotIn) else "in"
        return Node("member", symbol, (self.node(node.left, depth + 1), *choices), at=self.place(node))

    def choice(self, node: ast.expr) -> Node:
        """Translate one element of a membership's list; numbers may be negative."""
        sign = isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub)
        inner = node.operand if isinstance(node, ast.UnaryOp) and sign else node
        value = self.literal(inner) if isinstance(inner, ast.Constant) else None
        if value is None or (sign and value.kind == "text"):
            raise self.refuse(node, "a list element that is no number and no text", "expected literals only")
        return Node("number", -value.value, at=self.place(node)) if sign else value

    def call(self, node: ast.Call, depth: int) -> Node:
        word = self.token(self.place(node.func))[0] if isinstance(node.func, ast.Name) else ""
        if word not in FUNCTIONS:
            known = nearest(word, FUNCTIONS) if word else f"known are: {', '.join(FUNCTIONS)}"
            raise self.refuse(node, f"a call of '{word}', which is not a function of this language", known)
        signature, arity, _ = FUNCTIONS[word]
        if node.keywords or len(node.args) != arity:
            raise self.refuse(node, f"'{word}' with {len(node.args)} arguments", f"expected {signature}")
        arguments = self.operands(node.args, depth, f"text in '{word}'", f"expected {signature}")
        return Node("call", word, arguments, at=self.place(node))

    def operands(
        self,
        nodes: Sequence[ast.expr],
        depth: int,
        got: str = "text in arithmetic",
        remedy: str = COMPARE_TEXT,
    ) -> tuple[Node, ...]:
        """Translate operands; refuse texts."""
        parts = tuple(self.node(node, depth + 1) for node in nodes)
        for node, part in zip(nodes, parts, strict=True):
            if part.kind == "text":
                raise self.refuse(node, got, remedy)
        return parts
