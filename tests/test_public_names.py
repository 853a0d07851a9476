"""Every public name has a docstring: a sentence, parameters and results, and an example that runs."""

from __future__ import annotations

import doctest
import inspect
import re
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

import blr
import catalogs
import flows

NAMES = [(face, name) for face in (blr, catalogs, flows) for name in face.__all__]
OPTIONS = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE | doctest.IGNORE_EXCEPTION_DETAIL


@pytest.mark.parametrize(("face", "name"), NAMES, ids=[f"{face.__name__}.{name}" for face, name in NAMES])
def test_a_docstring_with_an_example_that_runs(
    face: ModuleType, name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    documented = getattr(face, name)
    text = inspect.getdoc(documented) or ""
    assert re.match(r"\S.*\.$", text.split("\n\n")[0].replace("\n", " ")), "the first paragraph is a sentence"
    assert "Examples\n--------\n>>> " in text
    known = {"np": np, "blr": blr, "catalogs": catalogs, "flows": flows, "Path": Path}
    known |= {} if inspect.isclass(documented) else {name: documented}
    example = doctest.DocTestParser().get_doctest(text, known, f"{face.__name__}.{name}", None, 0)
    said: list[str] = []
    results = doctest.DocTestRunner(optionflags=OPTIONS).run(example, out=said.append)
    assert not results.failed, "".join(said)


@pytest.mark.parametrize(("face", "name"), NAMES, ids=[f"{face.__name__}.{name}" for face, name in NAMES])
def test_what_a_function_raises_is_said(face: ModuleType, name: str) -> None:
    documented = getattr(face, name)
    if inspect.isfunction(documented):
        assert "Raises\n------\n" in (inspect.getdoc(documented) or "")
