"""The columns of OpenNGC's galaxies: types, units and UCDs, after its guide and PyOngc's documentation.

The UCDs are of the IVOA's UCD1+ vocabulary.  `phys.angSize` and not `.smajAxis`: OpenNGC gives full axes.
"""

from __future__ import annotations

import pyarrow as pa

from catalogs.catalog.catalog import Column

__all__ = ["COLUMNS"]

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
