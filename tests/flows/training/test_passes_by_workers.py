"""Passes over labels, flux errors and names by workers: what this process finds, to the bit."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from astropy.table import Table

import catalogs
from catalogs.catalog.catalog import Catalog
from catalogs.sky.photometry import unit_factor
from flows.engines.engine import ThreadEngine, working_on
from flows.errors import EngineError, TrainingError
from flows.features.reader import training_reader
from flows.inputs.opening import Workers
from flows.labels.classes import LabelCount, NameSearch, label_reader, name_hashes
from flows.labels.source import LabelSource
from flows.specification.specification import Specification
from flows.specification.toml_file import parse_specification
from flows.training._gather import FluxErrors, Gathered, gather, reading_workers, with_learned_photometry
from tests.flows.elsewhere import Elsewhere

N, N_FILES = 900, 5
SPECIFICATION = """
name = "passes"
[catalog]
paths = ["night-*"]
id = "id"
where = "good"
sentinels = { sigma = [-9] }
[label]
column = "kind"
case_sensitive = false
[photometry.m]
flux = "flux"
error = "sigma"
[photometry.k]
flux = "flux"
inverse_variance = "weight"
[photometry.stated]
flux = "flux"
softening = 1e-10
[features]
m = "m"
k = "k"
stated = "stated"
"""


@pytest.fixture(autouse=True)
def _small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("flows.training._gather.MOST_IN_MEMORY", 300)
    monkeypatch.setattr("flows.training._rows.SHARD_ROWS", 100)
    monkeypatch.setattr("flows.inputs.opening.PIECE_ROWS", 70)
    for module in ("flows.inputs.opening", "flows.labels.classes", "flows.training._reading"):
        monkeypatch.setattr(f"{module}.BATCH_ROWS", 33)


@pytest.fixture(scope="module")
def columns() -> dict[str, np.ndarray]:
    """Return a survey in which some objects have rows of two classes, and labels several spellings."""
    rng = np.random.default_rng(7)
    kinds = np.array(["spiral", "Spiral", "SPIRAL", "elliptical", "Elliptical", ""])
    names = np.array([f"G{i % (N - 160):04d} " for i in range(N)])
    sigma = rng.gamma(4, 0.1, N)
    return {
        "id": names,
        "kind": kinds[rng.integers(0, len(kinds), N)],
        "good": rng.random(N) < 0.9,
        "flux": rng.uniform(10, 90, N),
        "sigma": np.where(rng.random(N) < 0.05, -9, sigma),
        "weight": np.where(rng.random(N) < 0.1, 0, rng.gamma(2, 3, N)),
    }


@pytest.fixture(scope="module")
def survey(tmp_path_factory: pytest.TempPathFactory, columns: dict[str, np.ndarray]) -> list[Catalog]:
    """Return its catalogues: FITS, ECSV and Parquet, each with a unit of flux of its own."""
    folder = tmp_path_factory.mktemp("survey")
    opened = []
    for i, rows in enumerate(np.array_split(np.arange(N), N_FILES)):
        name, unit = (("fits", "nJy"), ("ecsv", "uJy"), ("parquet", "nanomaggy"))[i % 3]
        factor = unit_factor("nanomaggy", unit)
        own = {column: values[rows] for column, values in columns.items()}
        own |= {"flux": own["flux"] * factor, "weight": own["weight"] / factor**2}
        own["sigma"] = np.where(own["sigma"] == -9, -9, own["sigma"] * factor)
        path = folder / f"night-{i}.{name}"
        if name == "parquet":
            table = pa.table(own)
            fields = [f.with_metadata({"unit": unit}) if f.name == "flux" else f for f in table.schema]
            pq.write_table(table.cast(pa.schema(fields)), path, row_group_size=25)
        else:
            made = Table(own)
            made["flux"].unit = unit
            made.write(path)
        opened.append(catalogs.open(path))
    return opened


@pytest.fixture(scope="module")
def specification(survey: list[Catalog]) -> Specification:
    return parse_specification(SPECIFICATION, source="a test", base_folder=str(survey[0].path.parent))


def workers_of(
    specification: Specification, catalogs: list[Catalog], engine: ThreadEngine | None = None
) -> Workers:
    """Return the workers that read these catalogues."""
    with working_on(engine or Elsewhere()):
        found = reading_workers(specification, catalogs)
    assert found is not None
    assert len(found.pieces) > N_FILES
    return found


def kept(found: Gathered) -> tuple[object, ...]:
    """Return what is compared of gathered rows."""
    X = b"".join(found.stored.read("X", shard).tobytes() for shard in found.stored.shards)
    return found.classes, [*found.seen.items()], found.repeated, found.content_hash, X


def test_all_passes_find_what_this_process_finds(
    survey: list[Catalog], specification: Specification, tmp_path: Path
) -> None:
    found = []
    for name in ("here", "there"):
        workers = None if name == "here" else workers_of(specification, survey)
        (tmp_path / name).mkdir()
        learned = with_learned_photometry(specification, survey, workers=workers)
        rows = gather(learned, survey, folder=lambda n=name: tmp_path / n, workers=workers)
        found.append((learned, kept(rows)))
    assert found[0] == found[1]
    assert len(found[0][1][2].classes) == 20 < found[0][1][2].n


def test_labels_are_counted_in_the_order_of_the_rows(
    survey: list[Catalog], specification: Specification, columns: dict[str, np.ndarray]
) -> None:
    """So that of spellings that are met as often, the first one names the class."""
    expected = dict.fromkeys(columns["kind"][columns["good"]].tolist(), 0)
    for label in columns["kind"][columns["good"]].tolist():
        expected[label] += 1
    work = LabelCount.of(specification, survey, LabelSource("kind"))
    seen = Counter[str]()
    for _, some in workers_of(specification, survey).in_order(work):
        seen.update(some)
    assert [*seen.items()] == [*expected.items()]


def test_too_many_labels_end_the_pass(
    survey: list[Catalog], specification: Specification, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A worker ends by its own piece where that has too many; else the sum over pieces does."""
    names = specification.model_copy(
        update={"label": specification.label.model_copy(update={"column": "id"})}
    )
    pieces = workers_of(specification, survey).pieces
    for most in (20, 180):
        monkeypatch.setattr("flows.labels.reader.MOST_CLASSES", most)
        for workers in (None, workers_of(specification, survey)):
            with pytest.raises(
                TrainingError, match=rf"'id' with \d+ different values, expected at most {most}"
            ):
                label_reader(names, survey, LabelSource("id"), workers=workers)
    work = LabelCount.of(names, survey, LabelSource("id"))
    assert max(len(work(piece)) for piece in pieces) <= 180


def test_classes_whose_columns_clash_between_pieces(
    survey: list[Catalog], specification: Specification
) -> None:
    exact = specification.model_copy(
        update={"label": specification.label.model_copy(update={"case_sensitive": True})}
    )
    for workers in (None, workers_of(specification, survey)):
        with pytest.raises(TrainingError, match="case_sensitive = false"):
            label_reader(exact, survey, LabelSource("kind"), workers=workers)


def softenings(specification: Specification) -> dict[str, float | None]:
    return {name: band.softening for name, band in specification.photometry.items()}


@pytest.mark.parametrize("most", [N, 450, 449, 77])
def test_the_softening_of_every_nth_row(
    survey: list[Catalog],
    specification: Specification,
    columns: dict[str, np.ndarray],
    monkeypatch: pytest.MonkeyPatch,
    most: int,
) -> None:
    """The median of the whole columns' every n-th row, whoever reads; of all rows where they are not too many."""
    monkeypatch.setattr("flows.training._gather.MOST_ROWS", most)
    here = softenings(with_learned_photometry(specification, survey))
    there = softenings(
        with_learned_photometry(specification, survey, workers=workers_of(specification, survey))
    )
    assert here == there
    taken = columns["good"] & (np.arange(N) % -(-N // most) == 0)
    assert np.count_nonzero(taken) <= most
    sigma, weight = columns["sigma"][taken], columns["weight"][taken]
    assert here["m"] == pytest.approx(1e-9 * np.median(sigma[sigma > 0]), rel=1e-12)
    assert here["k"] == pytest.approx(1e-9 * np.median(weight[weight > 0] ** -0.5), rel=1e-12)
    assert here["stated"] == 1e-10


def test_a_trial_takes_the_first_rows(
    survey: list[Catalog], specification: Specification, columns: dict[str, np.ndarray]
) -> None:
    """Of each catalogue, as before; this process reads them."""
    with working_on(Elsewhere()):
        assert reading_workers(specification, survey, limit=50) is None
    taken = columns["good"] & (np.arange(N) % (N // N_FILES) < 50)
    sigma = columns["sigma"][taken]
    found = softenings(with_learned_photometry(specification, survey, limit=50))
    assert found["m"] == pytest.approx(1e-9 * np.median(sigma[sigma > 0]), rel=1e-12)


def test_flux_errors_are_read_alone(survey: list[Catalog], specification: Specification) -> None:
    """Of each catalogue the columns of the bands and of the condition, no labels."""
    readers = [training_reader(specification).of(catalog) for catalog in survey]
    for reader in FluxErrors.of(readers, ("m",), step=1).readers:
        assert reader.read == ("flux", "good", "sigma")


def test_names_are_looked_for_until_there_are_enough(
    survey: list[Catalog], specification: Specification, columns: dict[str, np.ndarray]
) -> None:
    """The names are those of the first rows; no piece is asked beyond those that are read ahead."""
    names = [text.strip() for text in columns["id"].tolist()]
    for wanted in (names[:3], names[::11], [names[-1], names[200], names[199]]):
        search = NameSearch("id", name_hashes(np.array(wanted, dtype=object)))
        expected = [*dict.fromkeys(name for name in names if name in wanted)][: min(20, len(set(wanted)))]
        for workers in (None, workers_of(specification, survey)):
            assert [*search.through(survey, workers)] == expected

    asked: list[int] = []

    class OneByOne(Elsewhere):
        def map(self, work: Any, items: Any) -> Iterator[Any]:
            for item in items:
                asked.append(item.number)
                yield item, work(item)

    search = NameSearch("id", name_hashes(np.array(names[:3], dtype=object)))
    assert [*search.through(survey, workers_of(specification, survey, OneByOne()))] == names[:3]
    assert asked == [0]


def test_no_names_are_looked_for_without_conflicts(
    survey: list[Catalog], specification: Specification, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(NameSearch, "through", lambda *_: pytest.fail("looked for names"))
    first = survey[:4]  # an object's second row is in the last one
    learned = with_learned_photometry(specification, first)
    workers = workers_of(specification, first)
    found = gather(learned, first, folder=lambda: tmp_path, workers=workers)
    assert (found.repeated.n, found.repeated.classes) == (0, {})


def test_a_piece_that_kills_every_worker_ends_each_pass(
    survey: list[Catalog], specification: Specification
) -> None:
    workers = workers_of(specification, survey, Elsewhere(lost=3))
    search = NameSearch("id", np.zeros(1, dtype=np.uint64))
    for passing in (
        lambda: label_reader(specification, survey, LabelSource("kind"), workers=workers),
        lambda: with_learned_photometry(specification, survey, workers=workers),
        lambda: search.through(survey, workers),
    ):
        with pytest.raises(EngineError, match=r"night-1\.ecsv: 2 workers were killed one after another"):
            passing()


@pytest.mark.parametrize("kinds", ["numbers, texts", "texts, numbers"])
def test_identifiers_that_are_numbers_in_one_file_and_texts_in_another(tmp_path: Path, kinds: str) -> None:
    """Zeros in front count in none of them, whichever file is the first and whoever reads it."""
    x = np.random.default_rng(2).normal(size=400)
    for name, rows in zip(kinds.split(", "), (np.arange(200), np.arange(200, 400)), strict=True):
        names = rows if name == "numbers" else np.array([f"{row:06d}" for row in rows])
        Table({"id": names, "x": x[rows]}).write(tmp_path / f"night-{rows[0]}.fits")
    labels = [f"{row:04d},{'ab'[row % 2]}" for row in range(400)]
    (tmp_path / "labels.csv").write_text("\n".join(["number,kind", *labels]) + "\n")
    head, _, _ = SPECIFICATION.partition("where")
    text = f'{head}[label]\ncolumn = "kind"\n[label.table]\npath = "labels.csv"\nid = "number"\n[features]\nx = "x"\n'
    own = parse_specification(text, source="a test", base_folder=str(tmp_path))
    opened = [catalogs.open(path) for path in sorted(tmp_path.glob("night-*"))]
    found = []
    for engine in (ThreadEngine(1), Elsewhere()):
        with working_on(engine):
            workers = reading_workers(own, opened)
        room = tmp_path / ("here" if workers is None else "there")
        room.mkdir()
        rows = gather(own, opened, folder=lambda room=room: room, workers=workers)
        assert (rows.stored.n_rows, rows.source.n_joined) == (400, 400)
        found.append(kept(rows))
    assert found[0] == found[1]
