"""Builds the inner loops of `blr` in C, `blr/_loops`, into the wheel; without a compiler the wheel is pure Python.

Hatchling calls it: also for an editable install, where the library is put beside its sources.
"""

from __future__ import annotations

import os
import shutil
import sys
import sysconfig
import tempfile
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

__all__ = ["LoopsBuildHook"]

# Code for one Python's stable interface runs on all later ones.
ABI = "cp311-abi3"


class LoopsBuildHook(BuildHookInterface):  # type: ignore[type-arg]
    """One C file, compiled by whatever compiles extensions for this Python."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:  # noqa: ARG002  Hatchling's name
        """Compile, and name the library as a part of the wheel; BLR_NO_COMPILER=1 leaves it out."""
        if os.environ.get("BLR_NO_COMPILER") == "1":
            return
        folder = Path(self.root, "blr")
        try:
            library = newest(folder) or compiled(folder)
        except Exception as error:  # noqa: BLE001  whatever a compiler says: NumPy does the work without it
            self.app.display_warning(f"blr's loops in C were not built, NumPy does their work: {error}")
            return
        build_data["artifacts"].append(f"/blr/{library.name}")
        build_data["pure_python"] = False
        build_data["tag"] = f"{ABI}-{sysconfig.get_platform().replace('-', '_').replace('.', '_')}"


def newest(folder: Path) -> Path | None:
    """Return the library beside the sources where it is newer than all of them: an editable install builds twice."""
    libraries = [path for path in folder.glob("_loops.*") if path.suffix in {".so", ".pyd"}]
    changed = max(path.stat().st_mtime for path in (folder / "loops").iterdir())
    return next((path for path in libraries if path.stat().st_mtime > changed), None)


def compiled(folder: Path) -> Path:
    """Compile `loops/loops.c` of a folder into a library beside it; return its path."""
    from setuptools import Distribution, Extension  # noqa: PLC0415  slow to import
    from setuptools.command.build_ext import build_ext  # noqa: PLC0415

    flags = [] if sys.platform == "win32" else ["-O3", "-g0", "-Wno-psabi", "-Wno-maybe-uninitialized"]
    extension = Extension(
        "_loops", [str(folder / "loops" / "loops.c")], py_limited_api=True, extra_compile_args=flags
    )
    with tempfile.TemporaryDirectory() as scratch:
        command = build_ext(Distribution({"ext_modules": [extension]}))
        command.build_temp, command.build_lib = scratch, scratch
        command.ensure_finalized()
        command.run()
        built = Path(command.get_ext_fullpath("_loops"))
        # Into its place in one step: a process that has the old one loaded keeps it.
        waiting = folder / f".{built.name}.new"
        shutil.copyfile(built, waiting)
        waiting.chmod(0o755)
        return waiting.replace(folder / built.name)
