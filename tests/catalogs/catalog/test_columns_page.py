"""docs/columns.felis.yaml and docs/columns.md say what catalogs/catalog/new_columns.py makes."""

import re
from pathlib import Path

import pytest
import yaml
from astropy.io.votable.ucd import check_ucd

from catalogs.catalog.new_columns import CREDIBLE, standard_columns
from tests.catalogs.felis import DATATYPES, EXAMPLES, PAGE, page, schema

COLUMNS = Path(__file__).parents[3] / "docs" / "columns.md"


def test_the_schema_is_that_of_the_code() -> None:
    text = PAGE.read_text(encoding="utf-8")
    assert text == page(), "docs/columns.felis.yaml is stale; run `python -m tests.catalogs.felis`"
    assert yaml.safe_load(text) == schema()


@pytest.mark.parametrize("number", EXAMPLES)
@pytest.mark.parametrize("columns", ["standard", "full"])
def test_every_column_stands_in_the_schema(number: str, columns: str) -> None:
    """Name, type, UCD of the controlled vocabulary, description, and an id of its own."""
    tables = {t["name"]: t["columns"] for t in schema()["tables"]}
    found = tables[f"{columns}_{number}"]
    made = standard_columns(EXAMPLES[number], columns="full" if columns == "full" else "standard")
    assert [(f["name"], f["datatype"], f["ivoa:ucd"]) for f in found] == [
        (c.name, DATATYPES[c.datatype], c.ucd) for c in made
    ]
    assert all(f["description"] for f in found)
    assert len({f["@id"] for f in found}) == len(found)
    assert all(check_ucd(f["ivoa:ucd"], check_controlled_vocabulary=True) for f in found)


def test_the_full_columns_begin_with_the_standard_ones() -> None:
    for classes in EXAMPLES.values():
        standard, full = standard_columns(classes), standard_columns(classes, columns="full")
        assert full[: len(standard)] == standard


def test_the_page_describes_every_full_column() -> None:
    """With its UCD; class names stand in angle brackets."""
    text = COLUMNS.read_text(encoding="utf-8")
    rows = dict(re.findall(r"^\| `blr_(\S+)` \| float32 \| `(\S+)` \|", text, flags=re.MULTILINE))
    for classes in EXAMPLES.values():
        extra = standard_columns(classes, columns="full")[len(standard_columns(classes)) :]
        for column in extra:
            name = column.name.removeprefix("blr_")
            for c in classes:
                name = re.sub(rf"(?<=_){c}(?=$|__)", "<class>", name)
            assert rows[name] == column.ucd, column.name
    assert f"{100 * CREDIBLE:g} %" in text
