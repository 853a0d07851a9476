"""The lists of inputs and outputs in the JSON of a manifest, for up to a hundred files."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from flows.runs.counts import FileCounts
from flows.runs.outputs import FileState, Output

__all__ = ["ManifestInput", "ManifestOutput", "listed", "listed_outputs"]


@dataclass(frozen=True, kw_only=True)
class ManifestInput:
    """An input of `manifest.json`."""

    path: str
    sha256: str
    size: int
    mtime_ns: int
    inode: int
    tag: str = ""


@dataclass(frozen=True, kw_only=True)
class ManifestOutput:
    """An output of `manifest.json`; `input` is the hash of its input."""

    path: str
    sha256: str
    size: int
    mtime_ns: int = 0
    inode: int = 0
    rows: int
    input: str


def listed(outputs: Sequence[Output]) -> tuple[tuple[ManifestInput, ...], tuple[ManifestOutput, ...]]:
    """Return the entries of a manifest for outputs and for their inputs."""
    return (
        tuple(ManifestInput(path=o.input_path, **vars(o.input)) for o in outputs),
        tuple(
            ManifestOutput(
                path=o.name,
                sha256=o.sha256,
                size=o.size,
                mtime_ns=o.mtime_ns,
                inode=o.inode,
                rows=o.n_rows,
                input=o.input.sha256,
            )
            for o in outputs
        ),
    )


def listed_outputs(
    inputs: Sequence[ManifestInput], outputs: Sequence[ManifestOutput], counts: Mapping[str, FileCounts]
) -> tuple[Output, ...]:
    """Return the outputs that a manifest lists, each with its `counts`; ValueError where an input is missing."""
    return tuple(
        Output(
            name=o.path,
            sha256=o.sha256,
            size=o.size,
            n_rows=o.rows,
            input_path=i.path,
            input=FileState(i.sha256, i.size, i.mtime_ns, i.inode, i.tag),
            mtime_ns=o.mtime_ns,
            inode=o.inode,
            summary=counts.get(o.path),
        )
        for o, i in zip(outputs, inputs, strict=True)
    )
