"""The sources of the site: commands on pages exist, scripts draw, notebooks parse and name existing things.

The site itself is built by `make docs`, the notebooks are run by `make notebooks`.
"""

from __future__ import annotations

import ast
import importlib
import json
import re
import runpy
import shlex
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

import pytest
import yaml

from flows.cli.app import application

ROOT = Path(__file__).resolve().parent.parent
DOCS = ROOT / "docs"
WRITTEN = [page for page in sorted(DOCS.rglob("*.md")) if "_generated" not in page.parts]
PAGES = [ROOT / "README.md", *WRITTEN]
PICTURES = sorted((DOCS / "gallery").glob("*.py"))
OURS = {"blr", "catalogs", "flows"}
NOTEBOOKS = sorted((DOCS / "notebooks").glob("*.ipynb"))


@pytest.fixture
def making(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """Return a function that imports a module of `docs/making`, which is in no package."""
    before = set(sys.modules)
    monkeypatch.syspath_prepend(str(DOCS / "making"))
    yield importlib.import_module
    for name in set(sys.modules) - before:
        if (DOCS / "making" / f"{name}.py").exists():
            del sys.modules[name]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_commands_and_options_of_a_page_exist(page: Path) -> None:
    import typer

    text = page.read_text(encoding="utf-8")
    for block in re.findall(r"^```(?:sh|bash|console)\n(.*?)^```", text, flags=re.MULTILINE | re.DOTALL):
        for line in block.replace("\\\n", " ").splitlines():
            if not line.startswith("blr "):
                continue
            command, words = typer.main.get_command(application()), shlex.split(line, comments=True)[1:]
            while words and words[0] in getattr(command, "commands", {}):
                command = command.commands[words.pop(0)]
            assert not hasattr(command, "commands") or words[0].startswith("-"), f"{page.name}: {line}"
            known = {word for one in command.params for word in (*one.opts, *one.secondary_opts)}
            used = {word.split("=")[0] for word in words if re.match(r"--?[a-z]", word)}
            assert used <= known | {"--help", "--version", "--install-completion"}, f"{page.name}: {line}"


@pytest.mark.parametrize("script", PICTURES, ids=lambda script: script.stem)
def test_a_script_of_the_gallery_draws(script: Path) -> None:
    from flows.plots.axes import svg

    docstring = ast.get_docstring(ast.parse(script.read_text(encoding="utf-8"))) or ""
    title, _, text = docstring.partition("\n\n")
    assert title.endswith(".")
    assert len(text.split()) >= 15, "the gallery says under each picture what to see in it"
    axes = runpy.run_path(str(script))["draw"]()
    root = ET.fromstring(svg(axes))  # noqa: S314  our own
    assert len([*root.iter("{http://www.w3.org/2000/svg}path")]) > 3


def test_the_command_line_page_has_every_command_and_option(making: Any) -> None:
    page = making("command_line").command_line_page()
    assert "## blr models promote" in page
    assert re.search(r"\| `--store DIR` +\| `models` \| Folder of the model store\. \|", page)
    assert "one of" not in page or "None" not in page
    assert "`same`, `parquet`, `fits`" in page


def test_the_page_of_keys_says_types_and_bounds(making: Any) -> None:
    page = making("specification_keys").specification_page()
    assert re.search(r"\| `held_out` \| number, at least 0 and below 0\.9 \| `0\.2` \|", page)
    assert "`averaged`, `model`" in page


def test_modules_that_pages_import_are_in_the_reference(making: Any) -> None:
    documented = making("api").MODULES
    text = "\n".join(page.read_text(encoding="utf-8") for page in [*PAGES, *PICTURES])
    imported = set(re.findall(r"^from ((?:blr|catalogs|flows)[\w.]*) import", text, flags=re.MULTILINE))
    assert imported <= set(documented)
    for name, page in making("api").api_pages().items():
        if name != "index.rst":
            names = making("api").public_names(name.removesuffix(".rst"))
            assert names
            assert all(f"   {public}\n" in page or f"autodata:: {public}\n" in page for public in names)


def test_sentences_are_counted_as_a_reader_would(making: Any) -> None:
    sentences = making("reading").sentences
    table, code = "| a | b |\n|---|---|\n| x | y |", "```py\nno no no\n```"
    text = f"# Head\n\nOne two three. `code` goes on, e.g. Here is more.\n\n{table}\n\n{code}\n"
    assert sentences(text) == ["One two three.", "`code` goes on, e.g. Here is more."]


@pytest.mark.parametrize("notebook", NOTEBOOKS, ids=lambda notebook: notebook.stem)
def test_a_notebook_parses_and_names_what_there_is(notebook: Path, making: Any) -> None:
    content = json.loads(notebook.read_text(encoding="utf-8"))
    assert content["nbformat"] == 4
    code = [cell for cell in content["cells"] if cell["cell_type"] == "code"]
    assert all((cell["outputs"], cell["execution_count"]) == ([], None) for cell in code), "without outputs"
    assert "".join(content["cells"][0]["source"]).startswith("# ")
    tree = ast.parse("\n\n".join("".join(cell["source"]) for cell in code))
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] in OURS:
            public = making("api").public_names(node.module or "")
            assert {alias.name for alias in node.names} <= {*public}, ast.unparse(node)
            assert node.module in making("api").MODULES, ast.unparse(node)
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
            name = node.value.id
            if name in OURS:
                assert hasattr(importlib.import_module(name), node.attr), ast.unparse(node)


def test_what_builds_the_site_elsewhere_is_what_make_docs_builds() -> None:
    read_the_docs = yaml.safe_load((ROOT / ".readthedocs.yaml").read_text(encoding="utf-8"))
    assert read_the_docs["sphinx"] == {"configuration": "docs/conf.py", "fail_on_warning": True}
    named = [step["requirements"] for step in read_the_docs["python"]["install"] if "requirements" in step]
    assert all((ROOT / name).exists() for name in named)
    workflow = yaml.safe_load((ROOT / ".github" / "workflows" / "site.yml").read_text(encoding="utf-8"))
    assert {"push", "pull_request"} <= workflow[True].keys()  # YAML takes `on` for a truth value
    assert {"run": "make docs"} in workflow["jobs"]["build"]["steps"]
    assert workflow["permissions"] == {"contents": "read"}


def pins(name: str) -> set[str]:
    """Return the packages that a lock file pins, each with hashes."""
    text = (ROOT / name).read_text(encoding="utf-8")
    assert "//" not in text  # the address of a registry
    pinned = r"^([a-z0-9-]+)==([^\n]*\\\n(?: +--hash=sha256:\w{64}(?: \\)?\n)+)"
    entries = re.findall(pinned, text, re.MULTILINE)
    assert len(entries) == len(re.findall(r"^[^\s#]", text, re.MULTILINE))
    return {package for package, _ in entries}


def test_lock_files_pin_each_package_once_with_hashes() -> None:
    files = ("requirements.lock", "requirements-dev.lock", "docs/requirements.lock")
    running, testing, site = map(pins, files)
    assert not running & testing  # else the two might differ
    assert not running & site
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    for requirement in project["dependency-groups"]["docs"]:
        assert re.split(r"[>=]", requirement)[0] in site
    assert {"pytest", "moto", "mypy", "uv"} <= testing
    assert {"prefect", "astropy", "pyongc", "distributed"} <= running
