"""The page of `bench_speed.py`: every ratio with its spread, its goal, its command, its machine and versions."""

from __future__ import annotations

import json
import os
import platform
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from flows.version import code_version

__all__ = ["Machine", "Measured", "draw_slopes", "read_results", "write_page", "write_results"]

PEERS = (
    "numpy",
    "scipy",
    "scikit-learn",
    "pyarrow",
    "astropy",
    "glum",
    "statsmodels",
    "catboost",
    "laplace-torch",
    "torch",
)

INTRODUCTION = """# What a fit, a probability and a catalogue cost

Written by `bench_speed.py` from `results/speed.json`; do not edit. Every number is a ratio of two times of one round on
one machine: the median of the rounds, with the least and the most. Seconds are beside it to tell what is meant, not
what another machine takes.

- *pass*: one Newton evaluation of the same rows by plain NumPy on the same threads (activations, sigmoid, gradient,
  weighted Gram matrix, in chunks).
- *product*: the float32 product of the rows with a square matrix, in chunks.
- *copy and product*: read the used columns, one product, write the same output columns, by plain Arrow or Astropy.

A ratio below one is faster than what it is compared with. Goals are aims; those missed stand in bold.
"""


@dataclass(frozen=True)
class Machine:
    """Where and with what a part was measured."""

    processor: str
    cores: int
    threads: int
    python: str
    code: str
    packages: dict[str, str]
    date: str
    load: float

    @classmethod
    def here(cls, threads: int) -> Machine:
        """Return this machine's."""
        packages = {}
        for name in PEERS:
            try:
                packages[name] = version(name)
            except PackageNotFoundError:
                packages[name] = "not installed"
        return cls(
            _processor(),
            os.cpu_count() or 1,
            threads,
            platform.python_version(),
            code_version(),
            packages,
            datetime.now(UTC).date().isoformat(),
            round(os.getloadavg()[0], 1),
        )


@dataclass(frozen=True)
class Measured:
    """A ratio: what over what unit, its median, least and most, the median seconds of both, and the goal."""

    what: str
    unit: str
    ratio: float
    least: float
    most: float
    seconds: float
    unit_seconds: float
    goal: float | None = None
    note: str = ""


def _processor() -> str:
    information = Path("/proc/cpuinfo")
    if information.exists():
        for line in information.read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()


def read_results(path: Path) -> dict[str, Any]:
    """Return what was measured, by part; nothing where nothing was."""
    return json.loads(path.read_text()) if path.exists() else {}


def write_results(path: Path, results: dict[str, Any]) -> None:
    """Store what was measured."""
    path.parent.mkdir(exist_ok=True)
    path.write_text(json.dumps(results, indent=1) + "\n")


def write_page(path: Path, results: dict[str, Any]) -> None:
    """Write the page."""
    lines = [INTRODUCTION]
    for name, part in results.items():
        machine, rows = part["machine"], [Measured(**row) for row in part["rows"]]
        installed = ", ".join(f"{k} {v}" for k, v in machine["packages"].items() if v != "not installed")
        absent = ", ".join(k for k, v in machine["packages"].items() if v == "not installed")
        lines += [
            f"## {name.capitalize()}\n",
            f"`{part['command']}`: {machine['date']}, blr {machine['code']}, {machine['processor']}, "
            f"{machine['cores']} cores, {machine['threads']} threads, load {machine['load']} at the start, "
            f"Python {machine['python']}, {installed}"
            + (f"; not installed: {absent}" if absent else "")
            + ".\n",
            "| what | over | ratio | least | most | goal | seconds | of the unit | |",
            "|---|---|---|---|---|---|---|---|---|",
            *(_line(row) for row in rows),
            "",
        ]
    path.write_text("\n".join(lines))


def draw_slopes(path: Path, results: dict[str, Any]) -> None:
    """Draw the seconds of the part "slopes" against the work that each fit is, a line for what grows, as SVG."""
    import matplotlib as mpl  # noqa: PLC0415  the page alone needs none
    from matplotlib.figure import Figure  # noqa: PLC0415

    mpl.rcParams["svg.hashsalt"] = "slopes"
    axes = Figure(figsize=(6, 4), layout="constrained").subplots()
    grown: dict[str, list[Measured]] = {}
    for row in results["slopes"]["rows"]:
        grown.setdefault(row["note"], []).append(Measured(**row))
    for (note, rows), marker in zip(grown.items(), "osD", strict=True):
        works = []
        for row in rows:
            n, m, k = (int(x.replace(",", "")) for x in row.what.removeprefix("fit_evidence ").split(" x "))
            works.append(n * m**2 * (k - 1) ** 2)
        (line,) = axes.loglog(works, [row.seconds for row in rows], marker=marker, label=note)
        straight = [rows[0].seconds * work / works[0] for work in works]
        axes.loglog(works, straight, ":", color=line.get_color(), linewidth=1)
    axes.set_xlabel("work: rows x columns² x (classes - 1)²")
    axes.set_ylabel("fit_evidence, seconds")
    axes.legend(title="dotted: in proportion")
    axes.figure.savefig(path, metadata={"Date": None})


def _line(row: Measured) -> str:
    missed = row.goal is not None and row.ratio > row.goal
    ratio, least, most = (_told(x) for x in (row.ratio, row.least, row.most))
    goal = "" if row.goal is None else f"{row.goal:.2g}"
    return (
        f"| {row.what} | {row.unit} | {f'**{ratio}**' if missed else ratio} | {least} | {most} | {goal} | "
        f"{row.seconds:.3g} | {row.unit_seconds:.3g} | {row.note} |"
    )


def _told(ratio: float) -> str:
    return f"{ratio:.2f}" if ratio >= 0.1 else f"{ratio:.2g}"
