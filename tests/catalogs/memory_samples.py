"""Sample tables of astropy and pandas: each has one kind of column, or one thing that a table can have."""

from __future__ import annotations

import datetime as dt
import decimal
from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
from astropy import units as u
from astropy.coordinates import (
    Angle,
    CartesianRepresentation,
    Distance,
    EarthLocation,
    Latitude,
    Longitude,
    SkyCoord,
)
from astropy.table import MaskedColumn, NdarrayMixin, QTable, Table
from astropy.time import Time, TimeDelta
from astropy.utils.masked import Masked

N = 6
BIG = 2**60


def cells(values: Sequence[Any]) -> np.ndarray[Any, Any]:
    """Return an array of objects."""
    found = np.empty(N, object)
    found[:] = values
    return found


def astropy_columns() -> dict[str, Any]:
    i = np.arange(N)
    even = i % 2 == 0
    time = Time(2460000 + i / 10, format="jd", scale="tdb")
    masked_time = time.copy()
    masked_time[2] = np.ma.masked
    record = [("a", "i4"), ("b", "f8", (2,))]
    return {
        "64-bit integers above 2^53": BIG + i,
        "unsigned 64-bit integers above 2^63": i.astype(np.uint64) + np.uint64(2**63),
        "8-bit signed integers": (i - 3).astype(np.int8),
        "8-bit unsigned integers": (i + 250).astype(np.uint8),
        "integers of the other byte order": i.astype(">i4"),
        "float16": i.astype(np.float16),
        "float32 with NaN": np.where(even, np.nan, i).astype(np.float32),
        "floats longer than 64 bits": i.astype(np.longdouble),
        "truth values": even,
        "complex numbers": i * (1 + 2j),
        "text": np.array(["NGC 1", "b "] * 3),
        "text beyond ASCII": np.array(["Élan", "b"] * 3),
        "bytes": np.array([b"ab"] * N),
        "vectors": np.arange(3.0 * N).reshape(N, 3),
        "matrices": np.arange(6.0 * N).reshape(N, 2, 3),
        "vectors of text": np.array([["a", "bc"]] * N),
        "lists of any length": cells([np.arange(n % 3) for n in range(N)]),
        "structures as objects": cells([{"a": n} for n in range(N)]),
        "numbers as objects": cells([1, 2.5] * 3),
        "masked integers above 2^53": MaskedColumn(BIG + i, mask=even, fill_value=-99),
        "masked floats": MaskedColumn(i / 2, mask=even),
        "masked text": MaskedColumn(["a", "bc"] * 3, mask=even),
        "masked truth values": MaskedColumn(i > 2, mask=even),
        "masked vectors": MaskedColumn(
            np.arange(12).reshape(N, 2), mask=np.arange(12).reshape(N, 2) % 3 == 0
        ),
        "structured columns": np.array([(n, (n, n)) for n in range(N)], record),
        "structured arrays (NdarrayMixin)": np.array([(n, (n, n)) for n in range(N)], record).view(
            NdarrayMixin
        ),
        "times of NumPy": np.array(["2026-01-01"] * N, "datetime64[ms]"),
        "durations of NumPy": i.astype("timedelta64[s]"),
        "Quantity": i * u.Jy,
        "Quantity, masked": Masked(i * 1.5 * u.Jy, mask=even),
        "Quantity of vectors": np.ones((N, 2)) * u.Jy,
        "Magnitude": i * u.ABmag,
        "Time": time,
        "Time, masked": masked_time,
        "Time at a place": Time(["2026-01-01"] * N, location=EarthLocation(1 * u.m, 2 * u.m, 3 * u.m)),
        "TimeDelta": TimeDelta(i * u.day),
        "SkyCoord": SkyCoord(i * u.deg, i * u.deg),
        "SkyCoord with motions and epoch": SkyCoord(
            i * u.deg,
            i * u.deg,
            distance=(i + 1) * u.pc,
            pm_ra_cosdec=i * u.mas / u.yr,
            pm_dec=i * u.mas / u.yr,
            obstime=Time("J2015.5"),
            frame="fk5",
            equinox="J1975",
        ),
        "Latitude": Latitude(i * u.deg),
        "Longitude": Longitude(i * u.deg, wrap_angle=180 * u.deg),
        "Angle": Angle(i * u.deg),
        "Distance": Distance(i * u.Mpc),
        "EarthLocation": EarthLocation(i * u.m, i * u.m, i * u.m),
        "representations": CartesianRepresentation(i * u.m, i * u.m, i * u.m),
    }


def astropy_tables() -> dict[str, Table]:
    """Return a table for each kind of column, and for each thing that a table has beside them."""
    i = np.arange(N)
    mixins = ("Quantity", "Magnitude")
    found = {
        label: (QTable if label.startswith(mixins) else Table)({"row": i, "c": column})
        for label, column in astropy_columns().items()
    }
    names = (
        "`meta`: header cards, comments",
        "`meta`: nested, units, times",
        "units, descriptions, formats, UCDs",
    )
    cards, nested, described = (Table({"row": i, "c": i / 2}) for _ in names)
    cards.meta = {
        "TELESCOP": "VISTA",
        "EXPTIME": 12.5,
        "NAX": 3,
        "OK": True,
        "comments": ["one", "two"],
        "HISTORY": ["h"],
    }
    nested.meta = {
        "survey": {"name": "x", "bands": ["u", "g"]},
        "zero": 3 * u.Jy,
        "epoch": Time("2026-01-01"),
    }
    described["c"].unit, described["c"].description = u.Unit("furlong / Jy", parse_strict="silent"), "a flux"
    described["c"].format, described["c"].meta = ".2f", {"ucd": "phot.flux", "bits": [1, 2]}
    found |= dict(zip(names, (cards, nested, described), strict=True))
    found["a table of masked columns"] = Table({"row": i, "c": i / 2}, masked=True)
    found["groups"] = Table({"row": i, "c": i % 2}).group_by("c")
    found["no rows"] = Table({"row": i, "c": np.array(list("abcdef"))})[:0]
    found["an index (add_index)"] = Table({"row": i, "c": i / 2})
    found["an index (add_index)"].add_index("row")
    return found


def pandas_columns() -> dict[str, Any]:
    i = np.arange(N)

    def arrow(values: Sequence[Any], datatype: pa.DataType) -> Any:
        return pd.array(values, dtype=pd.ArrowDtype(datatype))

    def objects(values: Sequence[Any]) -> Any:
        return pd.Series(values, dtype=object)

    return {
        "unsigned 64-bit integers above 2^63": i.astype(np.uint64) + np.uint64(2**63),
        "float32 with NaN": np.array([1, np.nan] * 3, np.float32),
        "text with nulls": ["a", None] * 3,
        "categories": pd.Categorical(["a", None, "b"] * 2, categories=["z", "b", "a"]),
        "categories in order": pd.Categorical(list("bcbcbc"), categories=["c", "b", "z"], ordered=True),
        "categories of numbers": pd.Categorical([3, 1, 2] * 2, categories=[3, 2, 1, 9]),
        "categories of intervals (pd.cut)": pd.cut(i / 1.0, 3),
        "Int64 above 2^53 with nulls": pd.array([BIG + 1, None] * 3, dtype="Int64"),
        "UInt8 with nulls": pd.array([1, None] * 3, dtype="UInt8"),
        "Float32 with nulls": pd.array([1.5, None] * 3, dtype="Float32"),
        "boolean with nulls": pd.array([True, None] * 3, dtype="boolean"),
        "string with nulls": pd.array(["a", None] * 3, dtype="string"),
        "times in ns, with nulls": pd.to_datetime(["2026-01-01 00:00:00.123456789", None] * 3),
        "times with a zone": pd.to_datetime(["2026-01-01", None] * 3).tz_localize("Europe/Berlin"),
        "durations": pd.to_timedelta([1, None] * 3, unit="s"),
        "periods": pd.period_range("2026", periods=N, freq="M"),
        "intervals": pd.interval_range(0, N),
        "objects: texts": objects(["a", None] * 3),
        "objects: bytes": objects([b"a\xe9", None] * 3),
        "objects: integers above 2^53 and None": objects([BIG + 1, None] * 3),
        "objects: truth values and None": objects([True, None] * 3),
        "objects: lists": objects([[1, 2], [3]] * 3),
        "objects: structures": objects([{"a": 1}, {"a": 2}] * 3),
        "objects: decimal numbers": objects([decimal.Decimal("1.5"), None] * 3),
        "objects: dates": objects([dt.date(2026, 1, 1), None] * 3),
        "Arrow: int64 with nulls": arrow([BIG + 1, None] * 3, pa.int64()),
        "Arrow: float32, nulls and NaN": arrow([1.5, None, np.nan] * 2, pa.float32()),
        "Arrow: lists": arrow([[1], None] * 3, pa.list_(pa.int32())),
        "Arrow: vectors": arrow([[1, 2], None] * 3, pa.list_(pa.int32(), 2)),
        "Arrow: structures": arrow([{"a": 1}, None] * 3, pa.struct([("a", pa.int32())])),
        "Arrow: times": arrow([dt.datetime(2026, 1, 1, tzinfo=dt.UTC), None] * 3, pa.timestamp("us", "UTC")),
    }


def pandas_frames() -> dict[str, pd.DataFrame]:
    """Return a frame for each kind of column, and for each thing that a frame has beside them."""
    i = np.arange(N)
    found = {label: pd.DataFrame({"row": i, "c": column}) for label, column in pandas_columns().items()}
    plain, halves = (
        pd.DataFrame({"row": i, "c": i / 2}),
        pd.DataFrame({"row": i, "f": list("aabbcc"), "c": i / 2}),
    )
    days = pd.date_range("2026", periods=N, freq="D", tz="Europe/Berlin", name="t")
    found["`attrs`"], found["`attrs` that are no JSON"] = plain.copy(), plain.copy()
    found["`attrs`"].attrs = {"survey": "x", "nested": {"bands": ["u", "g"]}, "n": 3}
    found["`attrs` that are no JSON"].attrs = {"survey": "x", "edges": np.arange(3)}
    found["an index with a name"] = plain.set_index(pd.Index(BIG + i, name="objid"))
    found["an index without a name"] = plain.set_index(np.array(list("abcdef")))
    found["the index of a selection"] = plain[i % 2 == 0]
    found["an index that is a column too"] = plain.set_index("row", drop=False)
    found["an index of several levels"] = halves.set_index(["f", "row"], drop=False)
    found["an index of several levels"].index.names = ["field", None]
    found["an index of times"] = plain.set_index(pd.DatetimeIndex(days, freq=None))
    found["names that are numbers"] = plain.rename(columns={"c": 0})
    found["columns of two levels"] = pd.concat({"x": plain, "y": plain}, axis=1)
    found["a name of all columns"] = plain.rename_axis(columns="quantities")
    found["no rows"] = plain.iloc[:0]
    return found


ASTROPY, PANDAS = astropy_tables(), pandas_frames()
