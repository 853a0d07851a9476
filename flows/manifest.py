"""What lies in an output folder and where it came from: `manifest.json`, the truth about what is done.

An input is known by the SHA-256 of its bytes, remembered by size, modification time and inode.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from catalogs.atomic import atomic_write_text
from catalogs.errors import CatalogError

__all__ = [
    "MANIFEST",
    "SUMMARY",
    "FileState",
    "Manifest",
    "Output",
    "file_sha256",
    "file_state",
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

    def looks_like(self, path: Path) -> bool:
        """Say whether the file's size, time and inode are still those that were hashed."""
        seen = path.stat()
        return (self.size, self.mtime_ns, self.inode) == (seen.st_size, seen.st_mtime_ns, seen.st_ino)


@dataclass(frozen=True)
class Output:
    """An annotated file: its name in the folder, its hash, and its input's."""

    name: str
    sha256: str
    size: int
    n_rows: int
    input_path: str  # relative to the output folder, so that both can move together
    input: FileState
    summary: Mapping[str, Any] = field(default_factory=dict)  # kept in `summary.json`, not in the manifest

    @classmethod
    def of(cls, tree: Mapping[str, Any]) -> Output:
        """Return the output that `vars` of one describes."""
        return cls(**{**tree, "input": FileState(**tree["input"])})

    def to_dict(self) -> dict[str, Any]:
        """Return it as JSON can hold it."""
        return asdict(self)


@dataclass(frozen=True)
class Manifest:
    """The outputs of one model and one specification in one folder; never of two."""

    model: str
    model_id: int
    specification_hash: str
    code_version: str
    outputs: tuple[Output, ...] = ()
    created: str = ""
    details: Mapping[str, Any] = field(default_factory=dict)

    def find(self, name: str) -> Output | None:
        """Return the output of that name."""
        return next((o for o in self.outputs if o.name == name), None)

    def same_maker(self, model: str, specification_hash: str) -> bool:
        """Say whether the outputs are of that model and specification."""
        return (self.model, self.specification_hash) == (model, specification_hash)

    def write(self, folder: Path) -> Path:
        """Write the manifest of a folder, whole or not at all; return where it is."""
        tree = {
            "format": "blr-manifest",
            "schema_version": SCHEMA_VERSION,
            "created": datetime.now(UTC).isoformat(timespec="seconds"),
            "model": self.model,
            "model_id": self.model_id,
            "specification_hash": self.specification_hash,
            "versions": {"blr": self.code_version},
            **self.details,
            "inputs": [{"path": o.input_path, **asdict(o.input)} for o in self.outputs],
            "outputs": [
                {
                    "path": o.name,
                    "sha256": o.sha256,
                    "size": o.size,
                    "rows": o.n_rows,
                    "input": o.input.sha256,
                }
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
                created=tree["created"],
            )
        except (ValueError, KeyError, TypeError) as error:
            raise CatalogError(
                f"{path}: got a file that is no manifest ({error!r}), expected one as `blr classify` wrote it; "
                "move it away, or choose another output folder"
            ) from error


def _output(output: Mapping[str, Any], source: Mapping[str, Any], counted: Mapping[str, Any]) -> Output:
    state = FileState(*(source[key] for key in ("sha256", "size", "mtime_ns", "inode")))
    return Output(
        output["path"], output["sha256"], output["size"], output["rows"], source["path"], state, counted
    )


def _counted(folder: Path) -> dict[str, dict[str, Any]]:
    """Return what was counted in each file, as far as the summary is there: without it, a file is done again."""
    try:
        files = json.loads((folder / SUMMARY).read_text(encoding="utf-8"))["files"]
        return {
            name: {key: counts[key] for key in ("tally", "low_confidence")} for name, counts in files.items()
        }
    except (OSError, ValueError, KeyError, TypeError):
        return {}


def file_sha256(path: Path) -> str:
    """Return the SHA-256 of a file's bytes, as `sha256sum` prints it."""
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def file_state(path: Path, known: FileState | None = None) -> FileState:
    """Return a file's state, hashed unless it looks as it did when its hash was taken."""
    if known is not None and known.looks_like(path):
        return known
    seen = path.stat()
    return FileState(file_sha256(path), seen.st_size, seen.st_mtime_ns, seen.st_ino)


def write_json(path: Path, tree: Any) -> None:
    """Write JSON that people read too; NaN is not JSON, and an error here."""
    atomic_write_text(path, json.dumps(tree, indent=1, allow_nan=False) + "\n")
