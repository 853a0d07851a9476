"""The FIELDs of a data-less VOTable, which VOParquet files carry as metadata: read, written, added to.

Additions are put into the text behind the last FIELD, so that all else in it stays as it was.
https://www.ivoa.net/documents/VOTable/20250116/
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Any
from xml.parsers import expat
from xml.sax.saxutils import escape, quoteattr

import pyarrow as pa
import pyarrow.types as pt

from catalogs.catalog.catalog import Column
from catalogs.catalog.new_columns import NewColumn

NAMESPACE = "http://www.ivoa.net/xml/VOTable/v1.3"


class VOTableError(ValueError):
    """The text is no VOTable that can be read."""


ATTRIBUTES = ("name", "datatype", "arraysize", "unit", "ucd")
Field = dict[str, str]
"""What is stated of a FIELD: some of its attributes, `null` and `description`; always a name."""


def field_xml(column: Column | NewColumn, width: str, prefix: str = "") -> str:
    """Return a column as a FIELD; text of a known width says so, since astropy's reader asks for it."""
    kind, size = field_type(column.datatype)
    size = width if size == "*" and width else size
    values = (column.name, kind, size, column.unit, column.ucd)
    stated = [(k, v or "") for k, v in zip(ATTRIBUTES, values, strict=True) if v or k == "name"]
    attributes = " ".join(f"{k}={quoteattr(v)}" for k, v in stated)
    inside = ""
    if column.description:
        inside = f"<{prefix}DESCRIPTION>{escape(column.description)}</{prefix}DESCRIPTION>"
    if isinstance(column, Column) and column.null is not None:
        inside += f'<{prefix}VALUES null="{column.null}"/>'
    return f"<{prefix}FIELD {attributes}>{inside}</{prefix}FIELD>"


def read_fields(xml: str) -> list[Field]:
    """Return the fields of the first table, in order."""
    return Reader(xml).fields


def add_fields(xml: str, new: Iterable[NewColumn]) -> str:
    """Return the text with fields added behind the last one of its first table."""
    reader = Reader(xml)
    if not reader.places:
        raise VOTableError("the VOTable has no FIELD")
    data, end = xml.encode(), reader.places[-1][1]
    added = "".join("\n" + field_xml(c, str(c.width or ""), reader.prefix) for c in new)
    return (data[:end] + added.encode() + data[end:]).decode()


def remove_fields(xml: str, names: Collection[str]) -> str:
    """Return the text without the fields of those names in its first table."""
    reader = Reader(xml)
    data = xml.encode()
    for field, (start, end) in zip(reversed(reader.fields), reversed(reader.places), strict=True):
        if field["name"] in names:
            data = data[:start].rstrip() + data[end:]
    return data.decode()


def new_votable(fields: Iterable[str]) -> str:
    """Return a VOTable of one table without data, of those FIELDs."""
    body = "\n".join(fields)
    return (
        f'<?xml version="1.0" encoding="UTF-8"?>\n<VOTABLE version="1.4" xmlns="{NAMESPACE}">\n'
        f'<RESOURCE type="results">\n<TABLE>\n{body}\n</TABLE>\n</RESOURCE>\n</VOTABLE>\n'
    )


class Reader:
    """Reads the first TABLE of a VOTable: its fields, and where the last of them ends."""

    def __init__(self, xml: str) -> None:
        self.fields: list[Field] = []
        self.places: list[tuple[int, int]] = []
        self.began = 0
        self.prefix = ""
        self.words: list[str] = []
        self.path: list[str] = []
        self.tables = 0
        self.closing = False
        self.parser = expat.ParserCreate("utf-8")
        self.parser.StartElementHandler = self.start
        self.parser.EndElementHandler = self.finish
        self.parser.CharacterDataHandler = self.text
        self.parser.DefaultHandler = lambda _: self.note_end()
        self.parser.StartDoctypeDeclHandler = self.refuse_doctype
        try:
            self.parser.Parse(xml.encode(), True)  # noqa: FBT003 -- expat takes no keyword
        except expat.ExpatError as error:
            raise VOTableError(f"no well-formed XML: {error}") from None

    @property
    def inside(self) -> bool:
        """Whether the place is in a FIELD of the first table."""
        return self.tables == 1 and "FIELD" in self.path

    def note_end(self) -> None:
        """Take the place as the end of a FIELD, if it is the first behind one."""
        if self.closing:
            self.places.append((self.began, self.parser.CurrentByteIndex))
            self.closing = False

    def start(self, tag: str, attributes: dict[str, Any]) -> None:
        """Begin an element."""
        self.note_end()
        prefix, _, local = tag.rpartition(":")
        self.path.append(local)
        self.tables += local == "TABLE"
        if self.tables == 1 and self.path[-2:] == ["TABLE", "FIELD"]:
            self.prefix = f"{prefix}:" if prefix else ""
            self.began = self.parser.CurrentByteIndex
            known = {k: v for k, v in attributes.items() if k in ATTRIBUTES}
            self.fields.append({"name": attributes.get("ID", ""), **known})
        elif self.inside and local == "VALUES" and "null" in attributes:
            self.fields[-1]["null"] = attributes["null"]

    def finish(self, _tag: str) -> None:
        """End an element."""
        self.note_end()
        if self.inside and self.path[-1] == "DESCRIPTION":
            self.fields[-1]["description"] = self.fields[-1].get("description", "") + "".join(self.words)
            self.words = []
        local = self.path.pop()
        self.closing = self.tables == 1 and local == "FIELD" and self.path[-1:] == ["TABLE"]
        # A second table may stand behind the first: its fields are not ours.
        self.tables += local == "TABLE"

    def text(self, data: str) -> None:
        """Take the text of a description."""
        self.note_end()
        if self.inside and self.path[-1] == "DESCRIPTION":
            self.words.append(data)

    def refuse_doctype(self, *_: object) -> None:
        """Refuse a document type: entities could grow without bound."""
        raise VOTableError("the VOTable has a DOCTYPE, which none needs")


KINDS = (
    (pt.is_boolean, "boolean"),
    (pt.is_uint8, "unsignedByte"),
    (lambda t: pt.is_int8(t) or pt.is_int16(t), "short"),
    (lambda t: pt.is_int32(t) or pt.is_uint16(t), "int"),
    (pt.is_integer, "long"),
    (lambda t: pt.is_float16(t) or pt.is_float32(t), "float"),
    (lambda t: pt.is_float64(t) or pt.is_decimal(t), "double"),
)


def field_type(datatype: pa.DataType) -> tuple[str, str]:
    """Return the VOTable's datatype and arraysize for an Arrow type; text for what it does not know."""
    if pt.is_fixed_size_list(datatype):
        inner, size = field_type(datatype.value_type)
        return inner, f"{size}x{datatype.list_size}" if size else str(datatype.list_size)
    if pt.is_list(datatype) or pt.is_large_list(datatype):
        inner, size = field_type(datatype.value_type)
        return inner, f"{size}x*" if size and "*" not in size else "*"
    if pt.is_dictionary(datatype):
        return field_type(datatype.value_type)
    return next(((name, "") for is_kind, name in KINDS if is_kind(datatype)), ("unicodeChar", "*"))
