"""The table of an output folder's files: it is read back as written, and is refused where it was changed."""

from __future__ import annotations

import io
import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest

from catalogs.errors import CatalogError
from flows.classification._tally import with_few_digits
from flows.runs.manifest import MANIFEST, MOST_DOUBTFUL, FileState, Manifest, Output
from flows.runs.results import (
    ClassSetRule,
    DoubtfulObject,
    FeatureCounts,
    FileCounts,
    SetRecord,
    ShiftRecord,
    SkyCounts,
    Tally,
)

K, S, F, B = 3, 64, 5, 10
SHARED = np.random.default_rng(1).normal(size=(S, K))
"""All objects share the weights, so that the draws of all files move together."""
RULE = ClassSetRule(bit=16, rows=900, effective=850.5, least=0.1, spread=0.01)


def output(i: int, rng: np.random.Generator, *, n_doubtful: int = 1) -> Output:
    """Return an output such as a partition of the sky has, of up to a million rows."""
    n = int(rng.integers(1_000, 1_000_000))
    expected = n * rng.dirichlet([20, 30, 3])
    weights = (SHARED + 0.2 * rng.normal(size=(S, K))) * expected * 0.02
    known = rng.integers(n // 2, n, F)
    counts = FileCounts(
        counted=bool(i % 5),
        tally=with_few_digits(
            Tally(
                n_rows=n,
                n_classified=n - 7,
                assigned=tuple(np.rint(expected).astype(int).tolist()),
                expected=tuple(expected.tolist()),
                variance=tuple((0.1 * expected).tolist()),
                draws=tuple(map(tuple, (expected + weights - weights.mean(axis=0)).tolist())),
                flags={"LOW_CONFIDENCE": n // 10, "UNCLASSIFIABLE": 7},
                missing=(0, 0, 3, 0, 0),
                set_sizes=(1, n - 10, 2, 0),
                in_sets=(5, n - 12, 2),
            )
        ),
        drift=FeatureCounts(
            n,
            tuple(known.tolist()),
            tuple(rng.normal(size=F).tolist()),
            (1e200, *rng.random(F - 1).tolist()),
            tuple(tuple(row) for row in rng.multinomial(n, [1 / B] * B, size=F).tolist()),
        ),
        low_confidence=0.7,
        shift=ShiftRecord(class_priors={"early": 0.4, "spiral": 0.5, "irregular": 0.1}),
        set_rule=SetRecord(level=0.9, source="left-out", reason="900 rows", classes={"early": RULE}),
        sky=SkyCounts(
            order=4, pixels=(i, i + 1), n=(n - 9, 9), flagged=(7, 0), assigned=((n - 20, 10, 1), (3, 3, 3))
        ),
        doubtful=tuple(
            DoubtfulObject(
                id=f"G{i}-{j}",
                ra=float(np.round(rng.random() * 360, 6)),
                dec=None,
                classes=("early", "spiral"),
                probabilities=(0.51, 0.42),
                mutual_information=round(rng.random(), 6),
                flags=3,
                features=(1.5, None, 2.0, 3.0, 4.0) if j < 3 else (),
            )
            for j in range(n_doubtful)
        ),
    )
    sha256 = rng.bytes(32).hex()
    state = FileState(
        rng.bytes(32).hex(), 10 * n, 1_700_000_000_000_000_000 + int(rng.integers(1e15)), 4711 + i, ""
    )
    name = f"dataset/Norder=5/Dir=0/Npix={i}.parquet"
    return Output(name, sha256, 11 * n, n, f"../survey/{name}", state, state.mtime_ns + 5, 2**63 + i, counts)


@pytest.fixture(scope="module")
def outputs() -> tuple[Output, ...]:
    rng = np.random.default_rng(3)
    return tuple(output(i, rng) for i in range(1000))


def manifest(outputs: tuple[Output, ...]) -> Manifest:
    return Manifest(
        model="m@1",
        model_id=1,
        specification_hash="0",
        format="blr-manifest",
        schema_version=1,
        created="",
        release=1,
        versions={"blr": "1"},
        totals=None,
        quarantined=(),
        table=None,
        outputs=outputs,
    )


def table(folder: Path) -> Path:
    (path,) = (folder / "_files").iterdir()
    return path


def test_a_manifest_is_read_as_it_was_written_and_has_few_bytes_a_file(
    tmp_path: Path, outputs: tuple[Output, ...]
) -> None:
    manifest(outputs).write(tmp_path)
    assert Manifest.read(tmp_path).outputs == outputs
    assert json.loads((tmp_path / MANIFEST).read_text())["table"]["rows"] == 1000
    assert sum(f.stat().st_size for f in (tmp_path / MANIFEST, table(tmp_path))) / 1000 < 2000


def test_the_most_doubtful_objects_of_all_files_are_kept(tmp_path: Path) -> None:
    def first(some: tuple[Output, ...]) -> list[DoubtfulObject]:
        objects = [one for o in some for one in o.summary.doubtful]
        return sorted(objects, key=lambda d: (-d.mutual_information, d.id))

    rng = np.random.default_rng(4)
    many = tuple(output(i, rng, n_doubtful=20) for i in range(60))
    manifest(many).write(tmp_path)
    assert first(Manifest.read(tmp_path).outputs) == first(many)[:MOST_DOUBTFUL]


def test_the_table_of_the_manifest_before_stays_until_the_next_is_written(
    tmp_path: Path, outputs: tuple[Output, ...]
) -> None:
    manifest(outputs).write(tmp_path)
    first = table(tmp_path)
    content = first.read_bytes()
    changed = (replace(outputs[0], sha256="1" * 64), *outputs[1:])
    document = (tmp_path / MANIFEST).read_bytes()
    manifest(changed).write(tmp_path)
    assert table(tmp_path) != first
    first.write_bytes(content)
    (tmp_path / MANIFEST).write_bytes(
        document
    )  # as a run leaves it that is killed before it writes the manifest
    assert Manifest.read(tmp_path).outputs == outputs
    Manifest.sweep(tmp_path)
    assert table(tmp_path) == first


def test_a_file_without_rows_is_read_back(tmp_path: Path, outputs: tuple[Output, ...]) -> None:
    nothing = Tally(0, 0, (0,) * K, (0.0,) * K, (0.0,) * K, (), {}, (0,) * F)
    bare = replace(outputs[0], summary=replace(outputs[0].summary, tally=nothing, sky=None, doubtful=()))
    manifest((bare, outputs[1])).write(tmp_path)
    assert Manifest.read(tmp_path).outputs == (bare, outputs[1])


@pytest.mark.parametrize("harm", ["gone", "cut off", "of another release"])
def test_a_table_that_is_not_the_one_that_was_written_is_refused(
    tmp_path: Path, outputs: tuple[Output, ...], harm: str
) -> None:
    manifest(outputs).write(tmp_path)
    path = table(tmp_path)
    content = path.read_bytes()
    path.unlink()
    if harm == "cut off":
        path.write_bytes(content[:-100])
    if harm == "of another release":
        pq.write_table(pq.read_table(io.BytesIO(content)).slice(1), path)
    with pytest.raises(CatalogError, match=r"_files/[0-9a-f]{16}\.parquet: (the|this) table of files"):
        Manifest.read(tmp_path)
