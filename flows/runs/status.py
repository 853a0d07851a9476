"""The state of an output folder: which of its files are current, stale, missing or quarantined, since when and why."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Literal, get_args

from catalogs.errors import CatalogError
from flows.runs.allowed_roots import check_inside
from flows.runs.manifest import Manifest
from flows.runs.outputs import Output, file_sha256

__all__ = ["FileStatus", "FolderStatus", "folder_status", "read_status"]

State = Literal["quarantined", "stale", "missing", "current"]


@dataclass(frozen=True, kw_only=True)
class FileStatus:
    """One file of a release: its state, since when (ISO 8601, UTC; '' where that is not known), and why.

    A current copy is of its input as it is now.  A stale copy is of an earlier state of its input, or of an input that
    is gone.  A missing copy was deleted, or has another size.  A quarantined file has no copy.
    """

    name: str
    state: State
    since: str
    why: str


@dataclass(frozen=True, kw_only=True)
class FolderStatus:
    """The release in an output folder, the number of its files by state, and each file, troubled ones first.

    `quarantined` counts the files that cannot be annotated, also those of which a stale copy stays.
    """

    out: Path
    model: str
    release: int
    created: str
    counts: Mapping[State, int]
    quarantined: int
    files: tuple[FileStatus, ...]


def read_status(out: Path) -> FolderStatus:
    """Return the state of an output folder; CatalogError where it has no manifest."""
    manifest = Manifest.read(out)
    if manifest is None:
        raise CatalogError(
            f"{out}: got a folder without a manifest, expected a folder that `blr classify` or `blr reprocess` wrote; "
            "name its folder of outputs"
        )
    return folder_status(out, manifest)


def folder_status(out: Path, manifest: Manifest) -> FolderStatus:
    """Return the state of the files in a folder with this manifest; an input is read only where its state differs."""
    bad = {q.name: q for q in manifest.quarantined}
    files = [
        FileStatus(name=q.name, state="quarantined", since=q.since, why=q.reason)
        for q in manifest.quarantined
        if manifest.find(q.name) is None
    ]
    for output in manifest.outputs:
        if not (out / output.name).is_file() or (out / output.name).stat().st_size != output.size:
            files.append(
                FileStatus(
                    name=output.name,
                    state="missing",
                    since="",
                    why="the copy was deleted, or has another size",
                )
            )
        elif output.name in bad:
            q = bad[output.name]
            files.append(FileStatus(name=q.name, state="stale", since=q.since, why=q.reason))
        else:
            files.append(_by_input(output, out))
    counts = Counter(file.state for file in files)
    order = get_args(State)
    return FolderStatus(
        out=out,
        model=manifest.model,
        release=manifest.release,
        created=manifest.created,
        counts={state: counts[state] for state in order},
        quarantined=len(bad),
        files=tuple(sorted(files, key=lambda file: (order.index(file.state), file.name))),
    )


def _by_input(output: Output, out: Path) -> FileStatus:
    """Return the state of a copy by its input: a URL counts as unchanged until a run asks its server."""
    if "://" in output.input_path:
        return FileStatus(name=output.name, state="current", since="", why="")
    path = out / output.input_path
    if not path.is_file():
        return FileStatus(name=output.name, state="stale", since="", why="its input is gone")
    if output.input.looks_like(path) or file_sha256(check_inside(path, key="status")) == output.input.sha256:
        return FileStatus(name=output.name, state="current", since="", why="")
    changed = datetime.fromtimestamp(path.stat().st_mtime, UTC).isoformat(timespec="seconds")
    return FileStatus(name=output.name, state="stale", since=changed, why="its input has changed")
