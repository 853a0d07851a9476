"""Which versions of packages decide about the bytes of a result, here and on workers."""

from __future__ import annotations

import platform
from collections.abc import Mapping
from functools import cache
from importlib.metadata import version

from blr import compiled
from flows.version import code_version

__all__ = ["difference", "installed"]

PACKAGES = ("numpy", "scipy", "pyarrow", "astropy")


@cache
def installed() -> Mapping[str, str]:
    """Return what decides in this process, by name: blr and its loops in C, Python without its last part, packages."""
    python = ".".join(platform.python_version_tuple()[:2])
    loops = "none" if compiled.loops is None else compiled.loops.instructions
    packages = {name: version(name) for name in PACKAGES}
    return {"blr": code_version(), "loops in C": loops, "python": python, **packages}


def difference(where: str, found: Mapping[str, str], expected: Mapping[str, str]) -> str:
    """Return how the versions of a worker differ from those of the run, in one sentence; '' where they are the same."""
    differ = [name for name in expected if found.get(name) != expected[name]]
    if not differ:
        return ""
    theirs = ", ".join(f"{name} {found.get(name, 'missing')}" for name in differ)
    ours = ", ".join(f"{name} {expected[name]}" for name in differ)
    return (
        f"{where}: got {theirs}, expected {ours}, as on the machine that started the run, since other "
        "versions may give slightly different numbers; install the same versions there"
    )
