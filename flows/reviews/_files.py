"""A list of objects as files: VOTable and CSV with an empty column for the answer, HTML with links to sky surveys."""

from __future__ import annotations

import base64
import csv
import hashlib
import math
import struct
from collections.abc import Sequence
from dataclasses import astuple, dataclass
from importlib import resources
from pathlib import Path
from typing import Any, Final, get_type_hints
from xml.sax.saxutils import escape, quoteattr

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from catalogs.files.atomic import atomic_write_text
from catalogs.sky.positions import survey_links
from flows.errors import UsageError
from flows.labels.reviews import MARK, harmless, list_hash, list_mark

NAME: Final = "review"
AUDIT_NAME: Final = "audit"
OUTLIERS_NAME: Final = "outliers"


@dataclass(frozen=True)
class ListedObject:
    """What a review says of an object first; a position in degrees."""

    name: str
    ra: float
    dec: float
    class_given: str
    p_max: float
    runner_up: str
    p_runner_up: float


@dataclass(frozen=True)
class Chosen(ListedObject):
    """One object to be looked at."""

    mutual_info: float
    flags: int
    flag_names: str
    how: str
    weight: float
    label: str = ""


@dataclass(frozen=True)
class Outlier(ListedObject):
    """One object that is unlike all labelled ones."""

    flags: int
    flag_names: str
    novelty: float
    distance: float
    nearest_class: str = ""
    label: str = ""


@dataclass(frozen=True)
class Listed:
    """One object of an audit. The list does not show the model's class, since people agree with it too often."""

    name: str
    ra: float
    dec: float
    stratum: int
    inclusion_probability: float
    weight: float
    label: str = ""


LISTS: Final[dict[type, tuple[str, tuple[str, ...]]]] = {
    Chosen: (NAME, ("?",)),
    Outlier: (OUTLIERS_NAME, ("other?", "?")),  # with their question mark, trainings take them for no label
    Listed: (AUDIT_NAME, ("other", "?")),
}
"""The name of each kind of list, and the answers that are no class of the model."""
MEANINGS: Final = {
    "ra": "right ascension, degrees",
    "dec": "declination, degrees",
    "class_given": "class of the largest moderated probability",
    "p_max": "the largest moderated probability",
    "runner_up": "class of the second largest moderated probability",
    "p_runner_up": "that probability",
    "mutual_info": "epistemic part of the entropy, in nats",
    "flags": "bits, as in the annotated catalogue",
    "flag_names": "names of these bits",
    "how": "top: among the least certain flagged objects; drawn: by chance, where labels help most",
    "novelty": "distance divided by that of the 30th nearest object of the catalogue: large where many objects have "
    "no label",
    "distance": "distance from the third nearest labelled object; 1 is the distance between two random labelled "
    "objects",
    "nearest_class": "class of the nearest labelled object",
    "stratum": "place of the stratum in audit_design.json",
    "inclusion_probability": "share of the objects of the stratum that were drawn",
    "weight": "1 / (probability of being drawn): how many objects this one represents; 1 for top",
    MARK: "list and object to which the answer belongs",
    "label": "the answer, to be filled in",
}


def audit_title(model: str) -> str:
    """Return the title of the list of a model's audit."""
    return f"Audit of {model}"


def check_unanswered(folder: Path, name: str) -> None:
    """Raise UsageError where a list of that name has answers, which another list would overwrite."""
    path = folder / f"{name}.csv"
    if not path.exists():
        return
    with path.open(encoding="utf-8", errors="replace", newline="") as stream:
        answered = sum(bool((row.get("label") or "").strip()) for row in csv.DictReader(stream))
    if answered:
        raise UsageError(
            f"{path}: got a list with {answered} answers, which would be overwritten; move it to another folder first"
        )


def write_list(
    kind: type[Chosen | Outlier | Listed],
    rows: Sequence[Chosen | Outlier | Listed],
    folder: Path,
    identifier: str,
    classes: Sequence[str],
    title: str,
) -> list[Path]:
    """Write a list as CSV, VOTable and HTML, each whole or not at all; return where they are."""
    name, no_class = LISTS[kind]
    types = get_type_hints(kind)
    columns = [*types][1:-1]
    key = "id" if identifier in {*columns, "label"} else identifier
    names = [key, *columns, MARK, "label"]
    asked = list_hash(title, [row.name for row in rows])
    values = [[*astuple(row)[:-1], list_mark(asked, row.name), row.label] for row in rows]
    cells = [[_cell(value) for value in row] for row in values]
    paths = [folder / f"{name}.{ending}" for ending in ("csv", "vot", "html")]
    lines = (",".join(map(_quoted, line)) for line in (names, *cells))
    atomic_write_text(paths[0], "".join(f"{line}\n" for line in lines))
    described = zip(names, [str, *(types[column] for column in columns), str, str], strict=True)
    atomic_write_text(paths[1], _votable([*described], values))
    script = resources.files("flows").joinpath("templates", "labelling.js").read_text(encoding="utf-8")
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    page = Environment(
        loader=PackageLoader("flows", "templates"), autoescape=True, undefined=StrictUndefined
    ).get_template(f"{name}.html.j2")
    html = page.render(
        title=title,
        key=key,
        list=asked,
        columns=names,
        file=f"{name}-answers.csv",
        classes=classes,
        options=[*classes, *no_class],
        rows=[(r, c, survey_links(r.ra, r.dec)) for r, c in zip(rows, cells, strict=True)],
        script=Markup(script),  # noqa: S704  our own file
        script_hash=f"sha256-{digest}",
    )
    atomic_write_text(paths[2], html)
    return paths


TYPES: Final = {
    float: 'datatype="double"',
    int: 'datatype="long"',
    str: 'datatype="unicodeChar" arraysize="*"',
}


def _votable(columns: Sequence[tuple[str, type]], rows: Sequence[Sequence[Any]]) -> str:
    """Return a VOTable of columns, each with name and type, in BINARY2: astropy's writer is slow to import."""

    def stored(value: Any, of: type) -> bytes:
        if of is not str:
            return struct.pack(">d" if of is float else ">q", value)
        text = value.encode("utf-16-be", "replace")
        return struct.pack(">I", len(text) // 2) + text

    fields = "".join(
        f"<FIELD name={quoteattr(name)} {TYPES[of]}>"
        + (f"<DESCRIPTION>{escape(MEANINGS[name])}</DESCRIPTION>" if name in MEANINGS else "")
        + "</FIELD>\n"
        for name, of in columns
    )
    no_nulls = bytes(-(-len(columns) // 8))
    cells = (
        no_nulls + b"".join(stored(value, of) for value, (_, of) in zip(row, columns, strict=True))
        for row in rows
    )
    stream = base64.b64encode(b"".join(cells)).decode()
    return (
        '<?xml version="1.0" encoding="utf-8"?>\n'
        '<VOTABLE version="1.3" xmlns="http://www.ivoa.net/xml/VOTable/v1.3">\n<RESOURCE type="results">\n'
        f'<TABLE nrows="{len(rows)}">\n{fields}<DATA><BINARY2><STREAM encoding="base64">{stream}</STREAM></BINARY2>'
        "</DATA>\n</TABLE>\n</RESOURCE>\n</VOTABLE>\n"
    )


def _cell(value: object) -> str:
    """Return a value as CSV has it; a text is made harmless, a number that is not known is blank."""
    if isinstance(value, str):
        return harmless(value)
    return "" if isinstance(value, float) and math.isnan(value) else str(value)


def _quoted(cell: str) -> str:
    """Return a cell in quotation marks where it needs them; `csv` leaves a CR alone, which ends a line elsewhere."""
    return '"' + cell.replace('"', '""') + '"' if any(c in cell for c in ',"\r\n') else cell
