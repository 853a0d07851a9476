"""Type checkers, completion and `dir` see the public names, and the same ones that there are at run time."""

from __future__ import annotations

import ast
import inspect
import re
import shutil
import sys
from pathlib import Path
from types import ModuleType

import pytest

import blr
import catalogs
import flows
from tests.flows.children import ran

ROOT = Path(__file__).resolve().parent.parent
TYPING = ROOT / "tests" / "typing"
FACES = [blr, catalogs, flows]


def test_pyright_rejects_wrong_calls_and_accepts_correct_ones(tmp_path: Path) -> None:
    """So does mypy, by `make types`."""
    program = shutil.which("pyright") or shutil.which("basedpyright")
    if program is None:
        remedy = "it brings Node.js, 300 MB; `uv tool install basedpyright` has it"
        pytest.skip(f"pyright is not installed: {remedy}")
    text = (TYPING / "wrong.py").read_text("utf-8")
    text, rejected = re.subn(r"  # type: ignore\[[\w, -]+\]", "  # wrong", text)
    assert rejected > 10
    (tmp_path / "wrong.py").write_text(text, "utf-8")
    files = TYPING / "correct.py", tmp_path / "wrong.py"
    done = ran(program, "--pythonpath", sys.executable, "--level", "error", *files)
    found = re.findall(r"(\w+\.py):(\d+):\d+ - error", done.stdout)
    expected = {i for i, line in enumerate(text.splitlines(), start=1) if line.endswith("# wrong")}
    assert {int(line) for name, line in found if name == "wrong.py"} == expected, done.stdout
    assert [line for name, line in found if name == "correct.py"] == [], done.stdout


@pytest.mark.parametrize("face", FACES, ids=lambda face: face.__name__)
def test_the_lists_of_a_face_agree(face: ModuleType) -> None:
    """What type checkers read, what is imported at run time, and `__all__`."""
    tree = ast.parse(inspect.getsource(face))
    (block,) = (
        node for node in tree.body if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"
    )
    typed = {
        alias.asname or alias.name: node.module
        for node in block.body
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    }
    assert typed == {name: f"{face.__name__}.{module}" for name, module in face._HOME.items()}
    assert sorted(typed) == sorted(face.__all__) == sorted(set(dir(face)) - {"__version__"})


@pytest.mark.parametrize("face", FACES, ids=lambda face: face.__name__)
def test_a_version_and_an_error_that_lists_the_names(face: ModuleType) -> None:
    assert re.fullmatch(r"\d+\.\d+\.\d+.*", face.__version__)
    with pytest.raises(AttributeError, match=r"no attribute 'fit_evidense'; it offers .*\w+, \w+"):
        _ = face.fit_evidense


def test_completion_finds_names_and_members() -> None:
    """Jedi is what IPython and notebooks complete by."""
    jedi = pytest.importorskip("jedi", reason="jedi is not installed")
    before = "import blr, catalogs, flows\nq = blr.fit_evidence([[1.0]], [0, 1])\n"
    for asked, wanted in {
        "blr.fit_": {"fit_basis", "fit_evidence", "fit_sgd"},
        "catalogs.": {"open", "annotate_table", "Catalog"},
        "flows.": {"classify_table", "Store"},
        "q.": {"predict_proba", "log_evidence", "trust", "logit_moments", "sample"},
        "q.trust.": {"verdict", "reasons", "numbers"},
    }.items():
        lines = (before + asked).splitlines()
        found = {c.name for c in jedi.Script(before + asked).complete(len(lines), len(lines[-1]))}
        assert wanted <= found, (asked, wanted - found)
