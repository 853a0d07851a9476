"""Reports and tables on terminals show the numbers, take every text literally, and load nothing from anywhere."""

from __future__ import annotations

import base64
import hashlib
import io
import re
import runpy
import time
from dataclasses import replace
from html.parser import HTMLParser
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from rich.console import Console
from scipy.special import softmax

from blr.census.results import Census, ClassCensus, SelectionCensus
from blr.trust.verdict import Trust, TrustAnswer
from catalogs.profile.split import SplitSummary
from flows.models.description import (
    InputFile,
    LabelSummary,
    Metrics,
    ModelDescription,
    ReliabilityBin,
    Review,
    RiskCurve,
    TargetShift,
    TrainingDescription,
    WrongLabels,
)
from flows.models.store import SkillSummary
from flows.reports import tables
from flows.reports.counts import selection_table
from flows.reports.data import BoundaryPicture, ReportNotes
from flows.reports.report_table import ReportTable
from flows.reports.tables import render_report
from tests.flows.candidates import CANDIDATE

HOSTILE = "<script>alert(1)</script>\" onerror='x' $\\frac{1 | **b** [link](http://evil) \x1b[31m 星系"


def make_picture(n_classes: int, rng: np.random.Generator) -> BoundaryPicture:
    x, y = np.linspace(0, 5, 61), np.linspace(0, 1, 51)
    gx, gy = np.meshgrid(x, y)
    logits = np.stack([k * (gx - 2.5) - 2 * k * (gy - 0.5) for k in range(n_classes)], axis=-1)
    n = 300
    return BoundaryPicture(
        x_name="b_j",
        y_name="axis_ratio",
        x=x,
        y=y,
        moderated=softmax(0.7 * logits, axis=-1),
        point_x=rng.normal(2.5, 0.8, n),
        point_y=rng.uniform(0.1, 1, n),
        point_class=rng.integers(0, n_classes, n),
    )


def verdict(colour: str, *reasons: str, known: str = "green") -> Trust:
    """Return a verdict whose first answer has the colour, and whose last is the `known` one."""
    said = {
        "computed": (colour, "probabilities err by 0.020 ± 0.005 on average"),
        "calibrated": ("green", "probabilities are as sure as they may be"),
        "known": (known, "it knows more than the class shares"),
    }
    advice, numbers = {"green": ""}, {"value": 0.02, "low": 0.01, "high": 0.03}
    answers = tuple(
        TrustAnswer(name=name, colour=of, **numbers, says=says, advice=advice.get(of, "label more objects"))
        for name, (of, says) in said.items()
    )
    return Trust(verdict=colour, reasons=reasons, numbers={}, answers=answers)


def make_model(classes: tuple[str, ...] = ("early", "late")) -> ModelDescription:
    K, reviewed = len(classes), np.linspace(0, 1, 101)
    candidates = tuple(
        replace(
            CANDIDATE,
            features=("b_j", "axis_ratio")[: 1 + i % 2],
            basis=basis,
            n_functions=10 * i + 3,
            log_evidence=evidence,
            bic=evidence - 20,
            effective_parameters=9.5 * i + 2.25,
            log_loss=0.51 + 0.01 * i,
            verdict=verdict,
            weight=weight,
            second_order=-0.031 if i else None,
        )
        for i, (basis, evidence, verdict, weight) in enumerate(
            (
                ("linear", -4312.34, "green", 1e-9),
                ("polynomial, degree 2", -4198.76, "amber", 0.8),
                ("rbf, 40", -4199.9, "red", 0.2),
            )
        )
    )
    keys = ("name", "expression", "unit", "missing", "minimum", "median", "maximum")
    b_j = ("b_j", "bmag - jmag", "mag", 0.104, -2.53, 2.92, 6.56)
    axis_ratio = ("axis_ratio", "minax / majax", None, 0, 0.08, 0.62, 1)
    held_out = tuple(848 + i for i in range(K))
    n = sum(held_out)
    gain = {"gain": 0.1679, "low": 0.15, "high": 0.18, "baseline": 0.6802, "level": 0.95}
    risk = {"moderated": tuple(1 - (1 - reviewed) ** 2), "plugin": tuple(1 - (1 - reviewed) ** 1.9)}
    metrics = Metrics(
        n=n,
        n_unclassified=0,
        log_loss=0.5123,
        log_loss_plugin=0.5131,
        log_loss_baseline=0.6802,
        accuracy=0.7431,
        calibration_error=0.0121,
        reliability=tuple(
            ReliabilityBin(predicted=p, observed=p + 0.02, low=p - 0.03, high=p + 0.06, n=200)
            for p in (0.1, 0.3, 0.5, 0.7, 0.9)
        ),
        reliability_of="moderated probability",
        reviews=tuple(Review(share=s, moderated=2 * s, plugin=1.9 * s, random=s) for s in (0.05, 0.1, 0.2)),
        risk=RiskCurve(reviewed=tuple(reviewed), **risk),
        skill=SkillSummary(**gain, n=n, n_groups=n, verdict="better"),
        judged_by="held-out",
        confusion=tuple(map(tuple, np.diag(held_out).tolist())),
    )
    training = TrainingDescription(
        inputs=(InputFile(name="openngc.fits", sha256="ab12", n_rows=10_521),),
        content_hash="cd34",
        n_read=10_521,
        n_selected=10_521,
        training_counts=tuple(3391 + i for i in range(K)),
        held_out_counts=held_out,
        class_share=(1 / K,) * K,
        unlabelled=0,
        unknown_labels={},
        labels=LabelSummary(conflicts=0, conflicting={}, joined=0, unplaced=0, shared=0, reviewed=0),
        split=SplitSummary(by="id", asked=0.2, share=0.2, n_places=10_521, healpix_order=None),
        states={},
        features=tuple(dict(zip(keys, values, strict=True)) for values in (b_j, axis_ratio)),
        noise={},
        distribution={},
        overdispersion=1.0,
        label_noise=WrongLabels(),
        shift=TargetShift(),
        quality=(),
        refitted=None,
    )
    return ModelDescription(
        status="stored",
        path=None,
        champion=None,
        model="binary@1f9e2a7c44d0",
        name="binary",
        version="1f9e2a7c44d0",
        model_id=7,
        classes=classes,
        features=("b_j", "axis_ratio"),
        candidates=candidates,
        selected=1,
        selected_by="",
        trust=verdict("green"),
        metrics=metrics,
        training=training,
        seed=0,
        specification_hash="ef56",
        code_version="0.1.0",
    )


def changed(model: ModelDescription, **values: Any) -> ModelDescription:
    """Return the model with other values, each in the part that holds it."""

    def with_own(part: Any, **parts: Any) -> Any:
        own = {name: values.pop(name) for name in [*values] if name in type(part).__dataclass_fields__}
        return replace(part, **parts, **own)

    metrics, training = map(with_own, (model.metrics, model.training))
    model = with_own(model, metrics=metrics, training=training)
    assert not values
    return model


NO_NOTES = ReportNotes()


def page_of(model: ModelDescription, notes: ReportNotes = NO_NOTES, **pictures: Any) -> str:
    """Return the page of a model, with a picture of boundaries unless another one is given."""
    boundary = make_picture(len(model.classes), np.random.default_rng(1))
    return render_report(model, notes, **{"boundary": boundary} | pictures)


class Loads(HTMLParser):
    """What a page would fetch, run, or be told by its attributes."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.loads: list[str] = []
        self.scripts = 0
        self.handlers: list[str] = []
        self.text = ""
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.scripts += tag in {"script", "iframe", "object", "embed", "base", "link"}
        for key, value in attrs:
            if key in {"src", "srcset", "href", "action", "data", "poster", "background"}:
                self.loads.append(value or "")
            if key.startswith("on"):
                self.handlers.append(key)

    def handle_data(self, data: str) -> None:
        self.text += data


@pytest.fixture(scope="module")
def page() -> str:
    return page_of(make_model())


def test_loads_nothing(page: str) -> None:
    parsed = Loads(page)
    assert parsed.loads
    assert all(load.startswith("data:image/svg+xml;base64,") for load in parsed.loads)
    (script,) = re.findall(r"<script>(.*?)</script>", page, flags=re.DOTALL)
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    assert f"script-src 'sha256-{digest}'" in page
    assert parsed.scripts == 1
    assert "url(" not in page
    assert "@import" not in page
    for load in parsed.loads:
        image = base64.b64decode(load.partition(",")[2]).decode()
        assert not re.search(r"href=\"(?!#|data:image/png)|url\((?!#)|<script|@import", image)


def test_hostile_texts_stay_texts() -> None:
    model = make_model((HOSTILE, "_late", "third"))
    feature, *others = model.training.features
    bad = changed(
        model,
        name=HOSTILE,
        inputs=(InputFile(name=HOSTILE, sha256=HOSTILE, n_rows=1),),
        states={HOSTILE: {"masked": 1}},
        features=(feature | dict.fromkeys(("name", "expression", "unit"), HOSTILE), *others),
        candidates=tuple(replace(c, features=(HOSTILE,), basis=HOSTILE) for c in model.candidates),
        reliability_of=HOSTILE,
    )
    picture = make_picture(3, np.random.default_rng(1)) | {"x_name": HOSTILE}
    parsed = Loads(page_of(bad, boundary=picture))
    assert parsed.scripts == 1  # ours
    assert parsed.handlers == []
    assert all(load.startswith("data:image/svg+xml;base64,") for load in parsed.loads)
    assert "<script>alert(1)</script>" in parsed.text


def shown(table: ReportTable, width: int, **options: Any) -> str:
    """Return what a terminal of that many columns shows of a table."""
    stream = io.StringIO()
    Console(file=stream, width=width, **options).print(table)
    return stream.getvalue()


def test_hostile_texts_in_markdown_and_on_the_terminal() -> None:
    table = ReportTable(title=HOSTILE, columns=("a", "b"), rows=((HOSTILE, "[bold]x[/bold]"),))
    written = tables.to_markdown(table)
    assert "<script>" not in written
    assert "[link](" not in written
    assert "\x1b" not in written
    body = written.splitlines()[4]
    assert body.replace("\\|", "").count("|") == 3
    said = shown(table, 200, force_terminal=True)
    assert "\x1b[31m " not in said
    assert "[bold]x[/bold]" in said


def test_the_best_evidence_is_first_and_trees_have_none_that_compares() -> None:
    model = make_model()
    table = tables.candidate_table(model)
    assert table.marked == 0
    assert [row[1] for row in table.rows] == ["polynomial, degree 2", "rbf, 40", "linear"]
    assert table.rows[2][-1] == "< 0.001"
    assert table.rows[2][table.columns.index("2nd order")] == "–"
    assert "Trees" not in table.note
    first, *rest = model.candidates
    forest = replace(first, basis="forest, trees 64", log_evidence=1e3)
    table = tables.candidate_table(changed(model, candidates=(forest, *rest)))
    assert table.rows[-1][1] == "forest, trees 64"
    assert [table.rows[-1][table.columns.index(name)] for name in ("log evidence", "Δ", "BIC")] == ["–"] * 3
    assert "Trees are learnt from the labels" in table.note


def test_all_renderers_show_every_table() -> None:
    model = make_model()
    markdown = tables.markdown_report(model)
    page = Loads(page_of(model)).text
    for table in tables.report_tables(model):
        said = shown(table, 220)
        for cell in chain.from_iterable(table.rows):
            assert cell in page
            assert cell in said
            assert cell.replace("_", "\\_").replace("<", "&lt;") in markdown
    assert len(markdown) < 100_000


@pytest.mark.parametrize("n_classes", [2, 3, 5, 8])
def test_boundary_is_drawn_for_any_number_of_classes(n_classes: int) -> None:
    model = make_model(tuple(f"c{k}" for k in range(n_classes)))
    assert "<b>Where the classes meet" in page_of(model)


def test_a_model_that_left_out_rows_judged_says_so_everywhere() -> None:
    model = make_model()
    model = changed(model, judged_by="left-out", n=model.training.n_training, held_out_counts=(0, 0))
    for text in (Loads(page_of(model)).text, tables.markdown_report(model)):
        assert "left-out log loss" in text
        assert "Left-out objects" in text
        assert "eld-out" not in text
    assert "left-out objects" in model.skill_words


def test_the_weight_of_a_stacks_candidate_is_its_share() -> None:
    def weights(model: ModelDescription) -> dict[str, str]:
        table = tables.candidate_table(model)
        return {row[1]: row[table.columns.index("weight")] for row in table.rows}

    model = changed(make_model(), selected_by="stack")
    shares = zip(model.candidates, (0.0, 0.6, 0.4), strict=True)
    stacked = changed(model, candidates=tuple(replace(c, share=s) for c, s in shares))
    assert weights(stacked)["rbf, 40"] == "0.400"
    assert "share in the model" in tables.candidate_table(stacked).note
    by_bic = changed(stacked, selected_by="bic")
    assert weights(by_bic)["rbf, 40"] == "0.200"
    assert "the first by BIC is marked" in tables.candidate_table(by_bic).note
    assert weights(make_model())["rbf, 40"] == "0.200"


def test_the_script_of_the_page_on_reports_writes_each_picture(page: str, tmp_path: Path) -> None:
    """docs/reading-the-report.md names it."""
    script = Path(__file__).resolve().parents[3] / "docs" / "examples" / "pictures_of_report.py"
    (tmp_path / "report.html").write_text(page, encoding="utf-8")
    runpy.run_path(str(script))["main"](tmp_path / "report.html", tmp_path / "pictures")
    written = {path.name for path in (tmp_path / "pictures").iterdir()}
    assert len(written) == page.count("<img ")
    assert "reliability.svg" in written
    assert all((tmp_path / "pictures" / name).read_text().lstrip().startswith("<") for name in written)


def test_a_report_of_many_classes_is_made_in_no_time() -> None:
    """With its pictures: matplotlib alone took a second to import, and five to draw."""
    classes = tuple(f"class {k}" for k in range(28))
    counts = tuple(tuple(60 if j == k else (j + k) % 3 for j in range(28)) for k in range(28))
    model = changed(make_model(classes), confusion=counts)
    start = time.process_time()
    page = page_of(model)
    assert time.process_time() - start < 1
    assert "matplotlib" not in page
    assert len(page) < 1_000_000


def test_no_purity_is_shown_where_no_labelled_object_tells_of_it() -> None:
    of_class = {"count": 10.0, "low": 5.0, "high": 15.0, "source": "model", "assumes": "shares", "reason": ""}
    kept = {"completeness": 0.4, "completeness_low": 0.3, "completeness_high": 0.5}
    told = SelectionCensus(threshold=0.5, objects=20, purity=0.8, purity_low=0.7, purity_high=0.9, **kept)
    untold = replace(told, threshold=0.9, purity=0.5, purity_low=0.002, purity_high=0.999)
    classes = {"yes": ClassCensus(**of_class, selections=(told, untold))}
    census = Census(n_rows=50, level=0.95, classes=classes)
    first, second = selection_table(census).rows
    assert first[3:5] == ("80.0%", "70.0% to 90.0%")
    assert second[3:5] == ("–", "0.2% to 99.9%")


NUMBERS = ("120", "−12,345.6", "−123.4", "−0.03", "−12,500.1", "101.2", "0.5123")

CANDIDATES = ReportTable.of(
    "Candidates",
    "features | basis | > M | > log evidence | > Δ | > 2nd order | > BIC | > eff. parameters | > held-out log loss"
    " | verdict | > weight",
    (
        ("all but g_i_psf, petro_radius", "polynomial, degree 2", *NUMBERS, "green, no skill", "0.998"),
        ("all 14", "radial functions, 40 centres, and linear", *NUMBERS, "amber", "< 0.001"),
    ),
    remark="The second has a smaller loss.",
    note="In nats.",
    marked=0,
)


def test_at_120_columns_the_columns_that_name_a_candidate_can_be_read() -> None:
    lines = shown(CANDIDATES, 120).splitlines()
    assert max(map(len, lines)) <= 120
    words = "features basis verdict polynomial, petro_radius green, −12,345.6 evidence"
    for word in words.split():
        assert any(word in line for line in lines)
    assert "…" not in "".join(lines)
    assert not [line for line in lines if line.startswith("* ")]


@pytest.mark.parametrize("width", [40, 60, 80])
def test_a_table_too_wide_becomes_a_list(width: int) -> None:
    text = shown(CANDIDATES, width)
    assert max(map(len, text.splitlines())) <= width
    joined = re.sub(r"\s+", " ", text)
    for i, row in enumerate(CANDIDATES.rows):
        mark = " (selected)" if i == CANDIDATES.marked else ""
        assert f"* features {row[0]}; basis {row[1]}{mark} M 120; log evidence −12,345.6" in joined
        assert f"verdict {row[9]}; weight {row[10]}" in joined
    assert CANDIDATES.remark in joined


def test_long_texts_wrap_between_words_and_long_words_are_not_lost() -> None:
    name = "a" * 90 + ".parquet"
    why = "the file ended in the middle of a row group " * 4
    text = shown(ReportTable.of("Files", "file | state | why", [(name, "quarantined", why)]), 80)
    assert "".join(re.findall(r"a{2,}|\.parquet", text)).replace("quarantined", "").count("a") >= 88
    assert "quarantined" in text
    assert all(word in text for word in why.split())
    assert "state" in shown(ReportTable.of("Files", "state | files", ()), 80), "an empty one has headings"
