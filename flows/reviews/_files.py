"""A review list as files: VOTable and CSV with an empty column for the answer, HTML with links to sky surveys."""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final

from astropy.table import Table
from jinja2 import Environment, PackageLoader, StrictUndefined, Template

from catalogs.files.atomic import atomic_path, atomic_write_text
from catalogs.sky.survey_links import survey_links

__all__ = ["Chosen", "Listed", "write_audit_lists", "write_lists"]

NAME: Final = "review"
AUDIT_NAME: Final = "audit"
COLUMNS: Final = {
    "ra": "right ascension, degrees",
    "dec": "declination, degrees",
    "class_given": "class of the largest moderated probability",
    "p_max": "the largest moderated probability",
    "mutual_info": "epistemic part of the entropy, in nats",
    "flags": "bits, as in the annotated catalogue",
    "how": "top: least certain of those flagged; drawn: in proportion to mutual_info",
    "weight": "one over the probability of being chosen so; 1 for top, which stand for themselves",
    "label": "the answer, to be filled in",
}


@dataclass(frozen=True)
class Chosen:
    """One object to be looked at."""

    name: str
    ra: float
    dec: float
    class_given: str
    p_max: float
    mutual_info: float
    flags: int
    how: str
    weight: float
    label: str = ""


def write_lists(rows: Sequence[Chosen], folder: Path, identifier: str, title: str) -> list[Path]:
    """Write `review.csv`, `review.vot` and `review.html`, each whole or not at all; return where they are."""
    values = [list(asdict(row).values()) for row in rows]
    types = [str, float, float, str, float, float, int, str, float, str]
    key = _key(identifier, COLUMNS)
    page = _page("review.html.j2").render(
        title=title, key=key, rows=[(r, survey_links(r.ra, r.dec)) for r in rows]
    )
    return _write(folder, NAME, key, COLUMNS, values, types, page)


@dataclass(frozen=True)
class Listed:
    """One object of an audit.  The model's class is not in the list: who sees it agrees with it too often."""

    name: str
    ra: float
    dec: float
    stratum: int
    inclusion_probability: float
    weight: float
    label: str = ""


AUDIT_COLUMNS: Final = {
    "ra": "right ascension, degrees",
    "dec": "declination, degrees",
    "stratum": "place of the stratum in audit_design.json",
    "inclusion_probability": "share of the objects of the stratum that were drawn",
    "weight": "one over it: how many objects this one stands for",
    "label": "the answer, to be filled in",
}


def write_audit_lists(
    rows: Sequence[Listed], folder: Path, identifier: str, classes: Sequence[str], title: str
) -> list[Path]:
    """Write `audit.csv`, `audit.vot` and `audit.html`, each whole or not at all; return where they are."""
    values = [list(asdict(row).values()) for row in rows]
    types = [str, float, float, int, float, float, str]
    key = _key(identifier, AUDIT_COLUMNS)
    page = _page("audit.html.j2").render(
        title=title, key=key, classes=classes, rows=[(r, survey_links(r.ra, r.dec)) for r in rows]
    )
    return _write(folder, AUDIT_NAME, key, AUDIT_COLUMNS, values, types, page)


def _key(identifier: str, columns: Mapping[str, str]) -> str:
    """Return what the column of the identifier is called in a list."""
    return identifier if identifier not in columns else "id"


def _page(template: str) -> Template:
    loader = PackageLoader("flows", "templates")
    return Environment(loader=loader, autoescape=True, undefined=StrictUndefined).get_template(template)


def _write(
    folder: Path,
    name: str,
    key: str,
    columns: Mapping[str, str],
    values: Sequence[Sequence[str | float]],
    types: Sequence[type],
    page: str,
) -> list[Path]:
    """Write a list as CSV, VOTable and HTML; return where they are."""
    names = [key, *columns]
    stream = io.StringIO()
    writer = csv.writer(stream, lineterminator="\n")
    writer.writerow(names)
    writer.writerows([["" if isinstance(v, float) and math.isnan(v) else v for v in row] for row in values])
    paths = [folder / f"{name}.{ending}" for ending in ("csv", "vot", "html")]
    atomic_write_text(paths[0], stream.getvalue())
    table = Table(rows=list(values) or None, names=names, dtype=types)
    for column, meaning in columns.items():
        table[column].description = meaning
    with atomic_path(paths[1]) as temporary:
        # BINARY2, as all our VOTables: and astropy 8.0's writer of TABLEDATA corrupted the process's memory here.
        table.write(temporary, format="votable", tabledata_format="binary2", overwrite=True)
    atomic_write_text(paths[2], page)
    return paths
