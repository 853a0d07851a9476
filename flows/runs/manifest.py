"""What lies in an output folder and where it came from: `manifest.json`, the truth about what is done.

An input is known by the SHA-256 of its bytes, remembered by size, modification time and inode, or, of one that was
fetched from a URL, by its server's word for the state it was in.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from functools import cached_property
from pathlib import Path, PurePosixPath
from typing import Any

from catalogs.errors import CatalogError
from catalogs.files.atomic import atomic_write_text
from flows.runs.model_reference import ModelReference

__all__ = [
    "MANIFEST",
    "SUMMARY",
    "FileState",
    "Manifest",
    "Output",
    "Quarantined",
    "file_sha256",
    "write_json",
]

MANIFEST = "manifest.json"
SUMMARY = "summary.json"
SCHEMA_VERSION = 1


@dataclass(frozen=True)
class FileState:
    """A file's content hash, and what tells quickly whether it may have changed."""

    sha256: str
    size: int
    mtime_ns: int
    inode: int
    tag: str = ""  # of a fetched file, if its server has a word for its state

    @classmethod
    def hashed(cls, path: Path, size: int, mtime_ns: int, inode: int) -> FileState:
        """Return the state of a file that was looked at, with the hash of its bytes."""
        return cls(file_sha256(path), size, mtime_ns, inode)

    def looks_like(self, path: Path) -> bool:
        """Say whether the file's size, time and inode are still those that were hashed."""
        try:
            seen = path.stat()
        except FileNotFoundError:
            return False
        return (self.size, self.mtime_ns, self.inode) == (seen.st_size, seen.st_mtime_ns, seen.st_ino)

    def to_dict(self) -> dict[str, Any]:
        """Return it as JSON can hold it; most have no tag."""
        return {key: value for key, value in asdict(self).items() if key != "tag" or value}


@dataclass(frozen=True)
class Output:
    """An annotated file: its name in the folder, its hash, and its input's."""

    name: str
    sha256: str
    size: int
    n_rows: int
    input_path: (
        str  # relative to the output folder, so that both can move together; or a URL, as it may be shown
    )
    input: FileState
    mtime_ns: int = 0
    inode: int = 0
    summary: Mapping[str, Any] = field(default_factory=dict)  # kept in `summary.json`, not in the manifest
    difference: Mapping[str, Any] | None = None  # from the last release; goes into the release's report

    def __post_init__(self) -> None:
        """Refuse a name that leads out of the folder: manifests are files, and files can be tampered with."""
        path = PurePosixPath(self.name)
        if not path.parts or path.is_absolute() or ".." in path.parts or path.parts[0].startswith("."):
            raise ValueError(f"got '{self.name}' as an output's name, expected a path inside the folder")

    @classmethod
    def of(cls, tree: Mapping[str, Any]) -> Output:
        """Return the output that `vars` of one describes."""
        return cls(**{**tree, "input": FileState(**tree["input"])})

    def to_dict(self) -> dict[str, Any]:
        """Return it as JSON can hold it."""
        return vars(self) | {"input": self.input.to_dict()}

    @property
    def state(self) -> FileState:
        """The file's own state; a size alone would take one model's FITS file for another's."""
        return FileState(self.sha256, self.size, self.mtime_ns, self.inode)

    def is_in(self, path: Path, *, verify: bool = False) -> bool:
        """Say whether the file there is this one: by its looks, else by its hash."""
        if not path.is_file() or path.stat().st_size != self.size:
            return False
        return (not verify and self.state.looks_like(path)) or file_sha256(path) == self.sha256


@dataclass(frozen=True)
class Quarantined:
    """A file that could not be annotated for reasons of its own; it is tried again once it has changed."""

    name: str
    input_path: str
    reason: str
    input: FileState | None = None  # None where it could not even be read: then it is always tried again

    @classmethod
    def of(cls, tree: Mapping[str, Any]) -> Quarantined:
        """Return the file that `vars` of one describes."""
        state = tree.get("input")
        return cls(**{**tree, "input": None if state is None else FileState(**state)})

    def to_dict(self) -> dict[str, Any]:
        """Return it as JSON can hold it."""
        return asdict(self) | {"input": self.input.to_dict() if self.input else None}


@dataclass(frozen=True)
class Manifest:
    """The outputs of one model and one specification in one folder; never of two."""

    model: str
    model_id: int
    specification_hash: str
    code_version: str
    outputs: tuple[Output, ...] = ()
    quarantined: tuple[Quarantined, ...] = ()
    release: int = 1
    totals: Mapping[str, Any] = field(default_factory=dict)  # what the summary says of all files together
    details: Mapping[str, Any] = field(default_factory=dict)
    created: str = ""

    @cached_property
    def _by_name(self) -> dict[str, Output]:
        return {o.name: o for o in self.outputs}

    def find(self, name: str) -> Output | None:
        """Return the output of that name."""
        return self._by_name.get(name)

    @property
    def model_name(self) -> str:
        """The name of the model, whatever its version."""
        return ModelReference.parse(self.model).name

    @property
    def prefix(self) -> str | None:
        """The prefix of the new columns."""
        classes = (n for n, c in self.details.get("columns", {}).items() if c.get("ucd") == "src.class")
        return next((name.removesuffix("class") for name in classes), None)

    def find_quarantined(self, name: str) -> Quarantined | None:
        """Return what is known of a file of that name that could not be annotated."""
        return next((q for q in self.quarantined if q.name == name), None)

    def same_maker(self, model: str, specification_hash: str) -> bool:
        """Say whether the outputs are of that model and specification."""
        return (self.model, self.specification_hash) == (model, specification_hash)

    def same_outputs(self, other: Manifest) -> bool:
        """Say whether both list the same bytes by the same maker."""
        return self.same_maker(other.model, other.specification_hash) and (
            {(o.name, o.sha256) for o in self.outputs} == {(o.name, o.sha256) for o in other.outputs}
            and {(q.name, q.reason) for q in self.quarantined}
            == {(q.name, q.reason) for q in other.quarantined}
        )

    def write(self, folder: Path) -> Path:
        """Write the manifest of a folder, whole or not at all; return where it is."""
        tree = {
            "format": "blr-manifest",
            "schema_version": SCHEMA_VERSION,
            "created": self.created or datetime.now(UTC).isoformat(timespec="seconds"),
            "release": self.release,
            "model": self.model,
            "model_id": self.model_id,
            "specification_hash": self.specification_hash,
            "versions": {"blr": self.code_version},
            "totals": self.totals,
            **{key: self.details[key] for key in DETAILS if key in self.details},
            "quarantined": [q.to_dict() for q in self.quarantined],
            "inputs": [{"path": o.input_path, **o.input.to_dict()} for o in self.outputs],
            "outputs": [
                {"path": o.name, **o.state.to_dict(), "rows": o.n_rows, "input": o.input.sha256}
                for o in self.outputs
            ],
        }
        write_json(folder / MANIFEST, tree)
        return folder / MANIFEST

    @classmethod
    def read(cls, folder: Path) -> Manifest | None:
        """Return the manifest of a folder, None where it has none."""
        path = folder / MANIFEST
        if not path.is_file():
            return None
        try:
            tree = json.loads(path.read_text(encoding="utf-8"))
            counted = _counted(folder)
            outputs = [
                _output(o, i, counted.get(o["path"], {}))
                for o, i in zip(tree["outputs"], tree["inputs"], strict=True)
            ]
            return cls(
                model=tree["model"],
                model_id=tree["model_id"],
                specification_hash=tree["specification_hash"],
                code_version=tree["versions"]["blr"],
                outputs=tuple(outputs),
                quarantined=tuple(Quarantined.of(q) for q in tree.get("quarantined", [])),
                release=tree.get("release", 1),
                totals=tree.get("totals", {}),
                details={key: tree[key] for key in DETAILS if key in tree},
                created=tree["created"],
            )
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise CatalogError(
                f"{path}: got a file that is no manifest ({error!r}), expected one as `blr classify` wrote it; "
                "move it away, or choose another output folder"
            ) from error


DETAILS = ("classes", "columns", "flags", "position")
"""What a reader needs to understand the columns."""


def _output(output: Mapping[str, Any], source: Mapping[str, Any], counted: Mapping[str, Any]) -> Output:
    known = {key: source[key] for key in ("sha256", "size", "mtime_ns", "inode")}
    state = FileState(**known, tag=source.get("tag", ""))
    return Output(
        name=output["path"],
        sha256=output["sha256"],
        size=output["size"],
        n_rows=output["rows"],
        input_path=source["path"],
        input=state,
        mtime_ns=output.get("mtime_ns", 0),
        inode=output.get("inode", 0),
        summary=counted,
    )


def _counted(folder: Path) -> dict[str, dict[str, Any]]:
    """Return what was counted in each file, as far as the summary is there: without it, a file is done again."""
    try:
        files = json.loads((folder / SUMMARY).read_text(encoding="utf-8"))["files"]
        return {
            name: {key: counts[key] for key in COUNTED if key in counts} for name, counts in files.items()
        }
    except (OSError, ValueError, KeyError, TypeError):
        return {}


COUNTED = ("counted", "tally", "drift", "low_confidence", "shift")
"""What the summary keeps of each file for the summaries of later runs."""


def file_sha256(path: Path) -> str:
    """Return the SHA-256 of a file's bytes, as `sha256sum` prints it."""
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def write_json(path: Path, tree: Any) -> None:
    """Write JSON that people read too; NaN is not JSON, and an error here."""
    atomic_write_text(path, json.dumps(tree, indent=1, allow_nan=False) + "\n")
