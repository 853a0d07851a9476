"""A review list as files: VOTable and CSV with an empty column for the answer, HTML with links to sky surveys."""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final

from astropy.table import Table
from jinja2 import Environment, PackageLoader, StrictUndefined

from catalogs.files.atomic import atomic_path, atomic_write_text
from catalogs.sky.survey_links import survey_links

__all__ = ["Chosen", "write_lists"]

NAME: Final = "review"
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
    key = identifier if identifier not in COLUMNS else "id"
    names = [key, *COLUMNS]
    values = [list(asdict(row).values()) for row in rows]
    stream = io.StringIO()
    writer = csv.writer(stream, lineterminator="\n")
    writer.writerow(names)
    writer.writerows([["" if isinstance(v, float) and math.isnan(v) else v for v in row] for row in values])
    page = Environment(
        loader=PackageLoader("flows", "templates"), autoescape=True, undefined=StrictUndefined
    ).get_template("review.html.j2")
    html = page.render(title=title, key=key, rows=[(row, survey_links(row.ra, row.dec)) for row in rows])
    paths = [folder / f"{NAME}.{ending}" for ending in ("csv", "vot", "html")]
    atomic_write_text(paths[0], stream.getvalue())
    types = [str, float, float, str, float, float, int, str, float, str]
    table = Table(rows=values or None, names=names, dtype=types)
    for name, meaning in COLUMNS.items():
        table[name].description = meaning
    with atomic_path(paths[1]) as temporary:
        # BINARY2, as all our VOTables: and astropy 8.0's writer of TABLEDATA corrupted the process's memory here.
        table.write(temporary, format="votable", tabledata_format="binary2", overwrite=True)
    atomic_write_text(paths[2], html)
    return paths
