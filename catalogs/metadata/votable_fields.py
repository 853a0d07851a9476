"""The FIELDs of a data-less VOTable, which VOParquet files carry as metadata: read, written, added to.

Additions are put behind the last FIELD; all else stays as it was.
https://www.ivoa.net/documents/VOTable/20250116/
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable
from typing import Any
from xml.dom.minidom import Node, parseString
from xml.parsers.expat import ExpatError
from xml.sax.saxutils import escape, quoteattr

import pyarrow as pa
import pyarrow.types as pt

from catalogs.catalog.catalog import Column
from catalogs.catalog.new_columns import NewColumn

NAMESPACE = "http://www.ivoa.net/xml/VOTable/v1.3"


class VOTableError(ValueError):
    """The text is no VOTable that can be read."""


NOT_XML = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\ufffe\uffff\ud800-\udfff]")
"""Characters that no XML may have."""
PLACE = "blr: new fields"
"""The comment in whose place new fields are put."""
TEXT_NODES = (Node.TEXT_NODE, Node.CDATA_SECTION_NODE)
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
    return NOT_XML.sub(" ", f"<{prefix}FIELD {attributes}>{inside}</{prefix}FIELD>")


def read_fields(xml: str) -> list[Field]:
    """Return the fields of the first table, in order."""
    return [stated(element) for element in field_elements(xml)[1]]


def changed_fields(xml: str, new: Iterable[NewColumn], dropped: Collection[str]) -> str:
    """Return the text with fields added behind the last one of its first table, and without those `dropped`."""
    document, elements = field_elements(xml)
    if not elements:
        raise VOTableError("the VOTable has no FIELD")
    table, last = elements[-1].parentNode, elements[-1]
    table.insertBefore(document.createComment(PLACE), last.nextSibling)
    for element in elements:
        if stated(element)["name"] in dropped:
            before = element.previousSibling
            if before is not None and before.nodeType == Node.TEXT_NODE:
                table.removeChild(before)  # the line end, so that each annotation writes the same
            table.removeChild(element)
    prefix = f"{last.prefix}:" if last.prefix else ""
    added = "".join("\n" + field_xml(c, str(c.width or ""), prefix) for c in new)
    return as_written(document.toxml().replace(f"<!--{PLACE}-->", added))


def as_written(xml: str) -> str:
    """Return a document spelt in one way, so that each annotation writes the same bytes."""
    text: bytes = field_elements(xml)[0].toxml("UTF-8")
    return text.decode()


def field_elements(xml: str) -> tuple[Any, list[Any]]:
    """Return the document, and the FIELDs of its first table; VOTableError where it cannot be read."""
    if "<!DOCTYPE" in xml:  # entities could grow without bound
        raise VOTableError("the VOTable has a DOCTYPE, which none needs")
    try:
        document = parseString(xml)  # noqa: S318 -- without a DOCTYPE there are no entities
    except (ExpatError, ValueError, RecursionError) as error:
        raise VOTableError(f"no well-formed XML: {error}") from None
    tables = document.getElementsByTagNameNS("*", "TABLE")[:1]
    return document, [node for table in tables for node in table.childNodes if node.localName == "FIELD"]


def stated(element: Any) -> Field:
    """Return what a FIELD states of its column: attributes, description, and the value that stands for null."""
    found = {"name": element.getAttribute("ID")}
    found |= {key: element.getAttribute(key) for key in ATTRIBUTES if element.hasAttribute(key)}
    for node in element.childNodes:
        if node.localName == "VALUES" and node.hasAttribute("null"):
            found["null"] = node.getAttribute("null")
        elif node.localName == "DESCRIPTION":
            found["description"] = "".join(t.data for t in node.childNodes if t.nodeType in TEXT_NODES)
    return found


def new_votable(fields: Iterable[str]) -> str:
    """Return a VOTable of one table without data, of those FIELDs."""
    body = "\n".join(fields)
    return as_written(
        f'<VOTABLE version="1.4" xmlns="{NAMESPACE}">\n'
        f'<RESOURCE type="results">\n<TABLE>\n{body}\n</TABLE>\n</RESOURCE>\n</VOTABLE>\n'
    )


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
