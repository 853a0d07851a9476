"""The table of many files: it is read back as written, and rounding changes no sum by more than stated."""

from __future__ import annotations

import io
import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest

from catalogs.errors import CatalogError
from flows.classification._tally import summarise, total
from flows.runs.counts import (
    ClassSetRule,
    DoubtfulObject,
    FeatureCounts,
    FileCounts,
    SetRecord,
    ShiftRecord,
    SkyCounts,
    Tally,
)
from flows.runs.manifest import MANIFEST, Manifest
from flows.runs.outputs import LEVELS, MOST_DOUBTFUL, MOST_LISTED, FileState, Output, as_kept

K, S, F, B = 3, 64, 5, 10
CLASSES, FEATURES = ("early", "spiral", "irregular"), tuple("abcde")
SHARED = np.random.default_rng(1).normal(size=(S, K))
"""All objects share the weights, so that the draws of all files move together."""
RULE = ClassSetRule(bit=16, rows=900, effective=850.5, least=0.1, spread=0.01)


def output(i: int, rng: np.random.Generator) -> Output:
    """Return an output such as a partition of the sky has, of up to a million rows."""
    n = int(rng.integers(1_000, 1_000_000))
    expected = n * rng.dirichlet([20, 30, 3])
    weights = (SHARED + 0.2 * rng.normal(size=(S, K))) * expected * 0.02
    known = rng.integers(n // 2, n, F)
    counts = FileCounts(
        counted=bool(i % 5),
        tally=Tally(
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
        sky=SkyCounts(4, (i, i + 1), (n - 9, 9), (7, 0), ((n - 20, 10, 1), (3, 3, 3))),
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
            for j in range(20)
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
        code_version="1",
        outputs=outputs,
    )


def table(folder: Path) -> Path:
    (path,) = (folder / "_files").iterdir()
    return path


def test_a_manifest_of_many_files_is_read_as_it_was_written_and_has_few_bytes_a_file(
    tmp_path: Path, outputs: tuple[Output, ...]
) -> None:
    kept = as_kept(outputs)
    manifest(kept).write(tmp_path)
    assert Manifest.read(tmp_path).outputs == kept
    document = json.loads((tmp_path / MANIFEST).read_text())
    assert (document["outputs"], document["inputs"], document["table"]["rows"]) == ([], [], 1000)
    assert sum(f.stat().st_size for f in (tmp_path / MANIFEST, table(tmp_path))) / 1000 < 500
    assert as_kept(kept) == kept, "what is rounded stays as it is"


def test_rounding_changes_no_count_and_errors_only_slightly(outputs: tuple[Output, ...]) -> None:
    exact, kept = (
        summarise(total(o.summary.tally for o in some), CLASSES, FEATURES)
        for some in (outputs, as_kept(outputs))
    )
    for name, estimate in kept.classes.items():
        same = exact.classes[name]
        assert (estimate.assigned, estimate.expected) == (same.assigned, same.expected)
        assert estimate.error_weights == pytest.approx(same.error_weights, rel=0.002)
        assert estimate.error_objects == pytest.approx(same.error_objects, rel=1e-6)
    assert (kept.flags, kept.missing) == (exact.flags, exact.missing)
    o, rounded = outputs[0].summary, as_kept(outputs)[0].summary
    apart = np.array(o.tally.draws) - np.array(rounded.tally.draws)
    largest = np.abs(np.array(o.tally.draws) - np.array(o.tally.expected)).max(axis=0)
    assert (np.abs(apart).max(axis=0) <= largest / LEVELS).all()


def test_the_most_doubtful_objects_of_all_files_are_kept(outputs: tuple[Output, ...]) -> None:
    def first(some: tuple[Output, ...]) -> list[DoubtfulObject]:
        objects = [one for o in some for one in o.summary.doubtful]
        return sorted(objects, key=lambda d: (-d.mutual_information, d.id))

    assert first(as_kept(outputs)) == first(outputs)[:MOST_DOUBTFUL]


def test_few_files_are_listed_in_json_with_all_digits(tmp_path: Path, outputs: tuple[Output, ...]) -> None:
    few = outputs[:MOST_LISTED]
    assert as_kept(few) == few
    manifest(few).write(tmp_path)
    assert not (tmp_path / "_files").exists()


def test_the_table_of_the_manifest_before_stays_until_the_next_is_written(
    tmp_path: Path, outputs: tuple[Output, ...]
) -> None:
    kept = as_kept(outputs)
    manifest(kept).write(tmp_path)
    first = table(tmp_path)
    content = first.read_bytes()
    changed = as_kept((replace(outputs[0], sha256="1" * 64), *outputs[1:]))
    document = (tmp_path / MANIFEST).read_bytes()
    manifest(changed).write(tmp_path)
    assert table(tmp_path) != first
    first.write_bytes(content)
    (tmp_path / MANIFEST).write_bytes(
        document
    )  # as a run leaves it that is killed before it writes the manifest
    assert Manifest.read(tmp_path).outputs == kept
    Manifest.sweep(tmp_path)
    assert table(tmp_path) == first


def test_without_counts_a_file_is_known_to_lack_them(tmp_path: Path, outputs: tuple[Output, ...]) -> None:
    bare = tuple(
        replace(o, summary=None) if i % 2 else replace(o, summary=lacking(o.summary))
        for i, o in enumerate(outputs)
    )
    kept = as_kept(bare)
    manifest(kept).write(tmp_path)
    assert Manifest.read(tmp_path).outputs == kept


def lacking(counts: FileCounts) -> FileCounts:
    """Return counts of a file of no rows, of which nothing else is known."""
    nothing = Tally(0, 0, (0,) * K, (0.0,) * K, (0.0,) * K, (), {}, (0,) * F)
    return replace(
        counts, counted=None, tally=nothing, drift=None, shift=None, set_rule=None, sky=None, doubtful=()
    )


@pytest.mark.parametrize("harm", ["gone", "cut off", "of another release"])
def test_a_table_that_is_not_the_one_that_was_written_is_refused(
    tmp_path: Path, outputs: tuple[Output, ...], harm: str
) -> None:
    manifest(as_kept(outputs)).write(tmp_path)
    path = table(tmp_path)
    content = path.read_bytes()
    path.unlink()
    if harm == "cut off":
        path.write_bytes(content[:-100])
    if harm == "of another release":
        pq.write_table(pq.read_table(io.BytesIO(content)).slice(1), path)
    with pytest.raises(CatalogError, match=r"_files/[0-9a-f]{16}\.parquet: (the|this) table of files"):
        Manifest.read(tmp_path)


def test_a_table_elsewhere_is_refused(tmp_path: Path, outputs: tuple[Output, ...]) -> None:
    manifest(as_kept(outputs)).write(tmp_path)
    document = json.loads((tmp_path / MANIFEST).read_text())
    document["table"]["path"] = "_files/../../0123456789abcdef.parquet"
    (tmp_path / MANIFEST).write_text(json.dumps(document))
    with pytest.raises(CatalogError, match="got a file that is not a manifest"):
        Manifest.read(tmp_path)
