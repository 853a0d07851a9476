"""The YAML of astropy's tables, which ECSV and Parquet hold: read without making objects, and written."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from functools import lru_cache
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pt
import yaml

from catalogs.arrays import Array
from catalogs.catalog.catalog import Column
from catalogs.catalog.new_columns import NewColumn

__all__ = ["SafeDumper"]  # yaml's own, chosen here

# The text is read event by event.  Depth and number of values are counted before anything is made of them, and what a
# reference repeats counts again.  Merge keys, dates and numbers to the base 60 are texts: no writer of ours makes them.

try:
    from yaml import CSafeDumper as SafeDumper
    from yaml import CSafeLoader as SafeLoader
except ImportError:  # PyYAML may be built without its fast reader
    from yaml import SafeLoader  # type: ignore[assignment]


DEEPEST = 64
MOST_VALUES = 500_000
"""Most values of a text, those that references repeat included; they are read in some seconds."""
CORE = "tag:yaml.org,2002:"
WORDS = {"true": True, "false": False, "null": None, "~": None, "": None}
WORDS |= {form: value for word, value in WORDS.items() for form in (word.title(), word.upper())}
INTEGER = re.compile(r"[-+]?(?:0|[1-9][0-9]{0,19})")
FLOAT = re.compile(r"[-+]?(?:[0-9]+\.[0-9]*|\.[0-9]+)(?:[eE][-+][0-9]+)?|([-+]?\.inf|\.nan)", re.IGNORECASE)

Tagged = Callable[[str, Any], Any]


class YamlError(ValueError):
    """The text is not YAML, or not of the types that are read."""


def read_yaml(text: str | bytes, tagged: Tagged = lambda _tag, value: value) -> Any:
    """Return the value of a text of one document; `YamlError` where it is not YAML, too deep or too long.

    `tagged` makes a value of a tag, and of the text, list or mapping that is tagged.  By default tags are ignored.
    """
    try:
        events = iter(yaml.parse(text, Loader=SafeLoader))
        documents = [_node(e, events, {}, tagged)[0] for e in events if isinstance(e, yaml.NodeEvent)]
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise YamlError(" ".join(str(error).split())) from None
    if len(documents) != 1:
        raise YamlError(f"it holds {len(documents)} documents, expected one")
    return documents[0]


def _node(
    event: Any,
    events: Iterator[yaml.Event],
    known: dict[str, tuple[Any, int]],
    tagged: Tagged,
    depth: int = 0,
) -> tuple[Any, int]:
    """Return the value that begins with an event, and of how many values it is; those with anchors become `known`."""
    if isinstance(event, yaml.AliasEvent):
        if event.anchor not in known:
            raise YamlError(f"it refers to '{event.anchor:.40}', which is not complete before")
        return known[event.anchor]
    if isinstance(event, yaml.ScalarEvent):
        found = _of_tag(event.tag, _scalar(event), event.value, tagged), 1
    else:
        if depth == DEEPEST:
            raise YamlError(f"it is more than {DEEPEST} levels deep")
        values, size = [], 1
        while isinstance(part := next(events), yaml.NodeEvent):
            value, more = _node(part, events, known, tagged, depth + 1)
            values.append(value)
            size += more
            if size > MOST_VALUES:
                raise YamlError(f"it holds more than {MOST_VALUES:,} values")
        made: Any = values
        if isinstance(event, yaml.MappingStartEvent):
            try:
                made = dict(zip(values[::2], values[1::2], strict=True))
            except TypeError:
                raise YamlError("a key is a list or a mapping, expected a text") from None
        found = _of_tag(event.tag, made, made, tagged), size
    if event.anchor:
        known[event.anchor] = found
    return found


def _of_tag(tag: str | None, value: Any, written: Any, tagged: Tagged) -> Any:
    """Return the value of a tag; `value` is what it would be without one, `written` the text of a scalar."""
    if tag is None:
        return value
    if tag in ("!", CORE + "str"):
        return written
    if tag in (CORE + "omap", CORE + "pairs") and isinstance(value, list):
        return [pair for part in value if isinstance(part, dict) for pair in part.items()]
    return value if tag.startswith(CORE) and ":python/" not in tag else tagged(tag, value)


def _scalar(event: yaml.ScalarEvent) -> Any:
    text: str = event.value
    if event.style:  # in quotation marks
        return text
    if text in WORDS:
        return WORDS[text]
    if INTEGER.fullmatch(text):
        return int(text)
    match = FLOAT.fullmatch(text)
    return text if match is None else float(text.replace(".", "", 1) if match[1] else text)


# Masks that astropy writes to Parquet: not as nulls, but as columns of truth values beside those that they mask.  A
# masked element is not a value, whatever its content; the columns of masks stay columns like others.

SERIALIZED = "__serialized_columns__"
"""Key of `meta` under which astropy says how columns are made of those that are stored."""


@lru_cache(maxsize=64)
def masks_of(text: str) -> Mapping[str, str]:
    """Return, from astropy's YAML of a table, the columns that have masks, and the columns that these are."""
    if SERIALIZED not in text or "mask:" not in text:
        return {}
    try:
        items = read_items(text)
    except EcsvHeaderError:
        return {}
    return {data: mask for key, value, _ in items if key == SERIALIZED for data, mask in pairs_in(value)}


def pairs_in(serialized: Any, seen: set[int] | None = None) -> Iterator[tuple[str, str]]:
    """Yield the names of data and their masks, however deep in what a column is made of.

    A mapping that is `seen` is not looked into again: YAML can hold a mapping many times, and in itself.
    """
    seen = set() if seen is None else seen
    if not isinstance(serialized, dict) or id(serialized) in seen:
        return
    seen.add(id(serialized))
    data, mask = (serialized.get(key) for key in ("data", "mask"))
    if isinstance(data, dict) and isinstance(mask, dict) and {"name"} == data.keys() == mask.keys():
        yield str(data["name"]), str(mask["name"])
    for part in serialized.values():
        yield from pairs_in(part, seen)


def masked(array: pa.Array, mask: pa.Array) -> pa.Array:
    """Return values with nulls where the mask is true; vectors element by element."""
    if pt.is_fixed_size_list(array.type) and pt.is_fixed_size_list(mask.type):
        values = masked(array.flatten(), mask.flatten())
        return pa.FixedSizeListArray.from_arrays(values, type=array.type)
    if not pt.is_boolean(mask.type) or len(mask) != len(array):
        return array
    return pc.if_else(mask.fill_null(False), pa.scalar(None, array.type), array)  # noqa: FBT003 -- the value


# From the arrays of astropy's tables to Arrow: masks become nulls, vectors lists of one length.


def arrow_array(values: Array) -> pa.Array:
    """Return an array as Arrow: (n,) as values, (n, k) as lists of k, objects as text or lists."""
    if values.dtype.kind == "c":
        parts = np.stack([np.ma.getdata(values).real, np.ma.getdata(values).imag], axis=-1)
        mask = np.stack([np.ma.getmaskarray(values)] * 2, axis=-1)
        return arrow_array(np.ma.MaskedArray(parts, mask))
    if values.ndim > 1:
        inner = arrow_array(values.reshape(-1, *values.shape[2:]))
        return pa.FixedSizeListArray.from_arrays(inner, values.shape[1])
    mask = np.ma.getmaskarray(values)
    data = np.ma.getdata(values)
    if data.dtype.kind == "O":
        return objects(data, mask)
    if data.dtype.kind == "S":
        return objects(data.astype(object), mask)  # as texts of one width they would take four times the room
    if data.dtype.kind in "UT":
        return pa.array(data.astype(object), pa.string(), mask=mask)
    wide = data.dtype.kind == "f" and data.dtype.itemsize > 8  # Arrow has no longer floats than these
    native = data.astype(np.float64 if wide else data.dtype.newbyteorder("="), copy=False)
    return pa.array(native, mask=mask if mask.any() else None)


def objects(data: Array, mask: Array) -> pa.Array:
    """Return texts, arrays of their own lengths, or whatever else is of one kind: numbers, structures, dates."""
    plain = [None if gone or v is None else v for v, gone in zip(data.tolist(), mask.tolist(), strict=True)]
    if all(v is None or isinstance(v, str | bytes) for v in plain):
        texts = (v.decode("utf-8", "replace") if isinstance(v, bytes) else v for v in plain)
        return pa.array(texts, pa.string())
    if any(isinstance(v, list | tuple | np.ndarray) for v in plain):
        return pa.array([None if v is None else arrow_array(np.ma.atleast_1d(v)).to_pylist() for v in plain])
    return pa.array(plain)


def change(values: Array) -> str | None:
    """Return in words how `arrow_array` changes values of a type that Arrow lacks; None where it changes nothing."""
    data = np.ma.getdata(values)
    unmasked = data[~np.ma.getmaskarray(values)].tolist() if data.dtype.kind in "OS" else ()
    if data.dtype.kind == "c" or any(np.iscomplexobj(v) for v in unmasked):
        return "each complex number becomes a pair of its real and imaginary parts"
    if data.dtype.kind == "f" and data.dtype.itemsize > 8:
        return f"{data.dtype} is rounded to float64"
    if any(isinstance(v, bytes) and not is_utf8(v) for v in unmasked):
        return "bytes that are not UTF-8 become the replacement character, U+FFFD"
    return None


def is_utf8(text: bytes) -> bool:
    """Say whether bytes are text."""
    try:
        text.decode("utf-8")
    except UnicodeDecodeError:
        return False
    return True


# The YAML header that astropy gives ECSV files, and Parquet files as `table_meta_yaml`.  Read with plain values only:
# what YAML tags as some other object is taken as the text or mapping that it is written as.  Additions are put into
# the text, so that all else in it stays as it was. https://github.com/astropy/astropy-APEs/blob/main/APE6.rst

ASTROPY = "table_meta_yaml"
ASTROPY_LENGTH = "table::len::"


META = "meta: !!omap"


UNREADABLE = (KeyError, TypeError, AttributeError, ValueError, OverflowError)
"""What reading a text that is no header meets."""


class EcsvHeaderError(ValueError):
    """The text is no header that can be read."""


SUBTYPE = re.compile(r"(\w+)\[([0-9,]+)\]")
Item = tuple[str, Any, tuple[str, ...]]
"""A key of the table's metadata, its value without objects, and the lines that say both; none in one long line."""


def read_columns(text: str) -> tuple[Column, ...]:
    """Return the columns that a header describes; fixed vectors, which are written as JSON, have their shape."""
    try:
        return tuple(map(described, read_yaml(text)["datatype"]))
    except UNREADABLE as error:
        raise EcsvHeaderError(f"no header in YAML: {error}") from None


def described(entry: Mapping[str, Any]) -> Column:
    """Return a column as its entry describes it."""
    meta = dict(entry.get("meta") or {})  # an ordered mapping arrives as pairs
    known = (entry.get("unit"), meta.get("ucd", meta.get("UCD")), entry.get("description"))
    match = SUBTYPE.fullmatch(str(entry.get("subtype") or ""))
    shape = tuple(int(n) for n in match[2].split(",")) if match else ()
    datatype = arrow_type(match[1] if match else str(entry["datatype"]))
    for size in reversed(shape):
        datatype = pa.list_(datatype, size)
    unit, ucd, description = (str(value) if value else None for value in known)
    return Column(str(entry["name"]), datatype, unit, ucd, description, shape=shape)


def has_formats(text: str) -> tuple[list[str], bool]:
    """Return which columns of a header have a display format; whether any has metadata beside its UCD."""
    entries = read_yaml(text)["datatype"]
    formats = [str(e["name"]) for e in entries if e.get("format")]
    return formats, any(dict(e.get("meta") or {}).keys() - {"ucd", "UCD"} for e in entries)


def arrow_type(name: str) -> pa.DataType:
    """Return the Arrow type of ECSV's name of a type, or of NumPy's; text for what is no number."""
    if name in {"string", "float128", "complex256"}:  # which not every computer has
        return pa.float64() if name == "float128" else pa.string()
    try:
        datatype = np.dtype(name)
    except TypeError:
        raise EcsvHeaderError(
            f"got the datatype '{name}', expected one as int32, float64, bool or string"
        ) from None
    return pa.from_numpy_dtype(datatype) if datatype.kind in "biuf" else pa.string()


def read_items(text: str) -> list[Item]:
    """Return the table's metadata, key by key; their lines too, where it is the ordered mapping that astropy writes."""
    try:
        meta = read_yaml(text).get("meta") or {}
        pairs = [(str(key), value) for key, value in dict(meta).items()]
    except UNREADABLE as error:
        raise EcsvHeaderError(f"no header in YAML: {error}") from None
    lines = text.split("\n")
    blocks: list[list[str]] = []
    for line in lines[lines.index(META) + 1 :] if META in lines else []:
        if line.startswith("- "):
            blocks.append([])
        elif not blocks or not line.startswith(" "):
            break
        blocks[-1].append(line)
    if len(blocks) != len(pairs):
        return [(key, value, ()) for key, value in pairs]
    return [(*pair, tuple(block)) for pair, block in zip(pairs, blocks, strict=True)]


def with_items(text: str, items: Sequence[Item]) -> str:
    """Return a header of the columns in `text` and of these items."""
    lines = text.split("\n")
    end = next((i for i, line in enumerate(lines) if i and not line.startswith(("-", " "))), len(lines))
    return "\n".join([*lines[:end], META, *(line for _, _, of_item in items for line in of_item)])


def add_entries(text: str, new: Sequence[str]) -> str:
    """Return the header with lines added behind the last column's."""
    lines = text.split("\n")
    _, end = _columns_in(lines)
    return "\n".join([*lines[:end], *new, *lines[end:]])


def remove_entries(text: str, names: Collection[str]) -> str:
    """Return the header without the columns of those names."""
    lines = text.split("\n")
    first, end = _columns_in(lines)
    kept = lines[:first]
    starts = [i for i in range(first, end) if lines[i].startswith("- ")]
    for item in (lines[i:j] for i, j in pairwise([*starts, end])):
        (read,) = read_columns("\n".join(["datatype:", *item]))
        kept += [] if read.name in names else item
    return "\n".join([*kept, *lines[end:]])


def _columns_in(lines: Sequence[str]) -> tuple[int, int]:
    """Return where in a header the columns begin and end."""
    if "datatype:" not in lines:
        raise EcsvHeaderError("no 'datatype:' in the header")
    first = lines.index("datatype:") + 1
    others = (i for i in range(first, len(lines)) if not lines[i].startswith(("-", " ")))
    return first, next(others, len(lines))


def entry_line(column: Column | NewColumn) -> str:
    """Return a column as one line of YAML, for JSON's quotes are YAML's too."""
    parts = {"name": column.name, "unit": column.unit, "datatype": ecsv_type(column.datatype)}
    parts |= {"description": column.description}
    text = ", ".join(f"{key}: {json.dumps(value)}" for key, value in parts.items() if value)
    return f"- {{{text}, meta: {{ucd: {json.dumps(column.ucd)}}}}}" if column.ucd else f"- {{{text}}}"


def ecsv_type(datatype: pa.DataType) -> str:
    """Return the header's name of a type; text for what it does not know."""
    while pt.is_fixed_size_list(datatype) or pt.is_list(datatype) or pt.is_dictionary(datatype):
        datatype = datatype.value_type
    if pt.is_boolean(datatype):
        return "bool"
    numeric = pt.is_integer(datatype) or pt.is_floating(datatype)
    return np.dtype(datatype.to_pandas_dtype()).name if numeric else "string"
