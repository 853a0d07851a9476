"""The demonstration: OpenNGC's galaxies, classified twice, from nothing to annotated catalogues and reports.

It does what a user would: write its catalogues and a specification, train, classify.  Running it again does only what
is missing.
"""

from __future__ import annotations

import csv
import importlib.util
import json
import sqlite3
import textwrap
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from importlib import metadata
from io import BytesIO
from pathlib import Path
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from astropy.io import fits

from catalogs.catalog.catalog import Column
from catalogs.errors import CatalogError
from catalogs.files import atomic_path, atomic_write_text
from catalogs.metadata.astropy_header import ASTROPY, ASTROPY_LENGTH, entry_line
from catalogs.metadata.votable_fields import field_xml, new_votable
from catalogs.parquet.metadata import VOTABLE, VOTABLE_VERSION, new_fields
from flows.classification import steps as classification
from flows.documents import template_text, write_document
from flows.models.description import ModelDescription
from flows.models.store import REPORT_FILE, Store
from flows.release.draft import draft
from flows.release.record import check
from flows.reports.answers import training_answers
from flows.reports.counts import census_words
from flows.reports.data import training_remarks
from flows.request import ClassifyRequest, DraftRequest, ReleaseRequest, TrainRequest
from flows.runs.progress import tell
from flows.runs.references import OutputFolder, check_output
from flows.runs.results import ClassificationResult, Counts, Summary
from flows.training import steps as training

__all__ = [
    "ATTRIBUTION",
    "COLUMNS",
    "LICENCE_URL",
    "DemoDataError",
    "read_openngc",
    "write_catalogues",
    "write_fits",
    "write_parquet",
]

# The columns of OpenNGC's galaxies: types, units and UCDs, after its guide and PyOngc's documentation.
#
# The UCDs are of the IVOA's UCD1+ vocabulary.  `phys.angSize` and not `.smajAxis`: OpenNGC gives full axes.


def _described(row: Mapping[str, str]) -> Column:
    null = int(row["null"]) if row["null"] else None
    return Column(
        row["name"], pa.type_for_alias(row["type"]), row["unit"] or None, row["ucd"], row["description"], null
    )


COLUMNS = tuple(map(_described, csv.DictReader(template_text("demo-columns.csv").splitlines())))
"""Name, type, unit, UCD, description and null value of each, in the order of the files."""


# The demo's catalogue: the galaxies of OpenNGC, from the database that the PyPI package `pyongc` carries.
#
# Written once as a FITS BINTABLE and once as Parquet, with units, UCDs and descriptions.  No date goes in, so
# the same database gives the same bytes.  The data are CC-BY-SA-4.0: `ATTRIBUTION` goes with every copy.

SOURCE_URL: Final = "https://github.com/mattiaverga/OpenNGC"
LICENCE_URL: Final = "https://creativecommons.org/licenses/by-sa/4.0/"
ATTRIBUTION: Final = (
    f"Galaxy data: OpenNGC by Mattia Verga and contributors ({SOURCE_URL}), as distributed by PyOngc, "
    f"licensed CC-BY-SA-4.0 ({LICENCE_URL}). Changed here: galaxies only, positions in degrees, columns "
    "described, typographic apostrophes made ASCII. Annotated copies are under the same licence."
)
REMARKS_ON_DATA: Final = (
    "An absent number is null (FITS: NaN or TNULL), an absent text is empty.",
    f"Licence text: {LICENCE_URL}",
)
ROW_GROUP: Final = 4096
# FITS strings are ASCII; four notes hold a typographic apostrophe.
_TO_ASCII: Final = {0x2019: "'"}
_FITS_FORMATS: Final = {pa.float64(): "D", pa.int32(): "J", pa.int16(): "I", pa.bool_(): "L"}


class DemoDataError(CatalogError):
    """PyOngc's database is not there, or not what this demo knows."""


def read_openngc(database: Path | None = None) -> pa.Table:
    """Return OpenNGC's galaxies (10,521 in PyOngc 1.2.2); absent numbers are null, absent texts empty."""
    path = database
    if path is None:
        spec = importlib.util.find_spec("pyongc")  # which needs no import
        if spec is None or spec.origin is None:
            raise DemoDataError(
                "got no package 'pyongc', which has the galaxies of the demonstration; install it: "
                "pip install 'galaxyblr[demo]'"
            )
        path = Path(spec.origin).parent / "ongc.db"
    names = ", ".join(f'"{c.name}"' for c in COLUMNS)
    try:
        connection = sqlite3.connect(f"{path.resolve().as_uri()}?mode=ro", uri=True)
        try:
            rows = connection.execute(f"SELECT {names} FROM objects WHERE type = 'G' ORDER BY id").fetchall()  # noqa: S608 -- constants
        finally:
            connection.close()
    except sqlite3.Error as error:
        raise DemoDataError(
            f"{path} is not a database of OpenNGC objects ({error}); expected PyOngc 1.2's or later; "
            "reinstall it: pip install --force-reinstall pyongc"
        ) from error
    values = dict(zip((c.name for c in COLUMNS), zip(*rows, strict=True), strict=True)) if rows else {}
    if not values:
        raise DemoDataError(f"{path} holds no galaxies, expected about 10,000; reinstall pyongc")
    schema = new_fields(COLUMNS)
    return pa.table([_column(c, values[c.name]) for c in COLUMNS], schema=schema)


def write_catalogues(folder: Path, database: Path | None = None) -> tuple[Path, Path]:
    """Write `openngc.fits` and `openngc.parquet` into `folder`; return their paths."""
    folder.mkdir(parents=True, exist_ok=True)
    table = read_openngc(database)
    fits_path, parquet_path = folder / "openngc.fits", folder / "openngc.parquet"
    write_fits(table, fits_path)
    write_parquet(table, parquet_path)
    return fits_path, parquet_path


def write_fits(table: pa.Table, path: Path) -> None:
    """Write the table as FITS 4.0: NaN and TNULL for absent numbers, blanks for absent text."""
    hdu = fits.BinTableHDU.from_columns(
        [_fits_column(c, table.column(c.name)) for c in COLUMNS], name="OPENNGC"
    )
    for i, column in enumerate(COLUMNS, start=1):
        hdu.header[f"TCOMM{i}"], hdu.header[f"TUCD{i}"] = column.description, column.ucd
    primary = fits.PrimaryHDU()
    for header in (primary.header, hdu.header):
        header["ORIGIN"] = _source()
        for line in (ATTRIBUTION, *REMARKS_ON_DATA):
            # The longest that one card holds, so that lines break between words.
            for card in textwrap.wrap(line, 72, break_on_hyphens=False):
                header.add_history(card)
    # Checksums are of the bytes as they will be written, so take them from what astropy reads back.
    draft = BytesIO()
    fits.HDUList([primary, hdu]).writeto(draft)
    with fits.open(BytesIO(draft.getvalue())) as hdus, atomic_path(path) as temporary:
        for part in hdus:
            part.add_datasum(when="data unit checksum")
            # The default comment is the time of day; two runs must give the same bytes.
            part.add_checksum(when="HDU checksum", override_datasum=True)
        hdus.writeto(temporary, checksum=False, overwrite=True)


def write_parquet(table: pa.Table, path: Path) -> None:
    """Write the table as Parquet with VOParquet (IVOA Note 1.0), astropy's and Arrow's column metadata."""
    widths = _widths(table)
    columns = [replace(c, null=None) for c in COLUMNS]  # Parquet has nulls
    pairs = {
        VOTABLE_VERSION: "1.0",
        VOTABLE: new_votable(field_xml(c, str(widths.get(c.name, ""))) for c in columns),
        ASTROPY: "\n".join(["datatype:", *map(entry_line, columns)]),
        "attribution": ATTRIBUTION,
        "source": _source(),
        "licence": "CC-BY-SA-4.0",
        "remarks": json.dumps(REMARKS_ON_DATA),
        # Without these astropy's reader takes the longest text's length, and warns.
        **{ASTROPY_LENGTH + name: str(width) for name, width in widths.items()},
    }
    with atomic_path(path) as temporary:
        pq.write_table(
            table.replace_schema_metadata(pairs),
            temporary,
            row_group_size=ROW_GROUP,
            compression="zstd",
            use_dictionary=[c.name for c in COLUMNS if c.datatype == pa.string()],
        )


def _source() -> str:
    try:
        return f"OpenNGC, from PyOngc {metadata.version('pyongc')}"
    except metadata.PackageNotFoundError:
        return "OpenNGC, from a database of PyOngc"


def _column(column: Column, values: tuple[Any, ...]) -> pa.Array:
    """Return the database's values as an Arrow array in the units of `COLUMNS`."""
    if column.name in {"ra", "dec"}:
        return pa.array(np.degrees(np.asarray(values, dtype=float)))
    if column.datatype == pa.string():
        return pa.array([(v or "").translate(_TO_ASCII) for v in values], pa.string())
    if column.datatype == pa.bool_():
        return pa.array([None if v is None else bool(v) for v in values], pa.bool_())
    return pa.array(values, column.datatype)


def _fits_column(column: Column, values: pa.ChunkedArray) -> fits.Column:
    if column.datatype == pa.string():
        text = np.array([v.encode("ascii") for v in values.to_pylist()])
        return fits.Column(column.name, f"{text.dtype.itemsize}A", array=text)
    filled = values if column.null is None else values.fill_null(column.null)
    return fits.Column(
        column.name,
        _FITS_FORMATS[column.datatype],
        # Powers as the FITS standard recommends (4.3).
        unit=column.unit.replace("arcsec2", "arcsec**2") if column.unit else None,
        null=column.null,
        array=filled.to_numpy(),
    )


def _widths(table: pa.Table) -> dict[str, int]:
    """Return the longest text of each string column, at least 1."""
    texts = (c.name for c in COLUMNS if c.datatype == pa.string())
    return {name: max(1, pc.max(pc.utf8_length(table.column(name))).as_py()) for name in texts}


@dataclass(frozen=True, kw_only=True)
class DemoTask:
    """One task: the model, and the counts of the catalogues that it classified, by file."""

    model: ModelDescription
    classified: Mapping[str, Counts]
    remarks: tuple[str, ...]
    attribution: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class DemoResult:
    """The demonstration: the catalogues that were written, whose they are, and the two tasks."""

    catalogues: tuple[str, ...]
    attribution: str
    tasks: Mapping[str, DemoTask]


Show = Callable[[str], None]
Train = Callable[[TrainRequest], ModelDescription]
Classify = Callable[[ClassifyRequest], ClassificationResult]

TASKS: Final = {
    "binary": "early (E, E-S0, S0, S0-a) or late (Sa to Sm, I)",
    "five-class": "elliptical, lenticular, early_spiral, late_spiral, irregular",
}
COPIES: Final = {".fits": "annotated", ".parquet": "annotated-parquet"}
"""Where the copies of each catalogue go, by its suffix."""
INTRODUCTION: Final = (
    "The galaxies of the New General Catalogue and its companions, as OpenNGC has them. Those with a Hubble type "
    "train two models; then all are classified, the unlabelled and the doubtful ('S?', 'E?') too."
)
REMARKS: Final = (
    "Left out of the features: redshift and radvel. They say how galaxies were selected, not what they look like.",
    (
        "Left out of the features: sbrightn. It was computed with a correction that depends on the morphological "
        "type, so that together with bmag and majax it gives the class away (binary log loss falls from 0.52 to 0.25)."
    ),
    "B-V is missing for 68 % of the galaxies, so it is in one feature set only; where missing, it is integrated out.",
    "Not trained on, but classified: galaxies without a Hubble type, and the doubtful types 'S?' and 'E?'.",
)


def run_demo(
    out: Path,
    *,
    train: Train = training.train,
    classify: Classify = classification.classify,
    show: Show = lambda _: None,
) -> DemoResult:
    """Run the demonstration in the folder `out`; return what the summaries say.

    `train` and `classify` are the plain functions or Prefect's flows; `show` prints for people.
    """
    folder = check_output(out, key="out")
    catalogues = write_catalogues(folder / "catalogues")
    show(INTRODUCTION)
    tasks = {task: _run_task(task, folder, catalogues, train, classify, show) for task in TASKS}
    show(_checked(folder))
    show(
        f"Reports:  {folder / 'binary' / 'report.html'} and {folder / 'five-class' / 'report.html'}\n"
        f"Annotated copies: {' and '.join(COPIES.values())} beside them; catalogues: {folder / 'catalogues'}\n"
        f"Models:   blr models list --store {folder / 'models'}\n"
        "Left out of the features: redshift, radvel and sbrightn, which give types away (see summary.json).\n"
        f"{ATTRIBUTION}"
    )
    return DemoResult(catalogues=tuple(map(str, catalogues)), attribution=ATTRIBUTION, tasks=tasks)


def _run_task(
    task: str,
    out: OutputFolder,
    catalogues: tuple[Path, ...],
    train: Train,
    classify: Classify,
    show: Show,
) -> DemoTask:
    """Train and classify one task; write its report and its summary; return the summary."""
    folder, store = out / task, out / "models"
    specification = _specification(task, folder)
    trained = train(TrainRequest(specification, store))
    # Both catalogues hold the same galaxies: in one folder of copies each galaxy would count twice.
    results = [
        classify(ClassifyRequest([str(one)], trained.model, store, folder / COPIES[one.suffix]))
        for one in catalogues
    ]
    summaries = [None if result.status == "trial" else result.summary for result in results]
    files = {name: counts for one in summaries if one is not None for name, counts in one.files.items()}
    atomic_write_text(folder / "report.html", (Path(str(trained.path)) / REPORT_FILE).read_text("utf-8"))
    remarks = (*REMARKS, *training_remarks(trained.training))
    place = Store.named(store)
    model = place.described(place.load(trained.model), "stored")  # the same when it runs again
    summary = DemoTask(model=model, classified=files, remarks=remarks, attribution=(ATTRIBUTION,))
    write_document(folder / "summary.json", summary)
    _show_task(task, trained, summaries[0], show)
    return summary


def _specification(task: str, folder: Path) -> Path:
    """Return the task's specification; one that is there stays, for its user may have changed it."""
    path = folder / "spec.toml"
    text = template_text(f"demo-{task}.toml")
    folder.mkdir(parents=True, exist_ok=True)
    if not path.exists():
        atomic_write_text(path, text)
    elif path.read_text(encoding="utf-8") != text:
        tell().note(f"{path} was not written by this version; it is used unchanged")
    return path


def _show_task(task: str, trained: ModelDescription, summary: Summary | None, show: Show) -> None:
    """Say in four lines what a task found: whether to trust the model, how good it is, and what is in the catalogue."""
    use, *four, odd, _ = training_answers(trained)
    show(f"{trained.model}: {TASKS[task]}")
    show(f"  {use.question} {use.short}")
    show(f"  {four[2].question} {four[2].short}")
    if summary is not None:
        said = "" if summary.census is None else census_words(summary.census)
        show(
            f"  Of {summary.n_rows:,} galaxies: {said or 'how many of each class cannot be said'}. {odd.short}"
        )


def _checked(out: OutputFolder) -> str:
    """Draft a release of the binary run and check it, as `blr release check` does; return what it says."""
    releases, version = out / "releases", "1.0"
    run = out / "binary" / COPIES[".parquet"]
    draft(DraftRequest("openngc", version, run=run, store=out / "models", releases=releases))
    checked = check(ReleaseRequest("openngc", version, releases=releases))
    stops = f"these say stop: {', '.join(checked.stops)}" if checked.stops else "none says stop"
    report = releases / "openngc" / f".{version}.draft" / "report.html"
    rows = f"{checked.n_rows:,} rows, {checked.n_replayed:,} scored again"
    return f"Release check: {len({c.name for c in checked.checks})} checks of {rows}; {stops}: {report}"
