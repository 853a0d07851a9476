"""The data of the campaign: a release in partitions and FITS files, two models, and results of undisturbed runs."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
from astropy.table import Table

from flows.models.store import Store
from tests.e2e.survey import SPECIFICATION, write_galaxies
from tests.flows.verbs import classify, reprocess, train

RUN: Mapping[str, Callable[..., dict[str, Any]]] = {"classify": classify, "reprocess": reprocess}
SMALLER = SPECIFICATION[: SPECIFICATION.rindex("[[candidate]]")].replace('j_k = "jmag - kmag"\n', "")
"""What trains another model of the same name: one candidate and one feature less."""


@dataclass(frozen=True)
class Scenario:
    """A run: what the output folder holds before it, and after it where nothing disturbs it."""

    name: str
    folder: Path  # of the survey: the run's working directory, and of all outputs
    flow: str
    parameters: Mapping[str, Any]  # of the flow, all but `out`
    inputs: tuple[Path, ...]
    model_id: int
    before: Path | None
    after: Path = field(init=False)

    def __post_init__(self) -> None:
        """Make what an undisturbed run makes."""
        object.__setattr__(self, "after", self.folder / f"undisturbed {self.name}")
        self.prepare(self.after)
        RUN[self.flow](**self.called(self.after))

    def prepare(self, out: Path) -> Path:
        """Put the output folder into the state in which the run finds it."""
        if self.before is not None:
            shutil.copytree(self.before, out, dirs_exist_ok=True)
        return out

    def called(self, out: Path) -> dict[str, Any]:
        """Return the parameters with all paths absolute: this process is elsewhere."""
        found = dict(self.parameters) | {"out": out}
        for key in {"specification", "store"} & found.keys():
            found[key] = self.folder / found[key]
        if "catalogues" in found:
            found["catalogues"] = [self.folder / path for path in found["catalogues"]]
        return found

    def deployed(self, out: Path) -> dict[str, Any]:
        """Return the parameters of a deployment's run."""
        return {**self.parameters, "out": out.name}

    def arguments(self, out: Path, *, direct: bool = True) -> list[str]:
        """Return the command line."""
        told = dict(self.parameters)
        named = told.pop("catalogues", None) or [told.pop("specification")]
        line = [self.flow, *named, "--out", out.name, "--json", "--quiet", *(["--direct"] if direct else [])]
        flags = {"quiet_seconds": "--settle", "overwrite": "--overwrite"}
        for key, value in told.items():
            line += [flags.get(key, f"--{key}"), *([] if value is True else [str(value)])]
        return line


def make_scenarios(
    folder: Path, *, partitions: int = 10, tables: int = 3, rows: int = 2000
) -> list[Scenario]:
    """Make the survey, its models and the scenarios; all that is written is below `folder`."""
    folder.mkdir()
    old, new = _models(folder)
    first, second = _releases(folder, partitions, tables, rows)
    images = [str(path.relative_to(folder)) for path in first if path.suffix == ".fits"]
    by_hand = {"catalogues": ["release/sky", *images], "store": "models"}
    kept = {"specification": "release.toml", "store": "models", "quiet_seconds": 0}

    def of(name: str, told: dict[str, Any], inputs: tuple[Path, ...], before: Path | None) -> Scenario:
        model = Store(folder / "models").load(told["model"]).id
        return Scenario(name, folder, name.partition(",")[0], told, inputs, model, before)

    begun = of("classify", by_hand | {"model": old}, first, None)
    released = of("reprocess", kept | {"model": old}, first, None)
    another, following = {"model": new}, {"specification": "next.toml", "model": old}
    return [
        begun,
        of("classify, other model", by_hand | another | {"overwrite": True}, first, begun.after),
        released,
        of("reprocess, other model", kept | another, first, released.after),
        of("reprocess, next release", kept | following, second, released.after),
    ]


def _models(folder: Path) -> tuple[str, str]:
    """Train two models of one name; return their labels."""
    write_galaxies(folder / "labelled.parquet", 600, seed=1)
    store = Store(folder / "models")
    for text in (SPECIFICATION, SMALLER):
        (folder / "spec.toml").write_text(text)
        train(folder / "spec.toml", folder / "models")
    old = store.find("morphology").label
    (new,) = {model.label for model in store.models()} - {old}
    return old, new


def _releases(folder: Path, partitions: int, tables: int, rows: int) -> list[tuple[Path, ...]]:
    """Write a release, and the next one: of partitions and of tables one is gone, one changed, one new."""
    found = []
    for first, release in enumerate(("release", "next")):
        sky = folder / release / "sky" / "Norder=1" / "Dir=0"
        sky.mkdir(parents=True)
        numbered = [(sky / f"Npix={n}.parquet", 100 + n) for n in range(first, first + partitions)]
        numbered += [(folder / release / f"field-{n}.fits", 200 + n) for n in range(first, first + tables)]
        for path, seed in numbered:
            changed = 1000 * first if path.stem in ("Npix=2", "field-2") else 0
            _write(path, rows, seed=seed + changed)
        text = SPECIFICATION.replace('"release/*.parquet"', f'"{release}/sky", "{release}/*.fits"')
        (folder / f"{release}.toml").write_text(text)
        found.append(tuple(path for path, _ in numbered))
    return found


def _write(path: Path, rows: int, *, seed: int) -> None:
    """Write a partition, as Parquet or as FITS."""
    made = write_galaxies(path.with_suffix(".parquet"), rows, seed=seed)
    if path.suffix == ".fits":
        columns = {name: np.array(values) for name, values in pq.read_table(made).to_pydict().items()}
        Table(columns).write(path)
        made.unlink()
