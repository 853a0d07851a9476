"""FIELDs in the text of a VOTable: read, added and nothing else touched."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from catalogs.catalog.catalog import Column
from catalogs.catalog.new_columns import NewColumn
from catalogs.metadata.votable_fields import (
    VOTableError,
    changed_fields,
    field_type,
    field_xml,
    new_votable,
    read_fields,
)

texts = st.text(st.characters(codec="utf-8", exclude_categories=["Cc", "Cs", "Cn"]), max_size=8)


@given(st.lists(st.tuples(texts, texts, texts, texts, st.none() | st.integers()), max_size=4))
def test_what_is_written_is_read(fields: Any) -> None:
    """Any characters in names, units and descriptions come back."""
    columns = [Column(name, pa.int64(), unit, ucd, about, null) for name, unit, ucd, about, null in fields]
    fields = read_fields(new_votable([field_xml(c, "") for c in columns]))
    for column, read in zip(columns, fields, strict=True):
        known = {"name": column.name, "datatype": "long", "unit": column.unit, "ucd": column.ucd}
        known |= {"description": column.description, "null": "" if column.null is None else str(column.null)}
        assert read == {key: value for key, value in known.items() if value or key == "name"}


@pytest.mark.parametrize("xml", ["", "<a", "<a></b>", "<!DOCTYPE a><a/>", "<VOTABLE/>"])
def test_what_is_no_table_cannot_be_added_to(xml: str) -> None:
    with pytest.raises(VOTableError):
        changed_fields(xml, [NewColumn("b", pa.float32())], ())


def test_characters_that_xml_has_not_are_blanks() -> None:
    (field,) = read_fields(new_votable([field_xml(Column("a\0b", pa.float64(), description="\x1b[1m"), "")]))
    assert (field["name"], field["description"]) == ("a b", " [1m")


def test_entities_are_not_expanded() -> None:
    """A document type, in which text can be made to grow without bound, is refused."""
    bomb = '<!DOCTYPE a [<!ENTITY b "bbbb"><!ENTITY c "&b;&b;">]><VOTABLE>&c;</VOTABLE>'
    with pytest.raises(VOTableError, match="DOCTYPE"):
        read_fields(bomb)


def test_a_description_of_any_length_is_read_in_time() -> None:
    """Line by line, each put behind all before it, this took minutes."""
    told = "a line & another\n" * 200_000
    (field,) = read_fields(new_votable([field_xml(Column("ra", pa.float64(), description=told), "")]))
    assert field["description"] == told


TYPES = {
    "int32": ("int", ""),
    "uint16": ("int", ""),
    "int8": ("short", ""),
    "uint8": ("unsignedByte", ""),
    "uint64": ("long", ""),
    "bool": ("boolean", ""),
    "float16": ("float", ""),
    "string": ("unicodeChar", "*"),
    "date32": ("unicodeChar", "*"),
}


@pytest.mark.parametrize("name", TYPES)
def test_types(name: str) -> None:
    assert field_type(pa.type_for_alias(name)) == TYPES[name]


def test_types_of_arrays() -> None:
    """VOTable counts the fastest index first."""
    matrix = pa.list_(pa.list_(pa.float32(), 3), 2)
    assert field_type(matrix) == ("float", "3x2")
    assert field_type(pa.list_(pa.int64())) == ("long", "*")
    assert field_type(pa.dictionary(pa.int8(), pa.string())) == ("unicodeChar", "*")
    assert field_type(pa.decimal128(9, 2)) == ("double", "")
