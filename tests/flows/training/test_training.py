"""Training end to end on a small survey, without Prefect: models, verdicts, and the numbers of the report."""

from __future__ import annotations

import json
import os
import shutil
import signal
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from astropy.table import Table
from sklearn.metrics import accuracy_score, log_loss

import catalogs
from blr.candidates.candidate import CandidateRow
from blr.candidates.fits import FittedCandidate
from flows.cli._models import show_trained
from flows.cli.app import run
from flows.documents import from_document, to_document
from flows.draft.specification import starting_specification
from flows.errors import Interrupted, OutputFolderError, TrainingError
from flows.models.description import ModelDescription
from flows.models.store import Store
from flows.reports.data import quality_remarks, training_remarks
from flows.runs.lock import exclusive
from flows.tables import classify_table
from flows.training import steps
from flows.training._rows import TrainingRows
from tests.flows.candidates import judged
from tests.flows.verbs import train


def text_of(folder: Path, old: str = "", new: str = "") -> None:
    path = folder / "spec.toml"
    assert old in path.read_text()
    path.write_text(path.read_text().replace(old, new))


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory, make: SimpleNamespace) -> ModelDescription:
    """Return what is told of the model of an unchanged folder, for tests that do not write to its store."""
    folder = tmp_path_factory.mktemp("plain")
    make.parquet(folder / "survey.parquet", make.survey())
    (folder / "spec.toml").write_text(make.specification)
    return train(folder / "spec.toml", folder / "models")


def files_below(folder: Path) -> list[Path]:
    return [path.relative_to(folder) for path in folder.rglob("*")]


def test_the_result_of_a_training_is_the_stored_description_and_rows_are_counted(
    plain: ModelDescription, make: SimpleNamespace
) -> None:
    told, columns = plain, make.survey()
    document = json.loads(json.dumps(to_document(told), allow_nan=False))
    assert from_document(ModelDescription, document, source="told") == told
    assert told.status == "trained"
    assert told.champion == told.version
    model = Store(Path(told.path).parents[1]).load("morphology")
    assert model.label == told.model
    assert told.metrics.log_loss < told.metrics.log_loss_baseline
    assert [row.basis for row in told.candidates] == ["linear", "polynomial, degree 2"]
    assert sum(row.weight for row in told.candidates) == pytest.approx(1)
    told = plain.training
    inside = columns["type"] == "G"
    labelled = inside & np.isin(columns["hubble"], ["E", "S0", "Sb", "Sc"])
    assert told.n_read == 400
    assert told.n_selected == inside.sum()
    assert sum(told.training_counts) + sum(told.held_out_counts) == labelled.sum()
    assert told.unknown_labels == {"S?": int(np.sum(columns["hubble"][inside] == "S?"))}
    assert told.unlabelled == np.sum(columns["hubble"][inside] == "")
    missing = {f["name"]: f["missing"] for f in told.features}
    assert missing["b_j"] == pytest.approx(np.mean(columns["jmag"][labelled] == -9999))


def test_a_second_run_does_nothing(folder: Path, plain: ModelDescription) -> None:
    models = Path(plain.path).parents[1]
    shutil.copytree(models, folder / "models")
    first = replace(plain, path=str(folder / Path(plain.path).relative_to(models.parent)))
    before = (Path(first.path) / "model.asdf").stat().st_mtime_ns
    second = train(folder / "spec.toml", folder / "models")
    assert second.status == "exists"
    assert second.candidates == first.candidates
    assert (Path(first.path) / "model.asdf").stat().st_mtime_ns == before
    third = train(folder / "spec.toml", folder / "models", overwrite=True)
    assert third.status == "trained"
    assert third.version == first.version


def test_same_bytes_whatever_the_threads_and_the_format(folder: Path, make: SimpleNamespace) -> None:
    one = train(folder / "spec.toml", folder / "one", threads=1)
    two = train(folder / "spec.toml", folder / "two", threads=2)
    assert (Path(one.path) / "model.asdf").read_bytes() == (Path(two.path) / "model.asdf").read_bytes()
    (folder / "survey.parquet").unlink()
    make.fits(folder / "survey.parquet", make.survey())  # a file is known by what it holds
    three = train(folder / "spec.toml", folder / "three")
    assert three.version == one.version
    assert three.candidates == one.candidates


def test_another_candidate_does_not_change_the_others(folder: Path) -> None:
    rbf = '[[candidate]]\nbasis = { kind = "rbf", centres = 5 }\n'
    text_of(folder, "[[candidate]]\nfeatures", rbf + "[[candidate]]\nfeatures")
    with_rbf = train(folder / "spec.toml", folder / "models")
    text_of(folder, '[[candidate]]\nbasis = { kind = "linear" }\n', "")
    without = train(folder / "spec.toml", folder / "models")
    own = {"weight": 0, "share": 0, "verdict": None, "reasons": (), "numbers": {}}  # depend on the others
    for i in (0, 1):
        assert replace(without.candidates[i], **own) == replace(with_rbf.candidates[i + 1], **own)
    assert without.version != with_rbf.version
    assert without.champion == with_rbf.version


def test_a_killed_run_goes_on_where_it_was(folder: Path, plain: ModelDescription) -> None:
    fitted = []

    def fit(place: str, index: int, threads: int | None) -> FittedCandidate:
        if index == 1 and not fitted:
            fitted.append(index)
            raise KeyboardInterrupt
        return steps.fit(place, index, threads)

    with pytest.raises(KeyboardInterrupt):
        train(folder / "spec.toml", folder / "models", step=lambda f: fit if f is steps.fit else f)
    assert not list((folder / "models").rglob("model.asdf"))
    staging = next((folder / "models" / "morphology").glob(".training-*"))
    row = staging / "candidate-000.json"
    before = row.stat().st_mtime_ns
    assert Store(folder / "models").names() == []
    times = []

    def choose(place: str, rows: Sequence[FittedCandidate]) -> tuple[CandidateRow, ...]:
        times.append(row.stat().st_mtime_ns)
        return steps.choose(place, rows)

    told = train(folder / "spec.toml", folder / "models", step=lambda f: choose if f is steps.choose else f)
    assert times == [before]
    assert not staging.exists()
    assert told.candidates == plain.candidates
    for name in ("model.asdf", "judged.asdf"):
        assert (Path(told.path) / name).read_bytes() == (Path(plain.path) / name).read_bytes()


def test_a_run_killed_at_its_end_leaves_a_whole_model_and_nothing_else(
    folder: Path, plain: ModelDescription, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Killed before the description, before the champion, and while the staging folder is removed."""

    def killed(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    for step in ("flows.models.store.utc_now", "flows.models.store.Store.promote", "shutil.rmtree"):
        monkeypatch.setattr(step, killed)
        with pytest.raises(KeyboardInterrupt):
            train(folder / "spec.toml", folder / "models")
        monkeypatch.undo()
        assert list((folder / "models").rglob("model.asdf")), step
    told = train(folder / "spec.toml", folder / "models")
    assert (told.status, told.champion) == ("exists", plain.version)
    models = Path(plain.path).parents[1]
    assert {*files_below(folder / "models")} == {*files_below(models)}


def test_rows_that_another_run_fits_are_left_alone(folder: Path) -> None:
    planned = train(folder / "spec.toml", folder / "models", dry_run=True)
    staging = folder / "models" / "morphology" / f".training-{planned.version}"
    with exclusive(staging), pytest.raises(OutputFolderError, match="another run is writing to"):
        train(folder / "spec.toml", folder / "models")
    assert not list(staging.glob("*"))


def test_ctrl_c_finishes_the_candidate_in_hand(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    def fit(place: str, index: int, threads: int | None) -> FittedCandidate:
        os.kill(os.getpid(), signal.SIGINT)
        return steps.fit(place, index, threads)

    with pytest.raises(Interrupted, match="run the same command again to continue") as caught:
        train(folder / "spec.toml", folder / "models", step=lambda f: fit if f is steps.fit else f)
    assert caught.value.exit_status == 130
    assert capsys.readouterr().err.startswith("finishing the work in hand")
    staging = next((folder / "models" / "morphology").glob(".training-*"))
    assert (staging / "candidate-000.json").exists()


def test_weights_count_as_rows(folder: Path, make: SimpleNamespace) -> None:
    columns = make.survey()
    make.parquet(folder / "survey.parquet", columns | {"w": np.full(400, 2.0)})
    text_of(folder, 'id = "name"', 'id = "name"\nweight = "w"')
    weighted = train(folder / "spec.toml", folder / "models")
    make.parquet(folder / "survey.parquet", {n: np.repeat(c, 2) for n, c in columns.items()})
    text_of(folder, '\nweight = "w"', "")
    doubled = train(folder / "spec.toml", folder / "models")
    for a, b in zip(weighted.candidates, doubled.candidates, strict=True):
        assert a.log_evidence == pytest.approx(b.log_evidence, rel=1e-9)


def test_files_with_other_columns_and_types_are_one_table(folder: Path, make: SimpleNamespace) -> None:
    """Without a column, of other types and order: the model of the table, of views, in which those are missing."""
    columns = make.survey()
    slices = slice(150), slice(150, 250), slice(250, None)
    parts = [{n: c[part] for n, c in columns.items()} for part in slices]
    columns["jmag"][150:250] = -9999
    views = {name: pa.array(columns[name], pa.string_view()) for name in ("name", "hubble")}
    make.parquet(folder / "survey.parquet", columns | views)
    whole = train(folder / "spec.toml", folder / "models")
    del parts[1]["jmag"]
    parts[2] = {n: c.astype(np.float64) if n == "jmag" else c for n, c in reversed(parts[2].items())}
    (folder / "parts").mkdir()
    for i, part in enumerate(parts):
        make.parquet(folder / "parts" / f"{i}.parquet", part)
    text_of(folder, '"survey.parquet"', '"parts"')
    drifted = train(folder / "spec.toml", folder / "models")
    assert drifted.candidates == whole.candidates
    (quality,) = drifted.training.quality
    assert quality.absent == {"jmag": 1}
    assert "Of 3 files some lack a column, which has no values there: jmag in 1." in quality_remarks(quality)


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("[features]", "[split]\nheld_out = 0.001\n[features]", "held-out rows"),
        ('id = "name"', 'id = "name"\nweight = "-kmag"', "catalog.weight.*negative"),
        ("classes = ", "noise = { S1 = 0.1 } # ", "label.noise: got 'S1'"),
    ],
)
@pytest.mark.parametrize("most", [10, 10_000])
def test_rows_to_which_no_model_can_be_fitted_are_refused(
    folder: Path, old: str, new: str, message: str, most: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing is left of them, be they in memory or on the disk."""
    monkeypatch.setattr("flows.training._gather.MOST_IN_MEMORY", most)
    text_of(folder, old, new)
    with pytest.raises(TrainingError, match=message):
        train(folder / "spec.toml", folder / "models")
    assert not [*(folder / "models").rglob("*")]


def test_a_catalogue_without_rows_is_refused(folder: Path, make: SimpleNamespace) -> None:
    make.parquet(folder / "survey.parquet", {name: values[:0] for name, values in make.survey().items()})
    with pytest.raises(TrainingError, match=r"got catalogues of 0 rows, expected labelled objects"):
        train(folder / "spec.toml", folder / "models")


@pytest.mark.usefixtures("few_draws")
@pytest.mark.parametrize("posterior", ["laplace", "sampled"])
def test_the_posterior_that_is_asked_for(folder: Path, posterior: str) -> None:
    text_of(folder, "[features]", f'[select]\nposterior = "{posterior}"\n[features]')
    told = train(folder / "spec.toml", folder / "models")
    model = Store(folder / "models").load("morphology")
    assert {m.posterior.kind for m in model.classifier.members} == {posterior}
    # The evidence table is Laplace's, whatever becomes of the chosen one: bounds and chains are not ranked against it.
    loss = told.candidates[told.selected].log_loss
    assert loss == pytest.approx(told.metrics.log_loss, rel=0.4)  # of other rows


def test_a_stack_of_candidates(folder: Path) -> None:
    text_of(folder, "[features]", '[select]\nby = "stack"\n[features]')
    told = train(folder / "spec.toml", folder / "models")
    members = Store(folder / "models").load("morphology").classifier.members
    assert sum(m.weight for m in members) == pytest.approx(1)
    assert len(members) == sum(len(row.parts) for row in told.candidates)  # none predicts nothing
    shares = [sum(m.weight for m in members if len(m.columns) == n) for n in (2, 1)]
    assert [row.share for row in told.candidates] == pytest.approx(shares)
    evidence = [row.weight for row in told.candidates]
    assert shares != pytest.approx(evidence, abs=0.01)
    assert told.selected == int(np.argmax(shares))


def test_all_labels_train_and_left_out_rows_judge(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text_of(folder, "[features]", '[split]\nheld_out = 0\n[select]\nby = "stack"\n[features]')
    told = train(folder / "spec.toml", folder / "models")
    assert told.training.n_training == told.metrics.n
    assert not any("Judged on fits" in text for text in training_remarks(told.training))
    card = (Path(told.path) / "card.md").read_text()
    assert "left-out objects" in card
    assert "eld-out" not in card
    show_trained(told)
    shown = capsys.readouterr().out
    assert "left-out objects" in shown
    assert "eld-out" not in shown


SPECIFICATION = """
name = "separable"
[catalog]
paths = ["survey.parquet"]
id = "name"
[label]
column = "type"
[label.classes]
star = ["star"]
galaxy = ["galaxy"]
[split]
held_out = 0
[features]
"""


def test_posteriors_of_a_separable_training_are_green_where_refined_and_red_where_wrong(
    tmp_path: Path,
) -> None:
    """Fifty objects in twelve features, two of which tell their classes apart without error."""
    rng = np.random.default_rng(3)
    x = rng.normal(size=(50, 12))
    star = x[:, 0] + x[:, 1] > 0
    x[:, 0] += np.where(star, 1.0, -1.0)
    columns = {f"x{j}": x[:, j] for j in range(12)}
    named = {"name": [f"o{i}" for i in range(50)], "type": np.where(star, "star", "galaxy").tolist()}
    pq.write_table(pa.table(named | columns), tmp_path / "survey.parquet")
    features = "".join(f'{name} = "{name}"\n' for name in columns)
    told = {}
    for kind in ("refined", "laplace"):
        select = f'[select]\nposterior = "{kind}"\n[features]'
        (tmp_path / "spec.toml").write_text(SPECIFICATION.replace("[features]", select) + features)
        told[kind] = train(tmp_path / "spec.toml", tmp_path / kind)
    assert told["refined"].trust.answer("computed").colour == "green"
    assert told["refined"].trust.numbers["mean_error"] < 0.01
    assert not Store(tmp_path / "refined").load("separable").classifier.untrusted
    # A textbook posterior that is wrong flags the rows that it may be wrong for.
    computed = told["laplace"].trust.answer("computed")
    assert (computed.colour, told["laplace"].trust.verdict) == ("red", "red")
    assert "sampled" in computed.advice
    table = pq.read_table(tmp_path / "survey.parquet")
    found = classify_table(table, model=told["laplace"].model, store=tmp_path / "laplace")
    assert (found["blr_flags"].to_numpy() & 64).any()


@pytest.mark.parametrize("n_classes", [2, 5])
def test_scores_and_reviews_are_those_of_scikit_learn_and_of_counting(n_classes: int) -> None:
    rng = np.random.default_rng(3)
    p = rng.dirichlet(np.ones(n_classes), size=2000)
    truth = np.array([rng.choice(n_classes, p=row) for row in p])
    q = p**1.5 / (p**1.5).sum(axis=1, keepdims=True)
    found = steps.evaluate(judged(p, q, truth), truth)
    assert found.log_loss == pytest.approx(log_loss(truth, p), abs=1e-12)
    assert found.log_loss_plugin == pytest.approx(log_loss(truth, q), abs=1e-12)
    assert found.log_loss_baseline == pytest.approx(np.log(p.shape[1]), abs=1e-12)
    assert found.accuracy == accuracy_score(truth, p.argmax(axis=1))
    wrong, order = p.argmax(axis=1) != truth, np.argsort(p.max(axis=1))
    for review, share in zip(found.reviews, steps.REVIEWED, strict=True):
        n = round(share * len(truth))
        assert review["moderated"] == pytest.approx(wrong[order[:n]].sum() / wrong.sum(), abs=1e-12)
        assert review["moderated"] > review["random"] == share
    # Rows that cannot be classified get the class shares.
    p, q, told = p.copy(), q.copy(), p.copy()
    p[::4] = q[::4] = np.nan
    told[::4] = 1 / p.shape[1]
    found = steps.evaluate(judged(p, q, truth), truth)
    assert found.n_unclassified == 500
    assert found.log_loss == pytest.approx(log_loss(truth, told), abs=1e-12)


N, K = 900, 3
RNG = np.random.default_rng(0)
TRUTH = RNG.integers(K, size=N)
P = RNG.dirichlet(np.ones(K), size=N) + 2 * np.eye(K)[TRUTH] * RNG.random((N, 1))
P /= P.sum(axis=1, keepdims=True)
NAMELESS = TrainingRows(np.zeros((N, 1)), np.zeros((N, 1), bool), TRUTH, np.ones(N, dtype=bool))
RA, DEC = RNG.uniform(0, 360, N), np.where(np.arange(N) % 10, RNG.uniform(-90, 90, N), np.nan)
OBJECTS = replace(
    NAMELESS,
    identifier=np.array([f"obj {i // 2}".encode() for i in range(N)], dtype="S64"),
    position=np.column_stack([RA, DEC]),
    magnitude=np.where(np.arange(N) % 3, RNG.normal(18, 1, N), np.nan),
    magnitude_name=np.array("r"),
)


def test_curves_are_the_shares_above_each_threshold() -> None:
    completeness, purity = steps.threshold_curves(P, TRUTH)
    for k in range(K):
        for i in (0, 30, 77, 100):
            taken, own = P[:, k] >= steps.THRESHOLDS[i], k == TRUTH
            assert completeness[k, i] == np.mean(taken[own])
            if taken.sum() >= 10:
                assert purity[k, i] == np.mean(own[taken])
            else:
                assert np.isnan(purity[k, i])


def test_bins_hold_every_object_that_has_the_quantity_once() -> None:
    binned = steps.judged_pictures(P, OBJECTS)["binned"]
    centres, counts = binned["magnitude"]
    known = np.isfinite(OBJECTS.magnitude)
    assigned = P.argmax(axis=1)
    of_class, given, both = counts.sum(axis=1)
    np.testing.assert_array_equal(of_class, np.bincount(TRUTH[known], minlength=K))
    np.testing.assert_array_equal(given, np.bincount(assigned[known], minlength=K))
    np.testing.assert_array_equal(both, np.bincount(TRUTH[known & (assigned == TRUTH)], minlength=K))
    assert binned["latitude"][1][0].sum() == np.isfinite(OBJECTS.position[:, 1]).sum()
    assert np.ptp(counts[0].sum(axis=1)) <= 2
    assert np.all(np.diff(centres) > 0)
    few = steps.judged_pictures(P[:50], OBJECTS.of(np.arange(N) < 50))
    assert "magnitude" not in few["binned"]
    assert steps.judged_pictures(P, NAMELESS)["binned"] == {}


def test_the_objects_are_those_whose_labels_surprise_most_each_once() -> None:
    objects = steps.notable_objects(P, OBJECTS, ("a", "b", "c"))
    assert len(objects) == 20
    assert len({o["name"] for o in objects}) == 20
    wrong = P.argmax(axis=1) != TRUTH
    own = np.where(wrong, P[np.arange(N), TRUTH], np.inf)
    first = int(np.argmin(own))
    assert objects[0]["name"] == f"obj {first // 2}"
    assert objects[0]["why"].startswith(f"labelled {'abc'[TRUTH[first]]}")
    assert all((o["dec"] is None) or -90 <= o["dec"] <= 90 for o in objects)
    assert steps.notable_objects(P, NAMELESS, ("a", "b", "c")) == ()


def test_suspects_that_init_keeps_are_said_after_the_training(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rng = np.random.default_rng(3)
    n = 400
    star = rng.random(n) < 0.5
    columns = {
        "objid": np.arange(n) + 5_000_000,
        "g_r": star + rng.normal(size=n),
        "z": rng.uniform(14, 19, n),  # a magnitude
        "redshift": np.abs(rng.normal(0.3, 0.1, n)),
        "width": np.where(star & (rng.random(n) < 0.7), np.nan, rng.normal(size=n)),
        "kind": np.where(star, "STAR", "GALAXY"),
    }
    Table(columns).write(tmp_path / "sky.fits")
    start = starting_specification(catalogs.open(tmp_path / "sky.fits"), "kind", folder=tmp_path)
    assert set(start.suspects) == {"redshift", "width"}
    head = start.text.partition("[[candidate]]")[0]
    (tmp_path / "spec.toml").write_text(head + '[[candidate]]\nbasis = { kind = "linear" }\n')
    assert run(["train", str(tmp_path / "spec.toml"), "--store", str(tmp_path / "models"), "--direct"]) == 0
    said = " ".join(capsys.readouterr().out.split())
    share = np.isfinite(columns["width"][star]).mean()
    named = "Suspects: redshift (a distance), width (measured for 100% of class 'GALAXY' and "
    assert f"{named}{share:.0%} of class 'STAR'). Leave out what the objects to classify lack" in said
