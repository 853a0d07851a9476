"""A model as a file: ASDF with a schema, checked at load, and no code in it."""

from __future__ import annotations

import hashlib
import warnings
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from threading import Lock
from typing import Any

import asdf
import numpy as np
from asdf.tags.core import NDArrayType

from catalogs.files.atomic import atomic_path
from flows.errors import ModelError
from flows.models._asdf_limits import check_blocks, check_tree
from flows.models._earlier_versions import Tree, read_metrics, read_trust
from flows.models.description import Metrics, TrustSummary
from flows.models.model import SCHEMA_VERSION, Model, digest

__all__ = [
    "ModelFacts",
    "is_model_file",
    "read_facts",
    "read_model",
    "read_tree",
    "write_model",
    "write_tree",
]

SCHEMA = Path(__file__).parents[1] / "schemas" / "model-1.yaml"
MOST_KEPT = 4
"""Models that are kept: a run reads its model twice, and a server has run after run of the same few."""
SMALL = 1 << 20
"""Most bytes of a file whose model is kept; of larger ones, reading the arrays takes the time."""
_KEPT: dict[str, Model] = {}
"""Models by the SHA-256 of their files, the oldest first."""
_KEEPING = Lock()


def write_model(model: Model, path: Path) -> None:
    """Write the model whole or not at all."""
    file = asdf.AsdfFile(model.to_tree(), custom_schema=str(SCHEMA))
    with atomic_path(path) as temporary:
        file.write_to(temporary)


def read_model(path: Path) -> Model:
    """Return the model in a file; ModelError where it is missing, damaged, or newer than this code.

    A small file that has the bytes of one that was read before is not parsed again.
    """
    seen = _small_digest(path)
    model = _KEPT.get(seen)
    if model is None:
        model = _parsed_model(path)
        if seen and seen == _small_digest(path):  # the file did not change while it was parsed
            with _KEEPING:
                while len(_KEPT) >= MOST_KEPT:
                    del _KEPT[next(iter(_KEPT))]
                _KEPT[seen] = model
    return replace(model, folder=path.parent)


def _small_digest(path: Path) -> str:
    """Return the SHA-256 of a small file; nothing for a large one, and for one that cannot be read."""
    try:
        if not path.is_file():
            return ""
        with path.open("rb") as stream:
            content = stream.read(SMALL + 1)
    except OSError:  # the parser says what is wrong
        return ""
    return hashlib.sha256(content).hexdigest() if len(content) <= SMALL else ""


def _parsed_model(path: Path) -> Model:
    tree = read_tree(path)
    _check_version(path, tree)
    try:
        asdf.schema.validate(tree, schema=_schema())
        model = Model.from_tree(tree)
    except Exception as error:  # as below
        raise _damaged(path, str(error)) from error
    if tree["digest"] != digest(tree):
        raise _damaged(path, "its numbers do not match the checksum that the file states")
    return model


@dataclass(frozen=True, kw_only=True)
class ModelFacts:
    """What a list of models shows of one."""

    trust: TrustSummary
    metrics: Metrics


def read_facts(path: Path) -> ModelFacts:
    """Return what a list of models shows; no array is read, and no digest checked.

    Raises
    ------
    ModelError
        If the file is missing or damaged.
    """
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            check_blocks(path)
            with asdf.open(path, lazy_load=True, memmap=False) as file:
                check_tree(file.tree, path.stat().st_size)
                return ModelFacts(
                    trust=read_trust(file.tree["trust"], str(path)),
                    metrics=read_metrics(file.tree["metrics"], str(path)),
                )
    except Exception as error:  # as in read_tree
        raise _damaged(path, str(error) or type(error).__name__) from error


def is_model_file(path: Path) -> bool:
    """Say whether a file begins as ASDF files do."""
    if not path.is_file():
        return False
    with path.open("rb") as stream:
        return stream.read(5) == b"#ASDF"


@cache
def _schema() -> Any:
    return asdf.schema.load_schema(str(SCHEMA))


def write_tree(tree: Tree, path: Path) -> None:
    """Write scalars, texts, lists and arrays as ASDF, whole or not at all."""
    with atomic_path(path) as temporary:
        asdf.AsdfFile(dict(tree)).write_to(temporary)


def read_tree(path: Path) -> Tree:
    """Return what an ASDF file holds, its checksums verified."""
    if not path.is_file():
        raise ModelError(
            f"{path}: there is no such file, expected a model; `blr models list` shows the models of a store"
        )
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error")  # asdf only warns of some damage, as of an unknown tag
            check_blocks(path)
            with asdf.open(path, lazy_load=True, memmap=False, validate_checksums=True) as file:
                check_tree(file.tree, path.stat().st_size)
                return {str(key): _in_memory(value) for key, value in file.tree.items()}
    except Exception as error:  # whatever it is, the user's remedy is the same
        raise _damaged(path, str(error) or type(error).__name__) from error


def _in_memory(node: Any) -> Any:
    """Return part of a tree with its arrays read; their checksums are verified then."""
    if isinstance(node, Mapping):
        return {key: _in_memory(value) for key, value in node.items()}
    if isinstance(node, list):
        return [_in_memory(value) for value in node]
    return np.array(node) if isinstance(node, NDArrayType) else node


def _check_version(path: Path, tree: Tree) -> None:
    if tree.get("format") != "blr-model":
        raise ModelError(
            f"{path}: got an ASDF file that is not a model, expected one that `blr train` wrote; correct the path"
        )
    version = tree.get("schema_version")
    if isinstance(version, int) and version > SCHEMA_VERSION:
        raise ModelError(
            f"{path}: got a model file of schema {version}, which a newer version of blr wrote, expected at "
            f"most {SCHEMA_VERSION}; upgrade blr, or train the model again"
        )


def _damaged(path: Path, reason: str) -> ModelError:
    first_line = reason.partition("\n")[0]
    return ModelError(
        f"{path}: got a damaged model file ({first_line}), expected one as `blr train` wrote it; "
        "restore it from a copy, or delete its folder and train again"
    )
