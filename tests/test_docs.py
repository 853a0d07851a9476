"""The pages are true: examples run, links resolve, names exist, and every key of a specification is described."""

from __future__ import annotations

import importlib
import inspect
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, get_args

import pytest
from pydantic import BaseModel
from pydantic.fields import FieldInfo

import blr
from blr.decisions import FLAG_MEANINGS
from catalogs.catalog.new_columns import standard_columns
from flows.specification.specification import Specification

ROOT = Path(__file__).resolve().parent.parent
DOCS = ROOT / "docs"
WRITTEN = [page for page in sorted(DOCS.rglob("*.md")) if "_generated" not in page.parts]
PAGES = [ROOT / "README.md", ROOT / "CHANGELOG.md", *WRITTEN]
WITH_EXAMPLES = [
    ROOT / "docs" / f"{page}.md"
    for page in ("python", "reading-the-report", "how-to/from-scikit-learn", "how-to/from-laplace-torch")
]
HIDDEN = {"base_folder"}


def text_of(page: Path) -> str:
    return page.read_text(encoding="utf-8")


def tables_in(annotation: Any) -> Iterator[type[BaseModel]]:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield annotation
    for part in get_args(annotation):
        yield from tables_in(part)


def default_of(info: FieldInfo) -> str:
    """Return a default as the page writes it; what is empty is 'none'."""
    if info.is_required():
        return "required"
    value = info.get_default(call_default_factory=True)
    if isinstance(value, bool):
        return str(value).lower()
    return "none" if value in (None, (), {}) else str(value)


def keys_of(model: type[BaseModel], prefix: str = "") -> Iterator[tuple[str, str]]:
    """Yield each key and its default; a table has its keys, one of many names `NAME.` before them."""
    for name, info in model.model_fields.items():
        if not prefix and name in HIDDEN:
            continue
        tables = [*tables_in(info.annotation)]
        many = str(info.annotation).startswith("dict")
        for table in tables:
            kind = table.model_fields.get("kind")
            one = (
                f"{prefix}{name}({get_args(kind.annotation)[0]})."
                if kind and name == "basis"
                else f"{prefix}{name}."
            )
            yield from keys_of(table, f"{one}NAME." if many else one)
        if not tables:
            yield f"{prefix}{name}", default_of(info)


@pytest.mark.parametrize("page", WITH_EXAMPLES, ids=lambda p: p.name)
def test_examples_run(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One page is one session, from its top to its end."""
    monkeypatch.chdir(tmp_path)
    names: dict[str, Any] = {}
    blocks = re.findall(r"```python\n(.*?)```", text_of(page), flags=re.DOTALL)
    assert blocks
    for i, block in enumerate(blocks):
        exec(compile(block, f"{page.name}, example {i + 1}", "exec"), names)  # noqa: S102 - our own pages


def test_the_readme_says_what_its_example_prints(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    block = "".join(re.findall(r"```python\n(.*?)```", text_of(ROOT / "README.md"), flags=re.DOTALL))
    exec(compile(block, "README.md", "exec"), {})  # noqa: S102 - our own page
    told = re.findall(r"^print.*  # ([^:\n]*)", block, flags=re.MULTILINE)
    for said, printed in zip(told, capsys.readouterr().out.splitlines(), strict=True):
        words = [re.sub(r"[\[\]]", " ", text).split() for text in (said, printed)]
        for one, other in zip(*words, strict=True):
            if re.fullmatch(r"-?[\d.]+", one):
                last_digit = 10.0 ** -len(one.partition(".")[2])
                assert float(other) == pytest.approx(float(one), abs=0.51 * last_digit)
            else:
                assert one == other


@pytest.mark.parametrize("page", PAGES, ids=lambda p: str(p.relative_to(ROOT)))
def test_links_resolve(page: Path) -> None:
    for target in re.findall(r"\]\(([^)\s]+)\)", text_of(page)):
        if not re.match(r"[a-z]+:", target):
            path, _, anchor = target.partition("#")
            place = page.parent / path if path else page
            if "_generated" in place.parts and place.suffix == ".svg":  # drawn when the site is built
                place = DOCS / "gallery" / f"{place.stem}.py"
            assert place.exists(), f"{page.name} links to {target}"
            if anchor:
                headings = re.findall(r"^#+ (.*)$", text_of(place), flags=re.MULTILINE)
                slugs = {re.sub(r"[^\w -]", "", h.lower()).replace(" ", "-") for h in headings}
                assert anchor in slugs, f"{page.name} links to {target}"


def test_every_page_is_reached_from_the_index() -> None:
    reached, ahead = set(), [DOCS / "index.md"]
    while ahead:
        page = ahead.pop()
        if page not in reached:
            reached.add(page)
            inner = re.findall(r"\]\(([^)#\s:]+\.(?:md|ipynb))", text_of(page))
            ahead += [(page.parent / path).resolve() for path in inner]
    written = {*WRITTEN, *(DOCS / "notebooks").glob("*.ipynb")}
    assert written <= reached


def test_every_key_of_the_specification_is_described() -> None:
    """With its default; and no key that there is not."""
    rows = re.findall(
        r"^\| `([\w.()]+)` \| ([^|]*) \|", text_of(ROOT / "docs" / "specification.md"), flags=re.MULTILINE
    )
    written = {key: default.strip().strip("`") for key, default in rows}
    assert written == dict(keys_of(Specification))


def test_flags_and_columns_are_described() -> None:
    page = text_of(ROOT / "docs" / "flags.md")
    for flag, meaning in FLAG_MEANINGS.items():
        assert f"| {int(flag).bit_length() - 1} | {int(flag)} | `{flag.name}` | {meaning} |" in page
    kinds = {"float": "float32"}
    for column in standard_columns(("a", "b")):
        name = re.sub(r"_p_[ab]$", "_p_<class>", column.name)
        datatype = str(column.datatype)
        assert f"| `{name}` | {kinds.get(datatype, datatype)} | `{column.ucd}` |" in page


def test_tests_that_a_page_names_exist() -> None:
    """Below the folder `tests/blr`, as `test_file.py::test_name`."""
    named = re.findall(r"`(test_\w+\.py)::(test_\w+)`", text_of(ROOT / "docs" / "accuracy.md"))
    assert len(named) > 20
    for file, name in named:
        (path,) = (ROOT / "tests" / "blr").rglob(file)
        assert f"\ndef {name}(" in text_of(path), f"{file}::{name}"


def test_functions_of_the_contracts_exist() -> None:
    """The page of the contracts names functions of `flows` by their folder and module."""
    folders = {p.parent.name for p in (ROOT / "flows").glob("*/__init__.py")}
    called = re.findall(r"(?<![\w.])([a-z_]+)\.([a-z_]+)\.([a-z_]+)\(", text_of(DOCS / "contracts.md"))
    named = [parts for parts in called if parts[0] in folders]
    assert len(named) > 5
    for folder, module, name in named:
        assert hasattr(importlib.import_module(f"flows.{folder}.{module}"), name)


def test_names_of_the_methods_exist() -> None:
    page = text_of(ROOT / "docs" / "methods.md")
    for module, name in re.findall(r"`blr\.(?:([\w.]+)\.)?(\w+)[(`]", page):
        assert hasattr(importlib.import_module(f"blr.{module}") if module else blr, name), (
            f"blr.{module}.{name}"
        )
    methods = [name for name in blr.__all__ if inspect.isfunction(getattr(blr, name))]
    assert all(f"`blr.{name}" in page for name in methods)
