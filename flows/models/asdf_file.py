"""The ASDF file of a model: written with its digest, read without opening anything that it names."""

from __future__ import annotations

import hashlib
import math
import os
import struct
from dataclasses import dataclass, replace
from pathlib import Path
from threading import Lock
from typing import Any, BinaryIO

import numpy as np
import yaml
from numpy.typing import NDArray

from blr.candidates.training import TrainedClassifier
from catalogs.files.atomic import atomic_path
from catalogs.files.folders import open_bytes
from catalogs.metadata.plain_yaml import SafeDumper, YamlError, read_yaml
from flows.documents import from_document
from flows.errors import ModelError
from flows.models.description import Metrics, TrustSummary
from flows.models.model import SCHEMA_VERSION, Model, Tree, digest
from flows.models.store_folder import BEGIN

__all__ = [
    "ModelFacts",
    "read_classifier",
    "read_facts",
    "read_model",
    "read_tree",
    "write_classifier",
    "write_model",
    "write_tree",
]

# A model as a file: ASDF, checked at load, and no code in it.
#
# The file has a YAML text and binary blocks with the arrays.  This module reads the types that it writes, and nothing
# that lies outside of the file: any other tag, a compressed block or an array elsewhere is an error.  What the file
# claims to hold is compared with its size before memory is taken for it.
# https://www.asdf-format.org/projects/asdf-standard/en/latest/file_layout.html

TAGS = "tag:stsci.edu:asdf/"
ROOT = "core/asdf-1.1.0"
ARRAY = "core/ndarray-1.1.0"
ARRAYS = {TAGS + ARRAY, TAGS + "core/ndarray-1.0.0"}
SOFTWARE = {TAGS + ROOT, TAGS + "core/software-1.0.0", TAGS + "core/extension_metadata-1.0.0"}
"""Tags of plain mappings: the tree, and what the library asdf says of itself, which wrote our earlier files."""
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

MOST_KEPT = 4
"""Models that are kept: a run reads its model twice, and a server has run after run of the same few."""
SMALL = 1 << 20
"""Most bytes of a file whose model is kept; of larger ones, reading the arrays takes the time."""
_KEPT: dict[str, Model] = {}
"""Models by the SHA-256 of their files, the oldest first."""
_KEEPING = Lock()


def write_model(model: Model, path: Path) -> None:
    """Write the model whole or not at all."""
    write_tree(model.to_tree(), path)


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
        with open_bytes(path) as stream:
            content = stream.read(SMALL + 1)
    except OSError:  # the parser says what is wrong
        return ""
    return hashlib.sha256(content).hexdigest() if len(content) <= SMALL else ""


def _parsed_model(path: Path) -> Model:
    tree = read_tree(path)
    _check_version(path, tree)
    try:
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
        tree = _read(path, arrays=False)
        return ModelFacts(
            trust=from_document(TrustSummary, tree["trust"], source=str(path)),
            metrics=from_document(Metrics, tree["metrics"], source=str(path)),
        )
    except Exception as error:  # as in read_tree
        raise _damaged(path, str(error) or type(error).__name__) from error


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
        raise _damaged(path, str(error) or type(error).__name__) from error


def _read(path: Path, *, arrays: bool = True) -> Tree:
    """Return what a file holds; without `arrays`, None stands in their places, and no block is read."""
    with open_bytes(path) as stream:
        size = os.fstat(stream.fileno()).st_size
        text, _, rest = stream.read(MOST_TEXT).partition(END_OF_TEXT)
        if not text.startswith(BEGIN) or len(text) == min(size, MOST_TEXT):
            raise ValueError("it has no text of ASDF with an end")
        first = len(text) + len(END_OF_TEXT) + max(rest.find(BLOCK), 0)
        blocks = _Blocks.of(stream, first, size, most=text.count(b"ndarray"))

        def tagged(tag: str, value: Any) -> Any:
            if tag in ARRAYS:
                return blocks.array(value) if arrays else None
            if tag not in SOFTWARE or not isinstance(value, dict):
                raise ValueError(f"it holds a '{tag.removeprefix(TAGS):.80}', which blr does not write")
            return value

        tree = read_yaml(text, tagged)
        if not isinstance(tree, dict):
            raise YamlError("its text is not a mapping")
        if _array_bytes(tree) > REPEATS * size:
            raise ValueError(f"it claims to hold more data than its {size:,} bytes can contain")
        return {str(key): _copied(value) for key, value in tree.items()}


@dataclass
class _Blocks:
    """The blocks of an open file: where their bytes begin, how many they are, their MD5; and those that were read."""

    stream: BinaryIO
    places: list[tuple[int, int, bytes]]
    known: dict[int, bytes]

    @classmethod
    def of(cls, stream: BinaryIO, at: int, size: int, *, most: int) -> _Blocks:
        """Return the blocks from a place of a file on; ValueError where one is compressed, or larger than the file."""
        places: list[tuple[int, int, bytes]] = []
        while True:
            stream.seek(at)
            head = stream.read(len(BLOCK) + SIZE.size + HEADER.size)
            if not head.startswith(BLOCK) or len(places) > most:
                return cls(stream, places, {})
            if len(head) < len(BLOCK) + SIZE.size + HEADER.size:
                raise ValueError("its last block is not complete")
            (header_size,) = SIZE.unpack_from(head, len(BLOCK))
            flags, compression, kept, used, inflated, md5 = HEADER.unpack_from(head, len(BLOCK) + SIZE.size)
            at += len(BLOCK) + SIZE.size + header_size
            if flags or compression.strip(b"\0"):
                raise ValueError(f"it holds blocks compressed by {compression!r}, which blr does not use")
            if at + kept > size or not inflated == used <= kept:
                raise ValueError(
                    f"a block claims {max(kept, used, inflated):,} bytes, more than the file has"
                )
            places.append((at, used, md5))
            at += kept

    def array(self, described: Any) -> NDArray[Any]:
        """Return an array of a block, without a copy of its bytes; ValueError unless it is one that blr writes."""
        allowed = {"source", "datatype", "byteorder", "shape", "offset", "strides"}
        if not isinstance(described, dict) or not described.keys() <= allowed:
            raise ValueError("it holds an array that is described as blr does not")
        source, name = described.get("source"), described.get("datatype")
        if type(source) is not int or not 0 <= source < len(self.places):
            raise ValueError(f"it names the array '{source!s:.80}', expected one of the file's blocks")
        if not isinstance(name, str) or name not in TYPES:
            raise ValueError(f"it holds an array of the type '{name!s:.80}', which blr does not write")
        order = {"little": "<", "big": ">"}[described["byteorder"]]
        strides = described.get("strides")
        return np.ndarray(
            tuple(described["shape"]),
            np.dtype(order + TYPES[name]),
            self._bytes(source),
            described.get("offset", 0),
            None if strides is None else tuple(strides),
        )

    def _bytes(self, source: int) -> bytes:
        if source not in self.known:
            at, used, md5 = self.places[source]
            self.stream.seek(at)
            content = self.stream.read(used)
            if any(md5) and hashlib.md5(content, usedforsecurity=False).digest() != md5:
                raise ValueError(f"the bytes of block {source} do not match their checksum")
            self.known[source] = content
        return self.known[source]


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


# A classifier of `blr.fit_default` as an ASDF file, for those who train from arrays.


def write_classifier(trained: TrainedClassifier, path: Path | str) -> None:
    """Write a classifier of `blr.fit_default` to an ASDF file, whole or not at all.

    Raises
    ------
    OSError
        If the file cannot be written.

    Examples
    --------
    >>> flows.write_classifier(trained, "trained.asdf")  # doctest: +SKIP
    """
    write_tree(trained.to_dict(), Path(path))


def read_classifier(path: Path | str) -> TrainedClassifier:
    """Return the classifier of `write_classifier`.

    Raises
    ------
    ModelError
        If the file is missing, damaged, or holds something else.

    Examples
    --------
    >>> flows.read_classifier("trained.asdf").trust.verdict  # doctest: +SKIP
    'green'
    """
    tree = read_tree(Path(path))
    try:
        return TrainedClassifier.from_dict(tree)
    except Exception as error:  # a damaged file may raise anything
        raise ModelError(
            f"{path}: got a file without a whole classifier ({error}), expected one of flows.write_classifier; "
            "write it again"
        ) from error
