"""docs/columns.felis.yaml and docs/columns.md say what catalogs/catalog/new_columns.py makes."""

import re
from pathlib import Path

import yaml
from astropy.io.votable.ucd import check_ucd

from catalogs.catalog.new_columns import CREDIBLE, standard_columns
from tests.catalogs.felis import EXAMPLES, PAGE, page, schema

COLUMNS = Path(__file__).parents[3] / "docs" / "columns.md"


def test_the_schema_is_that_of_the_code() -> None:
    text = PAGE.read_text(encoding="utf-8")
    assert text == page(), "docs/columns.felis.yaml is stale; run `python -m tests.catalogs.felis`"
    assert yaml.safe_load(text) == schema()
    for column in (c for t in schema()["tables"] for c in t["columns"]):
        assert column["description"]
        assert check_ucd(column["ivoa:ucd"], check_controlled_vocabulary=True)


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
