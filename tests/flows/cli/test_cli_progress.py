"""What is shown of work whose end is known, and of work whose end is not."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

from flows.runs.progress import listening
from tests.flows.verbs import train


def test_every_long_part_of_a_training_has_a_bar(folder: Path, make: SimpleNamespace) -> None:
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
    (folder / "spec.toml").write_text(text + '\n[select]\nposterior = "refined"\n')
    heard = Heard()
    with listening(heard):
        train(folder / "spec.toml", folder / "models")
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
        "refining candidate",
        "refining candidate",
        "judging",
        "drawing",
    )  # to some rows, and to all
    parts = [part for part in heard.parts if not part.startswith("checking candidate")]
    assert len(parts) == len(words)
    assert all(part.startswith(w) for part, w in zip(parts, words, strict=True)), parts
    assert heard.steps > 1
