"""Review lists: who is chosen, with which weight and within which budget, and what is written."""

from __future__ import annotations

import csv
import json
import re
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from astropy.table import Table

import catalogs
from catalogs.sky.positions import survey_links
from flows.classification.explanation import feature_space
from flows.documents import from_document, to_document
from flows.errors import SpecificationError, TrainingError, UsageError
from flows.labels.reader import read_reviews
from flows.models.row_files import labelled_objects
from flows.models.store import Store
from flows.reviews._lists import REVIEW, write_list
from flows.reviews.selection import ReviewResult
from flows.runs.manifest import annotated_manifest, identifier_column
from flows.specification.catalog import Label
from tests.flows.verbs import classify, listed, review


@pytest.fixture(scope="module")
def annotated(trained: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return annotated copies of the survey, in which nobody is known to have a label."""
    out = tmp_path_factory.mktemp("annotated") / "out"
    classify([trained / "survey.parquet"], model="morphology", store=trained / "models", out=out)
    shutil.rmtree(out / "_labelled")
    return out


def rows(out: Path, name: str = "review") -> list[dict[str, str]]:
    with (out / f"{name}.csv").open(encoding="utf-8", newline="") as stream:
        return [*csv.DictReader(stream)]


def test_the_least_certain_of_those_flagged(annotated: Path) -> None:
    told = review(annotated, top=7)
    document = json.loads(json.dumps(to_document(told), allow_nan=False))
    assert from_document(ReviewResult, document, source="the result") == told
    table = pq.read_table(annotated / "survey.parquet").to_pandas()
    flagged = table[(table.blr_flags & 0b1001111 & ~0b1110000 > 0) & table.blr_p_max.notna()]
    chosen = rows(annotated)
    assert [float(r["p_max"]) for r in chosen] == sorted(flagged.blr_p_max)[:7]
    assert {r["name"] for r in chosen} <= set(flagged.name)
    assert {(r["how"], r["weight"], r["label"]) for r in chosen} == {("top", "1.0", "")}
    assert list(Table.read(annotated / "review.vot")["name"]) == [r["name"] for r in chosen]


def test_the_identifier_is_the_specifications_and_an_object_is_listed_once(
    trained: Path, make: SimpleNamespace, tmp_path: Path
) -> None:
    """DESI's TARGETID looks like no identifier to us; half of these objects were observed twice."""
    columns = {name: np.concatenate([a, a[:200]]) for name, a in make.survey().items()}
    columns["TARGETID"] = columns.pop("name")
    make.fits(tmp_path / "zall.fits", columns)
    spec = tmp_path / "spec.toml"
    spec.write_text(make.specification + '\n[target]\ncolumns = { name = "TARGETID" }\n')
    out, store = tmp_path / "out", trained / "models"
    classify([tmp_path / "zall.fits"], model="morphology", store=store, out=out, specification=spec)
    shutil.rmtree(out / "_labelled")
    told = review(out, top=60)
    assert told.id == "TARGETID"
    top = [r["TARGETID"] for r in rows(out) if r["how"] == "top"]
    assert len(set(top)) == len(top) == told.top == 60


FORMULAS = ("=HYPERLINK(1)", "+1", "-1+2", "@x", "\ttab", "\rcr", "a\rb")
FORMULAS += ("'quoted", "''twice", "-7", "007", "plain")


def formula_list(folder: Path, names: Sequence[str] = FORMULAS) -> Path:
    """Write a list of objects whose names a spreadsheet may take for formulas; return the CSV file."""
    cells = (10.0, -2.5, "=E", 0.6, "late", 0.4, 0.1, 1, "LOW_CONFIDENCE", "drawn", 7.5)
    objects = [listed(REVIEW, name, *cells) for name in names]
    path, votable, _ = write_list(REVIEW, objects, folder, "name", ["=E", "late"], "Review of m@1")
    assert [str(name) for name in Table.read(votable)["name"]] == list(names)
    return path


def answer(path: Path, change: Callable[[dict[str, str]], object] = dict) -> list[Path]:
    """Fill in a list as a spreadsheet does, every answer "late"; `change` a row."""
    objects = rows(path.parent)
    for row in objects:
        row["label"] = "late"
        change(row)
    with path.open("w", encoding="utf-8", newline="") as stream:
        writer = csv.DictWriter(stream, objects[0], lineterminator="\r\n")
        writer.writeheader()
        writer.writerows(objects)
    return [path]


LABEL = Label(column="class", classes={"=E": ["E"], "late": ["L"]})


def test_cells_are_harmless_in_a_spreadsheet_and_come_back_unchanged(tmp_path: Path) -> None:
    path = formula_list(tmp_path)
    cells = rows(tmp_path)
    assert len(cells) == len(FORMULAS), "a CR in a name ends no line"
    for row in cells:
        formulas = [c for c in row.values() if c.startswith(("=", "+", "-", "@", "\t", "\r"))]
        assert formulas == ["-2.5"], "numbers alone"
        assert row["class_given"] == "'=E"
    names = {name.strip() for name in FORMULAS}
    assert read_reviews(answer(path), "name", LABEL)[0] == dict.fromkeys(names, "L")

    def without_apostrophe(row: dict[str, str]) -> None:
        """Change a name as spreadsheets do that take an apostrophe for the mark of a text."""
        row["name"] = row["name"].removeprefix("'")

    path = formula_list(tmp_path)
    assert read_reviews(answer(path, without_apostrophe), "name", LABEL)[0] == dict.fromkeys(names, "L")


def test_an_answer_beside_another_object_is_refused(tmp_path: Path) -> None:
    def as_number(row: dict[str, str]) -> None:
        row["name"] = row["name"].removeprefix("00")

    path = formula_list(tmp_path, ["007", "abc"])
    message = r"1 answers in rows whose 'blr_list' is of another object.*'7'"
    with pytest.raises(SpecificationError, match=message):
        read_reviews(answer(path, as_number), "name", LABEL)


def test_identifiers_that_were_rounded_are_refused(
    trained: Path, make: SimpleNamespace, tmp_path: Path
) -> None:
    """As DuckDB writes 128-bit integers: answers would be another object's."""
    columns = make.survey(100)
    columns["objid"] = 1237648720142401536.0 + np.arange(100)
    make.parquet(tmp_path / "s.parquet", columns)
    out = tmp_path / "out"
    classify([tmp_path / "s.parquet"], model="morphology", store=trained / "models", out=out)
    with pytest.raises(TrainingError, match=r"--id: got floating-point identifiers above 2\^53 in 'objid'"):
        review(out, identifier="objid")
    assert review(out).id == "name"


def test_texts_are_escaped_and_positions_linked(tmp_path: Path) -> None:
    cells = (10.5, -2.25, "a&b", 0.5, "'c'", 0.3, 0.1, 1, "LOW_CONFIDENCE", "top", 1.0)
    row = listed(REVIEW, "<script>x", *cells)
    write_list(REVIEW, [row], tmp_path, "name", ["a&b", "'c'"], "Review of <b>")
    page = (tmp_path / "review.html").read_text(encoding="utf-8")
    assert page.count("<script") == 1  # our own
    assert "&lt;script&gt;x" in page
    assert "Review of <b>" not in page
    assert "ra=10.500000&amp;dec=-2.250000" in page
    assert survey_links(np.nan, 1.0) == {}
    write_list(REVIEW, [], tmp_path, "name", ["a"], "none")
    assert len(Table.read(tmp_path / "review.vot")) == 0


def test_what_is_no_annotated_folder(tmp_path: Path, annotated: Path) -> None:
    with pytest.raises(UsageError, match="got a folder without a manifest"):
        review(tmp_path)
    with pytest.raises(UsageError, match="name it with --id"):
        review(annotated, identifier="nam")
    with pytest.raises(UsageError, match="or add one of row numbers and classify again"):
        identifier_column(catalogs.open(Table({"x": [1.0]})), asked=None, stated=None, option="--id")


@pytest.fixture(scope="module")
def release(trained: Path, make: SimpleNamespace, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return copies of the survey with 600 objects without a label, 15 of them quasars: blue, and alike by three."""
    folder = tmp_path_factory.mktemp("release")
    columns, new = make.survey(), make.survey(600, seed=2)
    new["name"] = np.array([f"N{i:05d}" for i in range(600)])
    new["hubble"] = np.full(600, "")
    new["type"][:] = "G"
    new["bmag"][:15] = new["kmag"][:15] - 8 - np.arange(15) // 3
    new["jmag"][:15] = new["kmag"][:15]
    both = {name: np.concatenate([columns[name], new[name]]) for name in columns}
    make.parquet(folder / "all.parquet", both)
    out = folder / "out"
    classify([folder / "all.parquet"], model="morphology", store=trained / "models", out=out)
    return out


def test_a_budget_is_drawn_with_weights_that_stand_for_the_release(trained: Path, release: Path) -> None:
    read, sums = pq.read_table(release / "all.parquet"), []
    table = read.to_pandas().set_index("name")
    folder = Store(trained / "models").find("morphology").folder
    labelled = {n.decode() for n in labelled_objects(folder, classes=2, features=2)["identifier"].tolist()}
    classified = table.blr_p_max.notna() & ~table.index.isin(labelled)
    scorer, _ = feature_space(annotated_manifest(release), trained / "models")
    here = scorer.on(catalogs.open(release / "all.parquet"))
    for seed in range(8):
        told = review(release, budget=40, seed=seed)
        chosen = rows(release)
        assert (told.drawn, told.top, len(chosen)) == (40, 0, 40)
        names = [r["name"] for r in chosen]
        assert len(set(names)) == 40
        assert not set(names) & labelled
        assert told.n_classified == classified.sum()
        assert not any("may contain objects that have a label" in remark for remark in told.remarks)
        weight = np.array([float(r["weight"]) for r in chosen])
        assert weight.max() <= 10 * told.n_classified / 40 * (1 + 1e-9)
        sums.append(weight.sum())
        (batch,) = read.take([table.index.get_loc(name) for name in names]).combine_chunks().to_batches()
        near = here.points(batch)
        gaps = np.linalg.norm(near[:, None] - near, axis=2)[np.triu_indices(40, 1)]
        assert gaps.min() > 0.01
        informed = table.loc[names, "blr_mutual_info"].mean()
        assert informed > table["blr_mutual_info"].mean()
    assert np.mean(sums) == pytest.approx(told.n_classified, rel=0.15)


def test_outliers_are_listed_apart_each_kind_once(release: Path) -> None:
    told = review(release, budget=10, outliers=5)
    found = rows(release, "outliers")
    assert told.outliers == len(found) == 5
    drawn = {r["name"] for r in rows(release)}
    kinds = [int(r["name"][1:]) // 3 for r in found if int(r["name"][1:]) < 15]
    assert len(kinds) >= 4
    assert len(set(kinds)) == len(kinds)  # of three that are alike, one
    assert not drawn & {r["name"] for r in found}
    novelty = [float(r["novelty"]) for r in found]
    assert novelty == sorted(novelty, reverse=True)
    page = (release / "outliers.html").read_text(encoding="utf-8")
    assert "other?" in page
    assert {r["nearest_class"] for r in found} <= {"early", "late"}


def test_quotas_by_class_and_by_magnitude(release: Path) -> None:
    review(release, budget=30, per_class=True, by="kmag", edges=[11.0])
    chosen = rows(release)
    table = pq.read_table(release / "all.parquet").to_pandas().set_index("name")
    bright = table.loc[[r["name"] for r in chosen], "kmag"].to_numpy() < 11
    early = np.array([r["class_given"] == "early" for r in chosen])
    assert sorted(np.bincount(2 * early + bright, minlength=4).tolist()) == [7, 7, 8, 8]
    with pytest.raises(UsageError, match="got no --budget"):
        review(release, per_class=True)
    with pytest.raises(UsageError, match="expected one way to choose"):
        review(release, budget=3, top=2)


def test_without_the_features_objects_are_spread_over_probabilities(
    trained: Path, make: SimpleNamespace, tmp_path: Path
) -> None:
    spec = tmp_path / "slim.toml"
    spec.write_text(make.specification + '\n[output]\nmode = "slim"\n')
    out = tmp_path / "out"
    survey = make.parquet(tmp_path / "s.parquet", make.survey(200, seed=5))
    classify([survey], model="morphology", store=trained / "models", out=out, specification=spec)
    told = review(out, budget=12, dry_run=True)
    assert told.drawn == 12
    assert told.outliers == 0
    assert any("not slim ones" in remark for remark in told.remarks)


def test_a_release_without_objects_and_one_of_many_files(
    trained: Path, make: SimpleNamespace, tmp_path: Path
) -> None:
    """All of whose objects have a label; and files that share a budget, in slices of a random order."""
    none = tmp_path / "none"
    classify([trained / "survey.parquet"], model="morphology", store=trained / "models", out=none)
    table = pq.read_table(none / "survey.parquet")
    names = pa.table({"name": pa.array(table["name"].to_pylist(), pa.string())})
    pq.write_table(names, none / "_labelled" / "names.parquet")
    told = review(none, budget=5)
    assert (told.drawn, told.outliers, told.n_classified) == (0, 0, 0)
    (short,) = (remark for remark in told.remarks if "positions" not in remark)
    assert short.startswith("the list has 0 of the 5 objects of the budget: the model was trained on 400 of")
    assert short.endswith("of 400, and of repeats and near-duplicates one is listed")
    assert rows(none) == rows(none, "outliers") == []
    for i in range(3):
        columns = make.survey(50, seed=10 + i)
        columns["name"] = np.array([f"{i}-{name}" for name in columns["name"]])
        make.parquet(tmp_path / f"part{i}.parquet", columns)
    out = tmp_path / "out"
    classify(sorted(tmp_path.glob("part*")), model="morphology", store=trained / "models", out=out)
    assert review(out, budget=20).drawn == 20
    assert {r["name"][0] for r in rows(out)} == {"0", "1", "2"}


def test_a_list_with_answers_is_not_overwritten(trained: Path, make: SimpleNamespace, tmp_path: Path) -> None:
    out = tmp_path / "out"
    survey = make.parquet(tmp_path / "s.parquet", make.survey(100, seed=8))
    classify([survey], model="morphology", store=trained / "models", out=out)
    review(out, budget=5, outliers=2)
    review(out, budget=5, outliers=2)
    path = out / "outliers.csv"
    path.write_text(path.read_text().rstrip("\n") + "other?\n")
    message = r"outliers\.csv: got a list with 1 answers.*move it to another folder first"
    with pytest.raises(UsageError, match=message):
        review(out, budget=5)
    assert review(out, top=3).top >= 0  # the other list has none


@pytest.mark.parametrize(
    ("classes", "keys"),
    [
        (("late", "early"), {"late": "1", "early": "2", "?": "3"}),
        (("1", "5", "10"), {"1": "1", "5": "5", "?": "?"}),
    ],
)
def test_a_class_that_is_a_digit_has_that_key(
    tmp_path: Path, classes: tuple[str, ...], keys: dict[str, str]
) -> None:
    """The key 2 chose the class 5, the second of LINEAR's."""
    cells = (1.0, 2.0, classes[0], 0.6, classes[1], 0.4, 0.1, 1, "LOW_CONFIDENCE", "drawn", 7.5)
    row = listed(REVIEW, "a", *cells)
    page = write_list(REVIEW, [row], tmp_path, "name", classes, "Review of m@1")[2].read_text()
    assert {name: key for key, name in re.findall(r'<option data-key="(.)">([^<]*)<', page)} == keys
    assert ", ".join(f"<kbd>{key}</kbd> {name}" for name, key in keys.items()) in page
