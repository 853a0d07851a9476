"""The tree of a feature expression: all that can be said in the language, and nothing else.

`at` is the place in the text, kept for messages and left out of comparisons.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from catalogs.errors import ExpressionError

__all__ = [
    "Binary",
    "Call",
    "Compare",
    "Element",
    "Logical",
    "Member",
    "Name",
    "Node",
    "Number",
    "Text",
    "Unary",
    "complaint",
    "walk",
]


@dataclass(frozen=True)
class Number:
    """A literal: integers stay exact, so that 64-bit identifiers compare exactly."""

    value: float
    at: int = field(default=0, compare=False)


@dataclass(frozen=True)
class Text:
    """A quoted literal."""

    value: str
    at: int = field(default=0, compare=False)


@dataclass(frozen=True)
class Name:
    """A column."""

    name: str
    at: int = field(default=0, compare=False)


@dataclass(frozen=True)
class Element:
    """One element of a vector column, counted from 0."""

    name: str
    index: tuple[int, ...]
    at: int = field(default=0, compare=False)


@dataclass(frozen=True)
class Unary:
    """`-a`, `+a`, `not a`, `~a`."""

    operator: str
    operand: Node
    at: int = field(default=0, compare=False)


@dataclass(frozen=True)
class Binary:
    """`a + b` and its like; `&` and `|` too."""

    operator: str
    left: Node
    right: Node
    at: int = field(default=0, compare=False)


@dataclass(frozen=True)
class Compare:
    """`a < b <= c`: `operators[i]` stands between `operands[i]` and `operands[i + 1]`."""

    operands: tuple[Node, ...]
    operators: tuple[str, ...]
    at: int = field(default=0, compare=False)


@dataclass(frozen=True)
class Member:
    """`a in ['E', 'S0']`, or `not in` where `negated`."""

    item: Node
    choices: tuple[Number | Text, ...]
    negated: bool = False
    at: int = field(default=0, compare=False)


@dataclass(frozen=True)
class Logical:
    """`a and b and c`, `a or b`."""

    operator: str
    operands: tuple[Node, ...]
    at: int = field(default=0, compare=False)


@dataclass(frozen=True)
class Call:
    """A function of the language."""

    function: str
    arguments: tuple[Node, ...]
    at: int = field(default=0, compare=False)


Node = Number | Text | Name | Element | Unary | Binary | Compare | Member | Logical | Call


def walk(node: Node, *, but: Callable[[Node], bool] = lambda _: False) -> Iterator[Node]:
    """Yield the node and all below it, but for nodes of a kind and what is below them."""
    if but(node):
        return
    yield node
    for part in _parts(node):
        yield from walk(part, but=but)


def _parts(node: Node) -> tuple[Node, ...]:
    match node:
        case Unary():
            return (node.operand,)
        case Binary():
            return node.left, node.right
        case Compare() | Logical():
            return node.operands
        case Member():
            return (node.item,)
        case Call():
            return node.arguments
        case _:
            return ()


def complaint(text: str, at: int, message: str) -> ExpressionError:
    """Return the error that shows the place in the text with a caret below it."""
    # A long expression is cut to the neighbourhood of the fault, so that the caret stays on the screen.
    start = max(0, at - 60)
    shown = ("..." if start else "") + "".join(
        c if c.isprintable() else " " for c in text[start : start + 100]
    )
    caret = " " * (at - start + (3 if start else 0)) + "^"
    return ExpressionError(f"{message}\n    {shown}\n    {caret}")
