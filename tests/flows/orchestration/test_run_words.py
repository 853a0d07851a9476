"""Names of runs, messages of their states and logs, and links to reports; without a server."""

from __future__ import annotations

import logging
import shutil
from pathlib import Path

import pytest

from flows.errors import UsageError
from flows.orchestration.run_page import (
    MOST_NOTES,
    PAGES,
    _Log,
    classification_message,
    classification_name,
    page_of,
    started_name,
)
from flows.reports.counts import run_tables
from flows.runs.progress import listening, tell
from flows.runs.results import ReleaseResult
from tests.flows.verbs import classify, reprocess

MODEL = "morphology@7ef2f804147c"


def test_a_name_says_verb_model_and_release() -> None:
    assert started_name("classify", MODEL, release=12) == "classify morphology@7ef2 → release 12"
    assert started_name("classify", MODEL, release=12, trial=True) == "classify morphology@7ef2: trial"


def test_the_words_of_results(trained: Path, tmp_path: Path) -> None:
    asked = {"model": "morphology", "store": trained / "models", "out": tmp_path / "out"}
    done = classify([trained / "survey.parquet"], **asked)
    short = done.model[: len("morphology@") + 4]
    assert classification_name("classify", done) == f"classify {short} → release 1"
    assert classification_message(done) == "Release 1: 1 file, 400 objects; annotated now: 1 new."
    again = classify([trained / "survey.parquet"], **asked)
    assert classification_name("classify", again) == f"classify {short}: nothing to do"
    assert classification_message(again) == "Nothing to do: 1 file, 400 objects, as at release 1."
    trial = classify([trained / "survey.parquet"], **asked, limit=10)
    assert classification_message(trial) == "Trial on 10 rows; nothing was written."


def test_the_message_names_what_was_quarantined_and_counts_its_stale_copy(
    trained: Path, tmp_path: Path
) -> None:
    (tmp_path / "release").mkdir()
    for name in ("a", "b"):
        shutil.copy(trained / "survey.parquet", tmp_path / "release" / f"{name}.parquet")
    text = (
        (trained / "spec.toml").read_text().replace("[label]", "[target]\npaths = ['release/*']\n\n[label]")
    )
    (tmp_path / "spec.toml").write_text(text)

    def night() -> ReleaseResult:
        return reprocess(tmp_path / "spec.toml", trained / "models", out=tmp_path / "out", quiet_seconds=0)

    first = run_tables(night())
    assert "difference" not in first, "there is nothing to compare a first release with"
    (tmp_path / "release" / "b.parquet").write_bytes(b"<html>")
    second = night()
    message = classification_message(second)
    assert message.startswith(
        "Release 1, 1 quarantined: 2 files, 800 objects; annotated now: none; 1 stale; "
    )
    assert "quarantined: b.parquet: " in message


def test_few_lines_are_logged_and_all_is_passed_on(caplog: pytest.LogCaptureFixture) -> None:
    heard: list[str] = []

    class Ear:
        def start(self, what: str, total: int, unit: str) -> None:
            heard.append(f"{what} {total} {unit}")

        def advance(self, n: int) -> None:
            heard.append(str(n))

        def note(self, line: str) -> None:
            heard.append(line)

    with caplog.at_level(logging.INFO), listening(_Log(logging.getLogger("run"), Ear())):
        tell().start("12 files", 1000, "rows")
        for _ in range(1000):
            tell().advance(1)
        for i in range(MOST_NOTES + 20):
            tell().note(f"note {i}")
    assert len(heard) == 1 + 1000 + MOST_NOTES + 20
    begin, end, *notes = caplog.messages
    assert begin == "12 files: 1,000 rows"
    assert end.startswith("12 files: 1,000 rows in ")
    assert notes == [f"note {i}" for i in range(MOST_NOTES)] + ["further notes are not logged"]


def test_a_link_leads_to_the_teams_web_server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    report = tmp_path / "models" / "a b" / "report.html"
    monkeypatch.delenv(PAGES, raising=False)
    assert page_of(report) == report.as_uri()
    monkeypatch.setenv(PAGES, f"{tmp_path}=https://survey.example.org/files/")
    assert page_of(report) == "https://survey.example.org/files/models/a%20b/report.html"
    assert page_of(tmp_path.parent / "x.html").startswith("file://")
    monkeypatch.setenv(PAGES, "https://survey.example.org")
    with pytest.raises(UsageError, match="expected FOLDER=URL"):
        page_of(report)
