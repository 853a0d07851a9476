"""Review lists: who is chosen, with which weight, and what is written."""

from __future__ import annotations

import csv
import json
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pyarrow.parquet as pq
import pytest
from astropy.table import Table

import catalogs
from catalogs.sky.positions import survey_links
from flows.cli._classification import show_reviewed
from flows.documents import from_document, to_document
from flows.errors import SpecificationError, TrainingError, UsageError
from flows.labels.reader import read_reviews
from flows.models.row_files import LabelledObjects
from flows.models.store import Store
from flows.reviews._lists import REVIEW, write_list
from flows.reviews.selection import ReviewResult
from flows.runs.manifest import identifier_column
from flows.specification.catalog import Label
from tests.flows.verbs import classify, listed, review


@pytest.fixture(scope="module")
def annotated(trained: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return annotated copies of the survey, in which nobody is known to have a label."""
    out = tmp_path_factory.mktemp("annotated") / "out"
    classify([trained / "survey.parquet"], model="morphology", store=trained / "models", out=out)
    shutil.rmtree(out / "_labelled")
    return out


def test_nobody_with_a_label_is_asked_about(trained: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    classify([trained / "survey.parquet"], model="morphology", store=trained / "models", out=out)
    told = review(out, top=400, draw=10)
    assert not any("the list may contain objects that have a label" in remark for remark in told.remarks)
    with (out / "review.csv").open(encoding="utf-8") as stream:
        names = {row["name"] for row in csv.DictReader(stream)}
    folder = Store(trained / "models").find("morphology").folder
    labelled = {
        name.decode() for name in LabelledObjects.read(folder, classes=2, features=2).identifier.tolist()
    }
    assert names
    assert not names & labelled
    classified = pq.read_table(out / "survey.parquet").to_pandas().dropna(subset=["blr_p_max"])
    assert told.n_classified == (~classified["name"].isin(labelled)).sum()


def test_the_least_certain_of_those_flagged(annotated: Path) -> None:
    told = review(annotated, top=7)
    document = json.loads(json.dumps(to_document(told), allow_nan=False))
    assert from_document(ReviewResult, document, source="the result") == told
    table = pq.read_table(annotated / "survey.parquet").to_pandas()
    flagged = table[(table.blr_flags & 0b1001111 & ~0b1110000 > 0) & table.blr_p_max.notna()]
    with (annotated / "review.csv").open(encoding="utf-8") as stream:
        rows = list(csv.DictReader(stream))
    assert [float(r["p_max"]) for r in rows] == sorted(flagged.blr_p_max)[:7]
    assert {r["name"] for r in rows} <= set(flagged.name)
    assert {(r["how"], r["weight"], r["label"]) for r in rows} == {("top", "1.0", "")}
    assert list(Table.read(annotated / "review.vot")["name"]) == [r["name"] for r in rows]


def test_a_draw_stands_for_the_catalogue(annotated: Path) -> None:
    n = []
    for seed in range(5):
        assert review(annotated, top=0, draw=40, seed=seed).drawn == 40
        with (annotated / "review.csv").open(encoding="utf-8") as stream:
            n.append(sum(float(row["weight"]) for row in csv.DictReader(stream)))
    told = review(annotated, top=0, draw=40, dry_run=True)
    assert told.files == ()
    assert np.mean(n) == pytest.approx(told.n_classified, rel=0.4)


def test_the_identifier_is_the_specifications_and_an_object_is_listed_once(
    trained: Path, make: SimpleNamespace, tmp_path: Path
) -> None:
    """DESI's TARGETID looks like no identifier to us; half of these objects were observed twice."""
    columns = {name: np.concatenate([a, a[:200]]) for name, a in make.survey().items()}
    columns["TARGETID"] = columns.pop("name")
    make.fits(tmp_path / "zall.fits", columns)
    spec = tmp_path / "spec.toml"
    spec.write_text(make.specification + '\n[target]\ncolumns = { name = "TARGETID" }\n')
    out = tmp_path / "out"
    classify(
        [tmp_path / "zall.fits"], model="morphology", store=trained / "models", out=out, specification=spec
    )
    shutil.rmtree(out / "_labelled")
    told = review(out, top=60, draw=30)
    with (out / "review.csv").open(encoding="utf-8") as stream:
        rows = list(csv.DictReader(stream))
    assert told.id == "TARGETID"
    assert told.drawn == sum(r["how"] == "drawn" for r in rows) == 30
    top = [r["TARGETID"] for r in rows if r["how"] == "top"]
    assert len(set(top)) == len(top) == told.top >= 30
    assert review(out, top=60).top == 60


FORMULAS = (
    "=HYPERLINK(1)",
    "+1",
    "-1+2",
    "@x",
    "\ttab",
    "\rcr",
    "a\rb",
    "'quoted",
    "''twice",
    "-7",
    "007",
    "plain",
)


def formula_list(folder: Path, names: Sequence[str] = FORMULAS) -> Path:
    """Write a list of objects whose names a spreadsheet may take for formulas; return the CSV file."""
    rows = [
        listed(REVIEW, name, 10.0, -2.5, "=E", 0.6, "late", 0.4, 0.1, 1, "LOW_CONFIDENCE", "drawn", 7.5)
        for name in names
    ]
    path, votable, _ = write_list(REVIEW, rows, folder, "name", ["=E", "late"], "Review of m@1")
    assert [str(name) for name in Table.read(votable)["name"]] == list(names)
    return path


def answer(path: Path, change: Callable[[dict[str, str]], object] = dict) -> list[Path]:
    """Fill in a list as a spreadsheet does, every answer "late"; `change` a row."""
    with path.open(encoding="utf-8", newline="") as stream:
        rows = list(csv.DictReader(stream))
    for row in rows:
        row["label"] = "late"
        change(row)
    with path.open("w", encoding="utf-8", newline="") as stream:
        writer = csv.DictWriter(stream, rows[0], lineterminator="\r\n")
        writer.writeheader()
        writer.writerows(rows)
    return [path]


LABEL = Label(column="class", classes={"=E": ["E"], "late": ["L"]})


def test_cells_are_harmless_in_a_spreadsheet_and_come_back_unchanged(tmp_path: Path) -> None:
    path = formula_list(tmp_path)
    with path.open(encoding="utf-8", newline="") as stream:
        header, *rows = csv.reader(stream)
    assert len(rows) == len(FORMULAS), "a CR in a name ends no line"
    for row in rows:
        formulas = [c for c in row if c.startswith(("=", "+", "-", "@", "\t", "\r"))]
        assert formulas == ["-2.5"], "numbers alone"
    assert rows[0][header.index("class_given")] == "'=E"
    names = {name.strip() for name in FORMULAS}
    assert read_reviews(answer(path), "name", LABEL).labels == dict.fromkeys(names, "L")

    def without_apostrophe(row: dict[str, str]) -> None:
        """Change a name as spreadsheets do that take an apostrophe for the mark of a text."""
        row["name"] = row["name"].removeprefix("'")

    path = formula_list(tmp_path)
    assert read_reviews(answer(path, without_apostrophe), "name", LABEL).labels == dict.fromkeys(names, "L")


def test_an_answer_beside_another_object_is_refused(tmp_path: Path) -> None:
    def as_number(row: dict[str, str]) -> None:
        row["name"] = row["name"].removeprefix("00")

    path = formula_list(tmp_path, ["007", "abc"])
    with pytest.raises(
        SpecificationError, match=r"1 answers in rows whose 'blr_list' is of another object.*'7'"
    ):
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
    row = listed(
        REVIEW, "<script>x", 10.5, -2.25, "a&b", 0.5, "'c'", 0.3, 0.1, 1, "LOW_CONFIDENCE", "top", 1.0
    )
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


@pytest.mark.parametrize(
    ("counts", "says"),
    [
        ((0, 60, 4462), "60 drawn, of 4,462 classified objects that the model was not trained on: "),
        (
            (5, 60, 4462),
            "5 the least certain of those flagged and 60 drawn, of 4,462 classified objects that the model was",
        ),
        ((0, 0, 4462), "No object chosen, of 4,462 classified objects"),
        ((0, 0, 0), "No object to choose: the model was trained on each one that is classified: "),
    ],
)
def test_who_was_chosen_is_said(
    counts: tuple[int, int, int], says: str, capsys: pytest.CaptureFixture[str]
) -> None:
    top, drawn, n = counts
    result = ReviewResult(
        status="done",
        model="m@1",
        out=Path("out"),
        id="name",
        n_classified=n,
        top=top,
        drawn=drawn,
        outliers=0,
        remarks=(),
        files=(Path("review.html"),),
    )
    show_reviewed(result)
    said = capsys.readouterr().out
    assert said.startswith(says)
    assert ("Next: open review.html" in said) == (top + drawn > 0)
