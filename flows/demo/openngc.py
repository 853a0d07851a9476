"""The OpenNGC catalogue of galaxies: fetched or embedded, with its columns as the demonstration needs them."""

from __future__ import annotations

import importlib.util
import json
import sqlite3
import textwrap
from collections.abc import Mapping
from importlib import metadata
from io import BytesIO
from pathlib import Path
from typing import Any, Final
from xml.etree import ElementTree as ET

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from astropy.io import fits
from astropy.table import Column as TableColumn
from astropy.table import Table
from astropy.table.meta import get_yaml_from_table

from catalogs.catalog.catalog import Column
from catalogs.errors import CatalogError
from catalogs.files.atomic import atomic_path

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

_TEXT = pa.string()
_REAL = pa.float64()

_PHOTOMETRY = tuple(
    Column(
        f"{band.lower()}mag",
        _REAL,
        "mag",
        f"phot.mag;em.{spectrum}.{band}",
        f"Apparent total {band} magnitude",
    )
    for band, spectrum in (("B", "opt"), ("V", "opt"), ("J", "IR"), ("H", "IR"), ("K", "IR"))
)

COLUMNS = (
    Column("name", _TEXT, None, "meta.id;meta.main", "Object name: catalogue and number"),
    Column("type", _TEXT, None, "src.class", "Kind of object; G is a galaxy"),
    Column("ra", _REAL, "deg", "pos.eq.ra;meta.main", "Right ascension, J2000 (from radians)"),
    Column("dec", _REAL, "deg", "pos.eq.dec;meta.main", "Declination, J2000 (from radians)"),
    Column("const", _TEXT, None, "meta.code;pos", "Constellation where the object is"),
    Column("majax", _REAL, "arcmin", "phys.angSize;src", "Major axis, full"),
    Column("minax", _REAL, "arcmin", "phys.angSize;src", "Minor axis, full"),
    Column("pa", pa.int16(), "deg", "pos.posAng", "Position angle of the major axis, N to E", null=-32768),
    *_PHOTOMETRY,
    Column(
        "sbrightn",
        _REAL,
        "mag/arcsec2",
        "phot.mag.sb;em.opt.B",
        "Mean B surface brightness within 25 mag isophote",
    ),
    Column("hubble", _TEXT, None, "src.morph.type", "Hubble type; ? is doubtful, empty unknown"),
    Column("parallax", _REAL, "mas", "pos.parallax.trig", "Parallax"),
    Column("pmra", _REAL, "mas/yr", "pos.pm;pos.eq.ra", "Proper motion in right ascension"),
    Column("pmdec", _REAL, "mas/yr", "pos.pm;pos.eq.dec", "Proper motion in declination"),
    Column(
        "radvel",
        pa.int32(),
        "km/s",
        "spect.dopplerVeloc.opt;pos.heliocentric",
        "Heliocentric radial velocity",
        null=-2147483648,
    ),
    Column("redshift", _REAL, None, "src.redshift;pos.heliocentric", "Heliocentric redshift"),
    Column("messier", _TEXT, None, "meta.id", "Messier number"),
    Column("ngc", _TEXT, None, "meta.id", "Other NGC identification"),
    Column("ic", _TEXT, None, "meta.id", "IC identification"),
    Column("identifiers", _TEXT, None, "meta.id", "Names in other catalogues"),
    Column("commonnames", _TEXT, None, "meta.id", "Common names"),
    Column("nednotes", _TEXT, None, "meta.note", "Notes from NED"),
    Column("ongcnotes", _TEXT, None, "meta.note", "Notes of OpenNGC"),
    Column("notngc", pa.bool_(), None, "meta.code", "True: from the addendum, not NGC or IC"),
)
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
ROW_GROUP: Final = 4096
# FITS strings are ASCII; four notes hold a typographic apostrophe.
_TO_ASCII: Final = {0x2019: "'"}
_VOTABLE_TYPES: Final = {
    pa.string(): "char",
    pa.float64(): "double",
    pa.int32(): "int",
    pa.int16(): "short",
    pa.bool_(): "boolean",
}
_FITS_FORMATS: Final = {pa.float64(): "D", pa.int32(): "J", pa.int16(): "I", pa.bool_(): "L"}


class DemoDataError(CatalogError):
    """PyOngc's database is not there, or not what this demo knows."""


def read_openngc(database: Path | None = None) -> pa.Table:
    """Return OpenNGC's galaxies (10,521 in PyOngc 1.2.2); absent numbers are null, absent texts empty."""
    path = _installed_database() if database is None else database
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
    schema = pa.schema([pa.field(c.name, c.datatype, metadata=_field_metadata(c)) for c in COLUMNS])
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
        for line in (ATTRIBUTION, *_remarks()):
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
    described = {
        "IVOA.VOTable-Parquet.version": "1.0",
        "IVOA.VOTable-Parquet.content": _votable(widths),
        "table_meta_yaml": _yaml(),
        "attribution": ATTRIBUTION,
        "source": _source(),
        "licence": "CC-BY-SA-4.0",
        "remarks": json.dumps(_remarks()),
        # Without these astropy's reader takes the longest text's length, and warns.
        **{f"table::len::{name}": str(width) for name, width in widths.items()},
    }
    with atomic_path(path) as temporary:
        pq.write_table(
            table.replace_schema_metadata(described),
            temporary,
            row_group_size=ROW_GROUP,
            compression="zstd",
            use_dictionary=[c.name for c in COLUMNS if c.datatype == pa.string()],
        )


def _installed_database() -> Path:
    """Return the path of the database in the installed `pyongc`; it needs no import of the package."""
    spec = importlib.util.find_spec("pyongc")
    if spec is None or spec.origin is None:
        raise DemoDataError(
            "the galaxies of the demonstration come from the package 'pyongc', which is not installed; "
            "install it: pip install 'galaxyblr[demo]'"
        )
    return Path(spec.origin).parent / "ongc.db"


def _source() -> str:
    try:
        return f"OpenNGC, from PyOngc {metadata.version('pyongc')}"
    except metadata.PackageNotFoundError:
        return "OpenNGC, from a database of PyOngc"


def _remarks() -> list[str]:
    return [
        "An absent number is null (FITS: NaN or TNULL), an absent text is empty.",
        f"Licence text: {LICENCE_URL}",
    ]


def _field_metadata(column: Column) -> Mapping[str, str]:
    entries = {"unit": column.unit, "ucd": column.ucd, "description": column.description}
    return {key: value for key, value in entries.items() if value is not None}


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


def _votable(widths: Mapping[str, int]) -> str:
    """Return a VOTable of the columns without data, as VOParquet asks for; `widths` of the texts."""
    votable = ET.Element("VOTABLE", version="1.4", xmlns="http://www.ivoa.net/xml/VOTable/v1.3")
    table = ET.SubElement(ET.SubElement(votable, "RESOURCE", type="results"), "TABLE", name="openngc")
    ET.SubElement(table, "DESCRIPTION").text = ATTRIBUTION
    for c in COLUMNS:
        field = ET.SubElement(table, "FIELD", ID=c.name, name=c.name, datatype=_VOTABLE_TYPES[c.datatype])
        if c.name in widths:
            field.set("arraysize", str(widths[c.name]))
        for key, value in _field_metadata(c).items():
            if key != "description":
                field.set(key, value)
        ET.SubElement(field, "DESCRIPTION").text = c.description
    ET.SubElement(table, "PARQUET", type="Parquet-local-XML")
    return ET.tostring(votable, encoding="unicode")


def _yaml() -> str:
    """Return the columns' metadata in the words of astropy's own Parquet reader."""
    columns = [
        TableColumn(name=c.name, dtype=kind, unit=c.unit, description=c.description, meta={"ucd": c.ucd})
        for c in COLUMNS
        for kind in (str if c.datatype == pa.string() else c.datatype.to_pandas_dtype(),)
    ]
    return "\n".join(get_yaml_from_table(Table(columns, meta={"attribution": ATTRIBUTION})))
