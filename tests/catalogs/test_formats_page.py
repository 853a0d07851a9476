"""docs/formats.md: its examples run, from its top to its end."""

import re
from pathlib import Path
from typing import Any

import pytest

PAGE = Path(__file__).parents[2] / "docs" / "formats.md"


def test_the_examples_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    names: dict[str, Any] = {}
    blocks = re.findall(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), flags=re.DOTALL)
    assert len(blocks) == 2
    for i, block in enumerate(blocks):
        exec(compile(block, f"formats.md, example {i + 1}", "exec"), names)  # noqa: S102 -- our own page
    assert sorted(p.name for p in tmp_path.iterdir()) == ["converted", "slim", "survey.fits"]
