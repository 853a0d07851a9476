"""The specification of a table in memory: what a user names of it, in the words of a specification."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import tomlkit

from catalogs.expressions.expression import expression_name, parse
from catalogs.memory.tables import FILE_NAME
from flows.specification.specification import Specification
from flows.specification.toml_file import parse_specification

__all__ = ["Tree", "specified", "table_tree"]

Tree = Mapping[str, Any]
"""A part of a specification, as TOML has it."""


def table_tree(
    label: str | Mapping[str, str],
    features: Sequence[str] | Mapping[str, str],
    classes: Mapping[str, Sequence[str | float]] | None,
    errors: Mapping[str, str] | None,
    object_id: str | None,
    name: str,
) -> dict[str, Any]:
    """Return a specification without candidates, of which all rows train, as TOML has it."""
    named = dict(features) if isinstance(features, Mapping) else {f: expression_name(f) for f in features}
    labels: dict[str, Any] = {"column": label} if isinstance(label, str) else {"votes": dict(label)}
    if classes is not None:
        labels["classes"] = {name: list(spellings) for name, spellings in classes.items()}
    columns = sorted({column for text in named.values() for column in parse(text).names})
    by = "id" if object_id is not None else next(iter(columns), "id")  # of no weight: nothing is held out
    return {
        "name": name,
        "catalog": {"paths": [FILE_NAME]} | ({} if object_id is None else {"id": object_id}),
        "label": labels,
        "features": named,
        "errors": dict(errors or {}),
        "split": {"by": by, "held_out": 0.0},
    }


def specified(tree: Tree, options: Tree | None, file: Path) -> Specification:
    """Return the specification with the options in their tables; SpecificationError where there are no such."""
    whole = dict(tree)
    for key, value in (options or {}).items():
        whole[key] = {**whole.get(key, {}), **value} if isinstance(value, Mapping) else value
    return parse_specification(tomlkit.dumps(whole), source="classifier_from", base_folder=str(file.parent))
