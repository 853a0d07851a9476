"""A specification as JSON, in the files that a training leaves for its own later steps."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from flows.specification.specification import Specification

__all__ = ["specification_tree", "stored_specification"]


def specification_tree(specification: Specification) -> dict[str, Any]:
    """Return the specification as JSON can hold it, the folder included that its relative paths start from."""
    return specification.model_dump(mode="json")


def stored_specification(tree: Mapping[str, Any]) -> Specification:
    """Return the specification that `specification_tree` made a tree of."""
    return Specification.model_validate(tree)
