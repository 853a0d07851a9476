"""Small valid files damaged by seed, then given to `blr`: what it says, what it leaves, and what others read of it.

A fault is a kind, as `parquet-flip`, and a seed; `make campaign ONLY=parquet-flip SEED=17` tries one again, from the
same bytes where the versions of all packages are the same.  Each is tried in a process of its own, forked from one that
has imported everything, whose memory and time are bounded.  It held where the command ended in time, either with an
error of its own and an empty output folder, or with status 0 and nothing but what a good file leaves, whose rows
astropy or pyarrow read unchanged.
"""

from __future__ import annotations

import csv
import gc
import json
import multiprocessing
import os
import resource
import shutil
import signal
import sys
import tempfile
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import suppress
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
from astropy.io import fits
from astropy.table import Table

from flows.cli.app import run
from flows.models.model import digest, read_tree, write_tree
from tests.campaign.harm import Harm
from tests.campaign.tally import Line
from tests.campaign.zygote import WORK
from tests.catalogs.test_damage import DAMAGES, Damage
from tests.e2e.survey import SPECIFICATION, write_galaxies
from tests.flows.verbs import train

FAULTS = 10_000
"""Faults of all kinds together, where no number is told."""
SECONDS, PATIENCE = 30, 240
"""Processor time, and time on the clock of a machine that others use too, of one command."""
ADDRESSES = 2 << 30
"""Bytes that a command may ask for beyond what its imports take."""
MEMORY = 900 << 20
"""Bytes that a command may have in memory, its imports among them."""
ROWS = 60
BROKEN = 97
"""Exit status of a process that ended by an exception that `blr` did not turn into a message."""


def swap(data: bytes, rng: np.random.Generator) -> bytes:
    """Exchange two blocks."""
    size = int(rng.integers(1, max(2, min(2880, len(data) // 4))))
    one, two = sorted(int(place) for place in rng.integers(0, len(data) - size, 2))
    two = max(two, min(one + size, len(data) - size))
    blocks = data[one : one + size], data[two : two + size]
    return data[:one] + blocks[1] + data[one + size : two] + blocks[0] + data[two + size :]


def header(data: bytes, rng: np.random.Generator) -> bytes:
    """Exchange or lose words among the first, or for Parquet the last, few thousand bytes, lengths unchanged or not."""
    reach = min(len(data), 6000)
    start = len(data) - reach if data[:4] == b"PAR1" else 0
    places, marks = range(start, start + reach), {b" ", b"<", b"'", b'"', b",", b"\x18"}
    words = [place for place in places if data[place - 1 : place] in marks]
    if not words:
        return DAMAGES["overwrite"](data, rng)
    place, other = (words[int(i)] for i in rng.integers(0, len(words), 2))
    size = int(rng.integers(1, 9))
    return data[:place] + data[other : other + size] + data[place + size * int(rng.integers(0, 2)) :]


def signed(data: bytes, rng: np.random.Generator) -> bytes:
    """Change one value of a model and state the digest that is right for it."""
    with tempfile.TemporaryDirectory() as name:
        path = Path(name) / "model.asdf"
        path.write_bytes(data)
        tree = dict(read_tree(path))
        places = [place for place in _leaves(tree) if place[1] != "digest"]
        inside, key = places[rng.integers(len(places))]
        old = inside[key]
        others: list[Any] = [None, -1, 0, 10**9, 1e308, float("nan"), "", "x" * 1000]
        others += [[], {}, [1.0], np.zeros(0), np.full(3, 7.0)]
        if isinstance(old, np.ndarray):
            shorter = old[:-1] if old.ndim else old
            others += [shorter, old.reshape(-1), old[None], old * 0, old.astype(np.float32)] * 3
            others += [np.full(old.shape, value) for value in (np.nan, np.inf, -1e300)] * 3
        elif isinstance(old, int | float) and not isinstance(old, bool):
            others += [-old, old * 1e12, old / 3, str(old)] * 3
        inside[key] = others[rng.integers(len(others))]
        tree["digest"] = digest(tree)
        write_tree(tree, path)
        return path.read_bytes()


def _leaves(node: Any) -> Iterator[tuple[Any, Any]]:
    """Return the values of a tree that can be replaced: what holds each, and under which key."""
    for key, value in list(node.items() if isinstance(node, dict) else enumerate(node)):
        yield node, key
        if isinstance(value, dict | list):
            yield from _leaves(value)


BLIND: dict[str, Damage] = {**DAMAGES, "swap": swap, "header": header}
FORMATS = ("fits", "votable", "parquet", "text", "model")
KINDS: dict[str, tuple[str, Damage]] = {
    f"{kind}-{name.replace(' ', '-')}": (kind, damage) for kind in FORMATS for name, damage in BLIND.items()
} | {"model-signed": ("model", signed)}
"""The format and the damage of each kind of fault."""


def make_samples(folder: Path) -> None:
    """Write the good files, two of each format, a model in a store, and what a good run leaves beside each copy."""
    folder.mkdir()
    write_galaxies(folder / "labelled.parquet", 600, seed=1)
    (folder / "spec.toml").write_text(SPECIFICATION[: SPECIFICATION.rindex("[[candidate]]")])
    train(folder / "spec.toml", folder / "models")
    table = pq.read_table(write_galaxies(folder / "good" / "galaxies.parquet", ROWS, seed=2))
    galaxies = Table({name: np.array(values) for name, values in table.to_pydict().items()})
    for name, written in {
        "fits-0.fits": galaxies.write,
        "fits-1.fits": lambda path: fits.table_to_hdu(galaxies).writeto(path, checksum=True),
        "votable-0.vot": lambda path: galaxies.write(path, format="votable"),
        "votable-1.vot": lambda path: galaxies.write(path, format="votable", tabledata_format="binary2"),
        "parquet-0.parquet": lambda path: pq.write_table(table, path),
        "parquet-1.parquet": lambda path: pq.write_table(
            table, path, row_group_size=20, compression="zstd", write_page_checksum=True
        ),
        "text-0.csv": lambda path: galaxies.write(path, format="ascii.csv"),
        "text-1.ecsv": lambda path: galaxies.write(path, format="ascii.ecsv"),
    }.items():
        written(folder / name)


def trials(kinds: list[str], first: int, times: int, folder: Path) -> Iterator[Line]:
    """Try each kind with so many seeds; give a line a kind."""
    make_samples(folder)
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(os.cpu_count(), context, initializer=_prepare, initargs=(folder,)) as pool:
        for kind in kinds:
            line = Line(kind, seeds=f"{first:,} to {first + times - 1:,}")
            seeds = range(first, first + times)
            found = pool.map(partial(attempt, folder, kind), seeds)
            for seed, (harm, seen, said) in zip(seeds, found, strict=True):
                line.add(harm, seen, where=f"ONLY={kind} SEED={seed}: {said}")
            yield line


def _prepare(folder: Path) -> None:
    """Import all that commands import, since they import most of it when they need it."""
    warnings.simplefilter("ignore")
    for module in WORK:
        import_module(module)
    with tempfile.TemporaryDirectory(dir=folder) as name:
        place = Path(name)
        for sample in sorted(folder.glob("*-?.*")):
            for number, asked in enumerate(_commands(sample, folder / "models")):
                own = [*asked[:-1], f"out-{sample.name}-{number}"] if number else asked
                _apart(partial(_list_modules, own), place)
                for module in (place / "modules").read_text().split():
                    with suppress(ImportError):
                        import_module(module)
    gc.collect()
    gc.freeze()


def _list_modules(asked: list[str]) -> int:
    """Run a command and write which modules are loaded after it."""
    status = run(asked)
    Path("modules").write_text("\n".join(name for name in sys.modules if name != "__main__"))
    return status


def _commands(catalogue: Path, store: Path) -> list[list[str]]:
    """Return the two commands that are given a file."""
    options = ["--model", "morphology", "--direct", "--quiet", "--threads", "1", "--json"]
    classify = ["classify", str(catalogue), "--store", str(store), *options, "--out", "out"]
    return [["inspect", str(catalogue), "--json"], classify]


def attempt(folder: Path, kind: str, seed: int) -> tuple[Harm, str, str]:
    """Do one fault; return its harm, how it ended, and the last that was said."""
    format_, damage = KINDS[kind]
    with tempfile.TemporaryDirectory(prefix=f"{kind}-{seed}-", dir=folder) as name:
        place = Path(name)
        store, rng = folder / "models", np.random.default_rng([seed, *kind.encode()])
        if format_ == "model":
            shutil.copytree(store, store := place / "models")
            damaged = next(store.glob("*/*/model.asdf"))
            catalogue = shutil.copy(folder / "text-0.csv", place)
        else:
            sample = next(folder.glob(f"{format_}-{seed // 2 % 2}.*"))
            catalogue = damaged = Path(shutil.copy(sample, place))
        damaged.write_bytes(damage(damaged.read_bytes(), rng))
        asked = _commands(catalogue if seed % 2 else damaged, store)[seed % 2]
        status, memory = _apart(partial(run, asked), place)
        errors = (place / "errors").read_text(errors="replace")
        harm: Harm = Counter()
        harm["no end"] += status in {-signal.SIGXCPU, -signal.SIGALRM, -signal.SIGKILL}
        harm["crashed"] += status < 0 or memory > MEMORY
        harm["untrue"] += status == BROKEN or "Traceback" in errors or "This is an error in blr" in errors
        left = {str(path.relative_to(place / "out")) for path in (place / "out").rglob("*") if path.is_file()}
        seen = "refused" if status in {1, 2, 3} else f"status {status}"
        if status == 0 and seed % 2:
            seen, said = _judged(place, Path(catalogue))
            harm["lost"] += seen not in {"rows unchanged", "read by blr alone"}
            expected = {*BESIDE, Path(catalogue).name}
            harm["left over"] += sum(name.partition("/")[0] not in expected for name in left)
            errors += said
        elif status == 0:
            seen = "inspected"
            is_bad = lambda: not isinstance(_strict((place / "output").read_text()), dict)  # noqa: E731
            harm["untrue"] += _apart(is_bad, place)[0] != 0
        else:
            harm["left over"] += len(left)
            harm["untrue"] += not errors.startswith("blr: ") and "\nblr: " not in errors
        last = " ".join(errors.split())[-300:]
        return +harm, seen, f"{asked[0]}, {memory >> 20} MB, {len(left)} files: {last}"


BESIDE = {"manifest.json", "summary.json", "report.html", "_census", "_report", "_labelled", "_files"}
"""What a good run leaves beside the copy."""


def _strict(text: str) -> Any:
    def refuse(name: str) -> None:
        raise ValueError(f"{name} is not JSON")

    return json.loads(text, parse_constant=refuse)


def _apart(work: Callable[[], int], place: Path) -> tuple[int, int]:
    """Do work in a child with bounds; return its exit status, negative for a signal, and its memory in bytes."""
    pid = os.fork()
    if not pid:
        status = BROKEN
        try:
            os.chdir(place)
            how = os.O_WRONLY | os.O_CREAT | (os.O_TRUNC if work.__class__ is partial else os.O_APPEND)
            for name, number in (("output", 1), ("errors", 2)):
                os.dup2(os.open(name, how), number)
            used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
            resource.setrlimit(resource.RLIMIT_AS, (used + ADDRESSES, resource.RLIM_INFINITY))
            resource.setrlimit(resource.RLIMIT_CPU, (SECONDS, SECONDS + 5))
            resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
            signal.alarm(PATIENCE)
            status = work()
        finally:
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(status)
    _, status, used = os.wait4(pid, 0)
    return os.waitstatus_to_exitcode(status), used.ru_maxrss << 10


ENDINGS = ("rows unchanged", "read by blr alone", "other rows", "copy unreadable", "no copy")


def _judged(place: Path, catalogue: Path) -> tuple[str, str]:
    """Say what programs that are not ours read of a copy and of the file that it was made of."""

    def compare() -> int:
        warnings.simplefilter("ignore")
        copy = place / "out" / catalogue.name
        if not copy.is_file():
            return ENDINGS.index("no copy")
        try:
            before = _texts(catalogue)
        except Exception:  # noqa: BLE001  whatever the damage does to another program
            before = None
        try:
            after = _texts(copy)
        except Exception as error:  # noqa: BLE001
            sys.stderr.write(repr(error))
            return ENDINGS.index("copy unreadable" if before is not None else "read by blr alone")
        if before is None:
            return ENDINGS.index("read by blr alone")
        different = [name for name, values in before.items() if after.get(name) != values]
        sys.stderr.write(f"{different}"[:200])
        return ENDINGS.index("other rows" if different else "rows unchanged")

    status, _ = _apart(compare, place)
    ending = ENDINGS[status] if 0 <= status < len(ENDINGS) else "read by blr alone"
    return ending, (place / "errors").read_text(errors="replace")


def _texts(path: Path) -> dict[str, list[str]]:
    """Return the values of each column as texts."""
    if path.suffix == ".csv":
        with path.open(newline="", encoding="utf-8") as stream:
            names, *rows = csv.reader(stream)
            return dict(zip(names, map(list, zip(*rows, strict=True)), strict=True))
    if path.suffix == ".parquet":
        table = pq.read_table(path, partitioning=None)
        return {name: list(map(str, table[name].to_pylist())) for name in table.column_names}
    if path.suffix == ".fits":
        with fits.open(path) as hdus:
            data = hdus[1].data
            return {name: list(map(str, data[name])) for name in data.names}
    found = Table.read(path, format="ascii.ecsv" if path.suffix == ".ecsv" else "votable")
    return {name: list(map(str, found[name])) for name in found.colnames}
