"""The contract with users: names, types, UCDs of the new columns."""

import pyarrow as pa
import pytest

from catalogs.catalog.new_columns import NewColumn, check_names, safe_name, standard_columns
from catalogs.errors import CatalogError, NameClashError

TWO = standard_columns(["early", "late"])
THREE = standard_columns(["E", "E-S0", "Sbc?"], prefix="gz_")


def test_two_classes_have_the_columns_of_the_contract() -> None:
    assert [(c.name, str(c.datatype), c.ucd) for c in TWO] == [
        ("blr_class", "string", "src.class"),
        ("blr_p_early", "float", "stat.probability;src.class"),
        ("blr_p_late", "float", "stat.probability;src.class"),
        ("blr_p_max", "float", "stat.probability"),
        ("blr_logit_mean", "float", "stat.value"),
        ("blr_logit_std", "float", "stat.stdev"),
        ("blr_mutual_info", "float", "stat.value"),
        ("blr_flags", "int32", "meta.code.qual;src.class"),
        ("blr_model", "int64", "meta.version"),
    ]


def test_three_classes_have_no_logit_mean_and_safe_names() -> None:
    assert [c.name for c in THREE] == [
        "gz_class",
        "gz_p_E",
        "gz_p_E_S0",
        "gz_p_Sbc_",
        "gz_p_max",
        "gz_logit_std",
        "gz_mutual_info",
        "gz_flags",
        "gz_model",
    ]


def test_the_class_column_is_as_wide_as_the_longest_class_in_bytes() -> None:
    assert standard_columns(["E", "élliptique"])[0].width == 11


@pytest.mark.parametrize(
    ("classes", "message"),
    [
        (["S0", "s0"], "class 's0' would clash with class 'S0'"),
        (["S0/a", "S0-a"], "class 'S0-a' would clash with class 'S0/a'"),
        (["E", "E"], "class 'E' would clash with class 'E'"),
        (["min", "Max"], r"class 'Max' would clash with the column 'blr_p_max' \(the largest"),
    ],
)
def test_classes_of_the_same_column_are_named_with_the_remedy(classes: list[str], message: str) -> None:
    with pytest.raises(NameClashError, match=message + ".*rename the class"):
        standard_columns(classes)


def test_one_class_is_not_a_classification() -> None:
    with pytest.raises(CatalogError, match="two or more"):
        standard_columns(["all"])


@pytest.mark.parametrize("prefix", ["", "9_", "my blr_", "blr-"])
def test_a_prefix_begins_a_column_name(prefix: str) -> None:
    with pytest.raises(CatalogError, match="prefix"):
        standard_columns(["a", "b"], prefix=prefix)


@pytest.mark.parametrize(
    ("text", "safe"),
    [("early", "early"), ("E-S0", "E_S0"), ("BL Lac", "BL_Lac"), ("élan", "elan"), ("?", "_"), ("星", "_")],
)
def test_safe_names(text: str, safe: str) -> None:
    assert safe_name(text) == safe


def test_new_names_clash_with_old_ones_in_any_case() -> None:
    with pytest.raises(NameClashError, match="has a column 'BLR_Class' already"):
        check_names(["ra", "BLR_Class"], TWO)
    with pytest.raises(NameClashError, match="two new columns are called 'A'"):
        check_names([], [NewColumn("a", pa.int32()), NewColumn("A", pa.int32())])
    check_names(["ra", "blr_classes"], TWO)
