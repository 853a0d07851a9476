"""A trained model: everything that prediction needs, and where it came from; and its ASDF file, without code in it."""

from __future__ import annotations

import hashlib
import json
import math
import os
import re
import struct
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields, replace
from functools import cache, lru_cache
from pathlib import Path
from typing import Any, BinaryIO, Literal

import numpy as np
import yaml
from numpy.typing import NDArray

from blr.arrays import html_table
from blr.candidates.candidate import CandidateRow
from blr.classifier import Classifier
from blr.trust.verdict import Trust
from catalogs.catalog.catalog import ColumnMetadata
from catalogs.errors import counted
from catalogs.files import atomic_path, open_bytes
from catalogs.metadata.astropy_header import SafeDumper, YamlError, read_yaml
from flows.documents import from_document, to_document
from flows.errors import ModelError, lacks_memory
from flows.models.description import Metrics, ModelDescription, TrainingDescription
from flows.models.store import BEGIN, VERSION_LENGTH, VERSION_PATTERN
from flows.specification.specification import Specification, canonical_json, specification_hash
from flows.specification.toml_file import parse_specification, specification_toml

SCHEMA_VERSION = 1
"""Raised when an older reader would misread the file."""

Tree = Mapping[str, Any]
"""The content of an ASDF file, or a part of it: scalars, texts and arrays, and lists and mappings of them."""


@dataclass(frozen=True, kw_only=True, repr=False)
class Model:
    """A trained model: `train` makes it, `classify` uses it.

    `candidates` is the table of the candidates with their evidence; `selected` is the row that became the model.
    `columns` is the metadata of the columns that the features need, as in the labelled catalogue.  `folder` is the
    folder that the model was read from, or None for a model that has just been made.

    Examples
    --------
    >>> model = flows.Store.named("models").load("morphology")  # doctest: +SKIP
    >>> model  # doctest: +SKIP
    <Model morphology@6c60a42f65d7: classes early, late; 2 features; log loss 0.5581 nats an object on ...>
    """

    name: str
    version: str
    classes: tuple[str, ...]
    features: tuple[str, ...]
    specification: Specification
    classifier: Classifier
    candidates: tuple[CandidateRow, ...]
    selected: int
    trust: Trust
    metrics: Metrics
    training: TrainingDescription
    columns: Mapping[str, ColumnMetadata]
    code_version: str
    folder: Path | None = None

    def __repr__(self) -> str:
        loss = f"log loss {self.metrics.log_loss:.4f} nats an object on {self.metrics.n:,} rows"
        size = f"classes {', '.join(self.classes)}; {counted(len(self.features), 'feature')}"
        return f"<Model {self.label}: {size}; {loss}, trust {self.trust.verdict}>"

    def _repr_html_(self) -> str:
        """Return what the model is and how good it is, with the table of its candidates."""
        metrics, training = self.metrics, self.training
        losses = f"{metrics.log_loss:.4f} (class shares alone {metrics.log_loss_baseline:.4f})"
        facts = [
            ["classes", ", ".join(self.classes)],
            ["features", ", ".join(self.features)],
            ["log loss, nats an object", losses],
            ["accuracy", f"{metrics.accuracy:.1%}"],
            ["judged on", f"{metrics.n:,} {metrics.judged_by} rows"],
            ["labelled rows", f"{sum(training.training_counts) + sum(training.held_out_counts):,}"],
            ["trust", "; ".join([self.trust.verdict, *self.trust.reasons])],
        ]
        candidates = [
            ["selected" if i == self.selected else "", row.basis, f"{row.weight:.3f}", row.verdict or "–"]
            for i, row in enumerate(self.candidates)
        ]
        table = html_table(["", "candidate", "probability", "trust"], candidates)
        return html_table(["", self.label], facts) + table

    @property
    def label(self) -> str:
        """`NAME@VERSION`, as the command line takes it."""
        return f"{self.name}@{self.version}"

    @property
    def id(self) -> int:
        """The 63 bits that each row of an annotated catalogue carries."""
        return model_id(self.name, self.version)

    def described(
        self, status: Literal["trained", "exists", "stored"], *, path: str | None, champion: str | None
    ) -> ModelDescription:
        """Return what people ask of a model that lies in a folder, all but what predicts."""
        specification = self.specification
        of_class = specification.label.classes or {}
        spellings = () if specification.label.votes else tuple(of_class.get(c, (c,)) for c in self.classes)
        own = {part.name for part in fields(ModelDescription)} & vars(self).keys()
        return ModelDescription(
            **{name: getattr(self, name) for name in own},
            status=status,
            path=path,
            champion=champion,
            model=self.label,
            model_id=self.id,
            spellings=spellings,
            selected_by=specification.select.by,
            seed=specification.seed,
            specification_hash=specification_hash(specification),
        )

    def to_tree(self) -> Tree:
        """Return the tree that the model file holds, its digest included."""
        tree: Tree = {
            "format": "blr-model",
            "schema_version": SCHEMA_VERSION,
            "name": self.name,
            "version": self.version,
            "model_id": self.id,
            "classes": list(self.classes),
            "features": list(self.features),
            # ASDF sorts keys; the order of classes and features is meant, and TOML keeps it.
            "specification": specification_toml(self.specification),
            "specification_hash": specification_hash(self.specification),
            "classifier": self.classifier.to_dict(),
            "candidates": [to_document(row) for row in self.candidates],
            "selected": self.selected,
            "trust": to_document(self.trust),
            "metrics": to_document(self.metrics),
            "training": to_document(self.training),
            "columns": {name: to_document(column) for name, column in self.columns.items()},
            "code_version": self.code_version,
        }
        return {**tree, "digest": digest(tree)}

    @classmethod
    def from_tree(cls, tree: Tree) -> Model:
        """Return the model in a tree that `to_tree` made."""
        columns, source = tree["columns"].items(), "the model"
        model = cls(
            name=tree["name"],
            version=tree["version"],
            classes=tuple(tree["classes"]),
            features=tuple(tree["features"]),
            specification=parse_specification(tree["specification"], source="the model's specification"),
            classifier=Classifier.from_dict(tree["classifier"]),
            candidates=tuple(from_document(CandidateRow, row, source=source) for row in tree["candidates"]),
            selected=tree["selected"],
            trust=from_document(Trust, tree["trust"], source=source),
            metrics=from_document(Metrics, tree["metrics"], source=source),
            training=from_document(TrainingDescription, tree["training"], source=source),
            columns={name: from_document(ColumnMetadata, column, source=source) for name, column in columns},
            code_version=str(tree["code_version"]),
        )
        model._check()
        return model

    def _check(self) -> None:
        """Raise ValueError where the parts of a stored model do not fit together."""
        own, K, F, training = self.classifier, len(self.classes), len(self.features), self.training
        sizes = {F, own.moments.n_features, own.domain.moments.n_features}
        of_members = {(m.posterior.problem.n_classes, {*m.columns} <= {*range(F)}) for m in own.members}
        if self.name != self.specification.name or not re.fullmatch(VERSION_PATTERN, self.version):
            raise ValueError(f"it is called {self.label!r:.80}, expected {self.specification.name}@VERSION")
        if own.features != self.features or len(sizes) > 1 or of_members != {(K, True)}:
            raise ValueError(f"its classifier is not of {K} classes and the features {self.features}")
        unknown = set(self.features).difference(self.specification.features)
        if unknown:
            raise ValueError(f"its specification has no feature {min(unknown)!r:.80}")
        of_classes = ("training_counts", "held_out_counts", "class_share")
        lists = [(name, getattr(training, name)) for name in of_classes]
        lists += [("confusion", values) for values in (self.metrics.confusion, *self.metrics.confusion)]
        for name, values in lists:
            if len(values) != K:
                raise ValueError(f"its {name} has {len(values)} values, expected one for each of {K} classes")
        if type(self.selected) is not int or not 0 <= self.selected < len(self.candidates):
            raise ValueError(f"it selects the candidate {self.selected!r:.80} of {len(self.candidates)}")
        # What people are shown of it: texts and finite numbers.
        json.dumps(to_document(self.described("stored", path=None, champion=None)), allow_nan=False)


def make_version(specification: Specification, content_hash: str, code_version: str) -> str:
    """Return the version: a hash of what goes in, never of fitted numbers, so the same on every machine."""
    text = "\n".join((canonical_json(specification), content_hash, code_version))
    return hashlib.sha256(text.encode()).hexdigest()[:VERSION_LENGTH]


def model_id(name: str, version: str) -> int:
    """Return the model's number: 63 bits, for signed 64-bit columns."""
    head = hashlib.sha256(f"{name}@{version}".encode()).digest()[:8]
    return int.from_bytes(head, "big") >> 1


def digest(tree: Tree) -> str:
    """Return the SHA-256 over a tree's scalars, lists and arrays.

    ASDF's own checksums cover the blocks of arrays alone, not the numbers written in its text.
    """
    total = hashlib.sha256()
    _feed(total, {key: value for key, value in tree.items() if key not in _ASDF_KEYS})
    return total.hexdigest()


_ASDF_KEYS = ("digest", "asdf_library", "history")


def _feed(total: Any, value: Any) -> None:
    if isinstance(value, Mapping):
        total.update(b"{%d" % len(value))
        for key in sorted(value):
            _feed(total, key)
            _feed(total, value[key])
    elif isinstance(value, (list, tuple)):
        total.update(b"[%d" % len(value))
        for item in value:
            _feed(total, item)
    elif isinstance(value, np.ndarray):
        total.update(f"a{value.dtype.kind}{value.shape}".encode())
        total.update(np.ascontiguousarray(value).astype(value.dtype.newbyteorder("<")).tobytes())
    else:
        plain = value.item() if isinstance(value, np.generic) else value
        total.update(f"{type(plain).__name__}:{json.dumps(plain)};".encode())


# A model as a file: ASDF, checked at load, and no code in it.
#
# The file has a YAML text and binary blocks with the arrays.  This module reads the types that it writes, and nothing
# that lies outside of the file: any other tag, a compressed block or an array elsewhere is an error.  What the file
# claims to hold is compared with its size before memory is taken for it.
# https://www.asdf-format.org/projects/asdf-standard/en/latest/file_layout.html

TAGS = "tag:stsci.edu:asdf/"
ROOT = "core/asdf-1.1.0"
ARRAY = "core/ndarray-1.1.0"
SOFTWARE = {TAGS + ROOT, TAGS + "core/software-1.0.0", TAGS + "core/extension_metadata-1.0.0"}
"""Tags of plain mappings: the tree, and what the library asdf says of itself in a file that it has copied."""
TYPES = {"bool8": "?"} | {
    f"{kind}{8 * size}": f"{kind[0]}{size}"
    for kind, sizes in {"int": (1, 2, 4, 8), "uint": (1, 2, 4, 8), "float": (4, 8)}.items()
    for size in sizes
}
"""NumPy's codes of types, by their names in ASDF."""
NAMES = {code: name for name, code in TYPES.items()}
END_OF_TEXT = b"\n...\n"
MOST_TEXT = 32 << 20
"""Most bytes of a file's text; a model of a hundred members has two million."""
BLOCK = b"\xd3BLK"
SIZE = struct.Struct(">H")
HEADER = struct.Struct(">I4sQQQ16s")
"""Flags, compression, bytes kept for the block, bytes used of them, bytes once inflated, MD5."""
REPEATS = 4
"""Most bytes of arrays for each byte of the file: references may repeat an array."""


def read_model(path: Path) -> Model:
    """Return the model in a file; ModelError where it is missing, damaged, or newer than this code.

    A file that has not changed since is not read again.
    """
    try:
        status = path.stat()
    except OSError:  # reading says what is wrong
        return _read_model(path, ())
    return _read_model(path, (status.st_mtime_ns, status.st_size, status.st_ino))


@lru_cache(maxsize=2)
def _read_model(path: Path, state: tuple[int, ...]) -> Model:
    del state
    tree = read_tree(path)
    if tree.get("format") != "blr-model":
        raise ModelError(
            f"{path}: got an ASDF file that is not a model, expected one that `blr train` wrote; correct the path"
        )
    if isinstance(version := tree.get("schema_version"), int) and version > SCHEMA_VERSION:
        raise ModelError(
            f"{path}: got a model file of schema {version}, which a newer version of blr wrote, expected at most "
            f"{SCHEMA_VERSION}; upgrade blr, or train the model again"
        )
    try:
        model = Model.from_tree(tree)
    except Exception as error:  # as below
        if lacks_memory(error):
            raise
        raise _damaged(path, str(error)) from error
    if tree["digest"] != digest(tree):
        raise _damaged(path, "its numbers do not match the checksum that the file states")
    return replace(model, folder=path.parent)


def write_tree(tree: Tree, path: Path) -> None:
    """Write scalars, texts, lists and arrays as ASDF, whole or not at all."""
    blocks: list[NDArray[Any]] = []

    class Dumper(SafeDumper):
        """Writes arrays as blocks, and numbers of NumPy as numbers."""

    def block(dumper: Dumper, array: NDArray[Any]) -> yaml.Node:
        little = np.ascontiguousarray(array, dtype=array.dtype.newbyteorder("<"))
        blocks.append(little)
        described = {
            "source": len(blocks) - 1,
            "datatype": NAMES[little.dtype.str[1:].replace("b1", "?")],
            "byteorder": "little",
            "shape": list(array.shape),
        }
        return dumper.represent_mapping(TAGS + ARRAY, described)

    Dumper.add_multi_representer(np.ndarray, block)
    for kind in (np.number, np.bool_):
        Dumper.add_multi_representer(kind, lambda dumper, number: dumper.represent_data(number.item()))
    text = yaml.dump(
        dict(tree),
        Dumper=Dumper,
        version=(1, 1),
        tags={"!": TAGS},
        explicit_end=True,
        allow_unicode=True,
        default_flow_style=None,
    )
    with atomic_path(path) as temporary, temporary.open("wb") as stream:
        stream.write(f"#ASDF 1.0.0\n#ASDF_STANDARD 1.6.0\n{text.replace('---', f'--- !{ROOT}', 1)}".encode())
        for array in blocks:
            n, checksum = array.nbytes, hashlib.md5(array.tobytes(), usedforsecurity=False).digest()
            stream.write(BLOCK + SIZE.pack(HEADER.size) + HEADER.pack(0, bytes(4), n, n, n, checksum))
            stream.write(array.tobytes())


def read_tree(path: Path) -> Tree:
    """Return what an ASDF file holds, its checksums verified."""
    if not path.is_file():
        raise ModelError(
            f"{path}: there is no such file, expected a model; `blr models list` shows the models of a store"
        )
    try:
        return _read(path)
    except Exception as error:  # whatever it is, the user's remedy is the same
        if isinstance(error, PermissionError) or lacks_memory(error):  # the file may be whole
            raise
        raise _damaged(path, str(error) or type(error).__name__) from error


def _read(path: Path) -> Tree:
    """Return what a file holds."""
    with open_bytes(path) as stream:
        size = os.fstat(stream.fileno()).st_size
        text, _, rest = stream.read(MOST_TEXT).partition(END_OF_TEXT)
        if not text.startswith(BEGIN) or len(text) == min(size, MOST_TEXT):
            raise ValueError("it has no text of ASDF with an end")
        first = len(text) + len(END_OF_TEXT) + max(rest.find(BLOCK), 0)
        places = _blocks(stream, first, size, most=text.count(b"ndarray"))

        @cache
        def content(block: int) -> bytes:
            at, used, md5 = places[block]
            stream.seek(at)
            content = stream.read(used)
            if any(md5) and hashlib.md5(content, usedforsecurity=False).digest() != md5:
                raise ValueError(f"the bytes of block {block} do not match their checksum")
            return content

        def tagged(tag: str, value: Any) -> Any:
            if tag == TAGS + ARRAY:
                return _array(value, len(places), content)
            if tag not in SOFTWARE or not isinstance(value, dict):
                raise ValueError(f"it holds a '{tag.removeprefix(TAGS):.80}', which blr does not write")
            return value

        tree = read_yaml(text, tagged)
        if not isinstance(tree, dict):
            raise YamlError("its text is not a mapping")
        if _array_bytes(tree) > REPEATS * size:
            raise ValueError(f"it claims to hold more data than its {size:,} bytes can contain")
        return {str(key): _copied(value) for key, value in tree.items()}


def _blocks(stream: BinaryIO, at: int, size: int, *, most: int) -> list[tuple[int, int, bytes]]:
    """Return the blocks from a place of a file on: where their bytes begin, how many they are, and their MD5."""
    places: list[tuple[int, int, bytes]] = []
    while True:
        stream.seek(at)
        head = stream.read(len(BLOCK) + SIZE.size + HEADER.size)
        if not head.startswith(BLOCK) or len(places) > most:
            return places
        if len(head) < len(BLOCK) + SIZE.size + HEADER.size:
            raise ValueError("its last block is not complete")
        (header_size,) = SIZE.unpack_from(head, len(BLOCK))
        flags, compression, kept, used, inflated, md5 = HEADER.unpack_from(head, len(BLOCK) + SIZE.size)
        at += len(BLOCK) + SIZE.size + header_size
        if flags or compression.strip(b"\0"):
            raise ValueError(f"it holds blocks compressed by {compression!r}, which blr does not use")
        if at + kept > size or not inflated == used <= kept:
            raise ValueError(f"a block claims {max(kept, used, inflated):,} bytes, more than the file has")
        places.append((at, used, md5))
        at += kept


def _array(described: Any, n_blocks: int, content: Callable[[int], bytes]) -> NDArray[Any]:
    """Return an array of a block, without a copy of its bytes; ValueError unless it is one that blr writes."""
    allowed = {"source", "datatype", "byteorder", "shape", "offset", "strides"}
    if not isinstance(described, dict) or not described.keys() <= allowed:
        raise ValueError("it holds an array that is described as blr does not")
    source, name = described.get("source"), described.get("datatype")
    if type(source) is not int or not 0 <= source < n_blocks:
        raise ValueError(f"it names the array '{source!s:.80}', expected one of the file's blocks")
    if not isinstance(name, str) or name not in TYPES:
        raise ValueError(f"it holds an array of the type '{name!s:.80}', which blr does not write")
    kind = np.dtype({"little": "<", "big": ">"}[described["byteorder"]] + TYPES[name])
    offset, strides = described.get("offset", 0), described.get("strides")
    strides = None if strides is None else tuple(strides)
    return np.ndarray(tuple(described["shape"]), kind, content(source), offset, strides)


def _array_bytes(node: Any) -> int:
    """Return the bytes of all arrays in a part of a tree, as often as references repeat them."""
    if isinstance(node, np.ndarray):
        return math.prod(node.shape) * node.itemsize
    parts = node.values() if isinstance(node, dict) else node if isinstance(node, list) else ()
    return sum(map(_array_bytes, parts))


def _copied(node: Any) -> Any:
    """Return a part of a tree with arrays of its own, in this machine's order of bytes."""
    if isinstance(node, dict):
        return {key: _copied(value) for key, value in node.items()}
    if isinstance(node, list):
        return [_copied(value) for value in node]
    return node.astype(node.dtype.newbyteorder("=")) if isinstance(node, np.ndarray) else node


def _damaged(path: Path, reason: str) -> ModelError:
    first_line = reason.partition("\n")[0]
    return ModelError(
        f"{path}: got a damaged model file ({first_line}), expected one as `blr train` wrote it; "
        "restore it from a copy, or delete its folder and train again"
    )
