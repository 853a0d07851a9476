"""What is shown of work whose end is known, and of work whose end is not."""

from __future__ import annotations

import io
from pathlib import Path
from types import SimpleNamespace

import pytest
from rich.console import Console
from rich.progress import Progress

from flows.cli import _printing as cli_progress
from flows.cli._printing import BarListener, LineListener
from flows.runs.progress import listening
from tests.flows.verbs import train


def test_lines_of_work_without_a_known_end_say_how_far_it_is(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    times = iter([0.0, 0.0, 1.0, 11.0, 12.0])
    monkeypatch.setattr(cli_progress, "time", SimpleNamespace(monotonic=lambda: next(times)))
    listener = LineListener(quiet=False)
    listener.start("refining", 0, "steps")
    for _ in range(3):
        listener.advance(1)
    assert capsys.readouterr().err.splitlines() == ["refining", "refining: 2 steps, 0.2 steps/s"]


def test_a_bar_of_work_without_a_known_end_is_shown() -> None:
    console = Console(file=io.StringIO(), force_terminal=True, width=100)
    with Progress(console=console) as bar:
        listener = BarListener(bar)
        listener.start("refining", 0, "steps")
        listener.advance(3)
        (task,) = bar.tasks
    assert (task.total, task.completed) == (None, 3)


@pytest.mark.usefixtures("few_draws")
@pytest.mark.parametrize("posterior", ["refined", "sampled"])
def test_every_long_part_of_a_training_has_a_bar(folder: Path, make: SimpleNamespace, posterior: str) -> None:
    class Heard:
        parts: list[str] = []  # noqa: RUF012
        steps = 0

        def start(self, what: str, total: int, unit: str) -> None:
            self.parts.append(f"{what}, {total} {unit}".replace(f", {total}", ",") if total > 4 else what)

        def advance(self, n: int) -> None:
            if "candidate 1 of" in self.parts[-1] or "candidate 2 of" in self.parts[-1]:
                self.steps += n

        def note(self, line: str) -> None:
            pass

    make.parquet(folder / "survey.parquet", make.survey(150))
    text = (folder / "spec.toml").read_text()
    (folder / "spec.toml").write_text(text + f'\n[select]\nposterior = "{posterior}"\n')
    heard = Heard()
    with listening(heard):
        train(folder / "spec.toml", folder / "models")
    verb = {"refined": "refining", "sampled": "sampling the posterior of"}[posterior]
    first = ("reading", "describing", "fitting candidates")
    each = (
        "fitting candidate 1",
        "left-out rows of candidate 1",
        "fitting candidate 2",
        "left-out rows of candidate 2",
    )
    words = (
        *first,
        *each,
        f"{verb} candidate",
        f"{verb} candidate",
        "judging",
        "drawing",
    )  # to some rows, and to all
    checks = [part for part in heard.parts if part.startswith("checking candidate")]
    assert not checks or posterior == "refined", "samples are the posterior, and are not checked"
    parts = [part for part in heard.parts if part not in checks]
    assert len(parts) == len(words)
    assert all(part.startswith(w) for part, w in zip(parts, words, strict=True)), parts
    assert heard.steps > 1
