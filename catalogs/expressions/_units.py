"""The unit of an expression's values, as far as its columns' units tell.

None is "not known", '' is "none".  A plain number takes the unit of what it is added to or compared with, as
in `bmag - 0.1`; the logarithm of anything has no unit.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import astropy  # its modules load when used

from catalogs.expressions._parser import Node

KEEPING = frozenset({"abs", "hypot", "clip"})


def unit_of(tree: Node, known: Mapping[str, str | None]) -> str | None:
    """Return the unit of an expression's values, '' where they have none, None where it is not known."""
    astropy_unit = unit(tree, known)
    return None if astropy_unit is None else str(astropy_unit.to_string())


def unit(node: Node, known: Mapping[str, str | None]) -> Any:
    """Return the unit of a node as astropy's, or None."""
    match node.kind:
        case "column":
            text = known.get(node.value)
            return None if text is None else astropy.units.Unit(text, parse_strict="silent")
        case "unary" if node.value in "+-":
            return unit(node.parts[0], known)
        case "binary" if node.value not in "&|":
            return binary(node, known)
        case "call":
            return call(node, known)
    return astropy.units.dimensionless_unscaled


def call(node: Node, known: Mapping[str, str | None]) -> Any:
    """Return the unit of what a function gives."""
    if node.value in KEEPING:
        return shared_unit(node.parts, known)
    if node.value == "where":
        return shared_unit(node.parts[1:], known)
    if node.value == "sqrt":
        inner = factor(node.parts[0], known)
        return None if inner is None else inner**0.5
    return astropy.units.dimensionless_unscaled


def binary(node: Node, known: Mapping[str, str | None]) -> Any:
    """Return the unit of an operation with two sides."""
    if node.value in "+-":
        return shared_unit(node.parts, known)
    left, right = (factor(part, known) for part in node.parts)
    if node.value == "**":
        power, sign = node.parts[1], 1
        if power.kind == "unary":
            power, sign = power.parts[0], -1 if power.value == "-" else 1
        if left is None or left == astropy.units.dimensionless_unscaled or power.kind != "number":
            return left if left == astropy.units.dimensionless_unscaled else None
        return left ** (sign * power.value)
    if left is None or right is None:
        return None
    return left * right if node.value == "*" else left / right


def factor(node: Node, known: Mapping[str, str | None]) -> Any:
    """Return the unit of what is multiplied; None of one that astropy cannot read, with which it refuses to compute."""
    astropy_unit = unit(node, known)
    return None if isinstance(astropy_unit, astropy.units.UnrecognizedUnit) else astropy_unit


def shared_unit(nodes: Sequence[Node], known: Mapping[str, str | None]) -> Any:
    """Return the unit that all have, plain numbers aside; None where they differ."""
    node_units = [unit(n, known) for n in nodes if not is_plain(n)]
    if not node_units:
        return astropy.units.dimensionless_unscaled
    return node_units[0] if all(u is not None and u == node_units[0] for u in node_units) else None


def is_plain(node: Node) -> bool:
    """Say whether a node is a number as written, with a sign perhaps."""
    return node.kind == "number" or (node.kind == "unary" and is_plain(node.parts[0]))
