"""Reading a specification from its TOML file, with errors that name the file, the key and a remedy."""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Iterator, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any, get_args, get_origin

import tomlkit
from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from catalogs.errors import nearest
from catalogs.remote.urls import is_remote
from flows.errors import SpecificationError
from flows.runs.references import check_inside
from flows.runs.release_store import check_store
from flows.specification.specification import NOT_MEANT, Specification

Location = Sequence[int | str]

EXPECTED = "a specification in TOML"


def load_specification(path: Path | str) -> Specification:
    """Return the specification in the TOML file at `path`; its relative paths start at the file's folder."""
    file = Path(path)
    specification = parse_specification(_read(file), source=str(file), base_folder=str(file.parent))
    if is_remote(specification.output.folder):
        check_store(specification.output.folder, key=f"{file}: output.folder")
    return specification


def read_specification(specification: Specification | str | Path) -> Specification:
    """Return the specification in a TOML file; a `Specification` is returned as it is.

    Raises
    ------
    flows.errors.SpecificationError
        If the file is missing, is not TOML, or has a key or a value that a specification does not allow.

    Examples
    --------
    >>> flows.read_specification("no such file.toml")
    Traceback (most recent call last):
        ...
    flows.errors.SpecificationError: ...
    """
    if isinstance(specification, Specification):
        return specification
    return load_specification(check_inside(Path(specification), key="specification"))


def parse_specification(text: str, *, source: str, base_folder: str = ".") -> Specification:
    """Return the specification in a TOML text; `source` names it in the errors."""
    try:
        tree = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise SpecificationError(
            f"{source}: got text that is not TOML: {error}; expected lines such as key = value, with texts "
            "in quotes; correct that line"
        ) from error
    try:
        return Specification.model_validate({"base_folder": base_folder} | tree)
    except ValidationError as error:
        lines = [f"{source}: {line}" for line in _lines(error)]
        raise SpecificationError("\n".join(dict.fromkeys(lines))) from error


def specification_toml(specification: Specification) -> str:
    """Return the specification as TOML that `parse_specification` can read, without keys at their default."""
    return tomlkit.dumps(
        specification.model_dump(mode="json", exclude_defaults=True, exclude_none=True, exclude=NOT_MEANT)
    )


def toml_text(text: str | Sequence[str]) -> str:
    """Return a text or a list of texts as TOML has it: as JSON has it, all but the one control character."""
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007F")


def _read(file: Path) -> str:
    try:
        return file.read_text(encoding="utf-8-sig")  # files from Windows may begin with a byte order mark
    except FileNotFoundError as error:
        names = [p.name for p in file.parent.glob("*.toml")]
        hint = nearest(file.name, names) if names else "give the path of the file"
        raise SpecificationError(f"{file}: there is no such file, expected {EXPECTED}; {hint}") from error
    except UnicodeDecodeError as error:
        raise SpecificationError(
            f"{file}: got bytes that are not UTF-8 at offset {error.start}, expected {EXPECTED}; save it as UTF-8, or "
            "name the specification, if this is the catalogue"
        ) from error
    except OSError as error:
        raise SpecificationError(
            f"{file}: got '{error.strerror}' when reading, expected {EXPECTED}; give the path of the file"
        ) from error


_OTHER_TYPE = {"tuple_type", "float_type"}
_TRIED = re.compile(r"(constrained-(float|str)|tuple\[)")


def _lines(error: ValidationError) -> Iterator[str]:
    # Pydantic adds the type that it tried, such as `tuple[float, ...]`, to where a value is in the file.
    details = [
        (tuple(part for part in detail["loc"] if not _TRIED.match(str(part))), detail)
        for detail in error.errors(include_url=False)
    ]
    for place, detail in details:
        if any(len(where) > len(place) and where[: len(place)] == place for where, _ in details):
            continue  # the error of a key inside this one says more
        if detail["type"] in _OTHER_TYPE and any(
            where == place and other["type"] not in _OTHER_TYPE for where, other in details
        ):
            continue  # one number or several: the value is of the other type
        # Pydantic adds the `kind` of a basis, which is no key of the file.
        tag = next((following for here, following in pairwise(place) if here == "basis"), None)
        location = [part for part in place if tag is None or part != str(tag)]
        key = ".".join(str(part) for part in location)
        problem = _problem(detail, location)
        yield f"{key}: {problem}" if key else problem


def _problem(detail: ErrorDetails, location: Location) -> str:
    kind, got = detail["type"], detail["input"]
    if kind == "value_error":
        return str(detail["ctx"]["error"])
    if kind == "extra_forbidden":
        model = _model_at(detail["loc"][:-1])
        known = sorted(set(model.model_fields) - {"base_folder"}) if model else []
        return f"got an unknown key, expected one of {', '.join(known)}{_meant(str(location[-1]), known)}"
    if kind == "missing":
        return f"this key is missing, expected {_expected(detail)}; add it"
    if kind == "union_tag_invalid":
        known = re.findall(r"'(\w+)'", detail["ctx"]["expected_tags"])
        tag = detail["ctx"]["tag"]
        return f"got kind '{tag}', expected one of {', '.join(known)}{_meant(tag, known)}"
    if kind == "union_tag_not_found":
        expected, remedy = "a table with the key 'kind'", "; add kind = '...'"
    elif kind == "literal_error":
        expected = detail["ctx"]["expected"]
        remedy = _meant(str(got), re.findall(r"'([^']*)'", expected))
    else:
        expected, remedy = _expected(detail), ""
    return f"got {got!r}, expected {expected}{remedy or '; change it'}"


def _meant(got: str, known: Sequence[str]) -> str:
    """Return the one of the known names that may be meant, as the end of a sentence that lists them."""
    hint = nearest(got, known)
    return f"; {hint}" if hint.startswith("did you mean") else ""


def _expected(detail: ErrorDetails) -> str:
    said, location = detail["msg"].removeprefix("Input should be "), detail["loc"]
    model = _model_at(location[:-1])
    info = model.model_fields.get(str(location[-1])) if model and location else None
    field = (info.description or f"the table [{location[-1]}]").lower() if info else ""
    return " - ".join(text for text in (said.removeprefix("Field required"), field) if text) or "a value"


def _model_at(location: Location) -> type[BaseModel] | None:
    """Return the pydantic model that describes the table at `location`."""
    models: list[type[BaseModel]] = [Specification]
    named = False  # whether this part is a name that the user chose for a table, as in [photometry.g]
    for part in location:
        if isinstance(part, int) or named:
            named = False
            continue
        if len(models) > 1:  # a union of tables: this part is the tag that chose one
            models = [m for m in models if part in get_args(m.model_fields["kind"].annotation)]
            continue
        info = models[0].model_fields.get(part) if models else None
        named = info is not None and get_origin(info.annotation) is dict
        models = list(_models_in(info.annotation)) if info else []
    return models[0] if len(models) == 1 else None


def _models_in(annotation: Any) -> Iterator[type[BaseModel]]:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield annotation
    for part in get_args(annotation):
        yield from _models_in(part)
