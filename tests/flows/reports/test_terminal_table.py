"""Tables on terminals of any width: no cell is cut, texts that name the rows keep their words, or a list is made."""

from __future__ import annotations

import io
import re

import pytest
from rich.console import Console

from flows.reports.report_table import ReportTable

NUMBERS = ("120", "−12,345.6", "−123.4", "−0.03", "−12,500.1", "101.2", "0.5123")

CANDIDATES = ReportTable(
    title="Candidates",
    columns=(
        "features",
        "basis",
        "M",
        "log evidence",
        "Δ",
        "2nd order",
        "BIC",
        "eff. parameters",
        "held-out log loss",
        "verdict",
        "weight",
    ),
    rows=(
        ("all but g_i_psf, petro_radius", "polynomial, degree 2", *NUMBERS, "green, no skill", "0.998"),
        ("all 14", "radial functions, 40 centres, and linear", *NUMBERS, "amber", "< 0.001"),
    ),
    numeric=frozenset({2, 3, 4, 5, 6, 7, 8, 10}),
    remark="The second has a smaller loss.",
    note="In nats.",
    marked=0,
)


def shown(table: ReportTable, width: int) -> str:
    stream = io.StringIO()
    Console(file=stream, width=width).print(table)
    return stream.getvalue()


def test_at_120_columns_the_columns_that_name_a_candidate_can_be_read() -> None:
    lines = shown(CANDIDATES, 120).splitlines()
    assert max(map(len, lines)) <= 120
    for word in (
        "features",
        "basis",
        "verdict",
        "polynomial,",
        "petro_radius",
        "green,",
        "−12,345.6",
        "evidence",
    ):
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
    table = ReportTable(title="Files", columns=("file", "state", "why"), rows=((name, "quarantined", why),))
    text = shown(table, 80)
    assert "".join(re.findall(r"a{2,}|\.parquet", text)).replace("quarantined", "").count("a") >= 88
    assert "quarantined" in text
    assert all(word in text for word in why.split())


def test_an_empty_table_has_its_headings() -> None:
    assert "state" in shown(ReportTable(title="Files", columns=("state", "files"), rows=()), 80)
