"""Tables in memory get new columns and stay what they are: every kind of column, and all that is beside them."""

import copy
from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from astropy import units as u
from astropy.coordinates import SkyCoord
from astropy.table import MaskedColumn, QTable, Table

import catalogs
from catalogs.catalog.new_columns import NewColumn, Provenance, standard_columns
from catalogs.errors import ColumnNotFoundError, FormatError, NameClashError
from tests.catalogs.memory_samples import ASTROPY, BIG, PANDAS, N
from tests.catalogs.memory_trips import NEW, compute, first_name

PROVENANCE = Provenance({"model": "m@1"}, {0: ("LOW_CONFIDENCE", "near one half")})


@pytest.mark.parametrize("label", ASTROPY)
def test_an_astropy_table_keeps_all_it_has(label: str) -> None:
    table = ASTROPY[label]
    before = copy.deepcopy(table.meta)
    new = catalogs.annotate_table(table, NEW, compute, read=["row"], provenance=PROVENANCE)
    assert type(new) is type(table)
    assert new.colnames == [*table.colnames, "blr_p", "blr_class"]
    assert [getattr(new[n], "fill_value", None) for n in table.colnames] == [
        getattr(table[n], "fill_value", None) for n in table.colnames
    ]
    history = new.meta["HISTORY"][len(before.get("HISTORY", ())) :]
    assert history[0] == "blr model = m@1"
    assert history[-1] == "blr flag bit 0 (1) LOW_CONFIDENCE: near one half"
    rest = {**new.meta, "HISTORY": before.get("HISTORY")}
    assert repr({k: v for k, v in rest.items() if v is not None}) == repr(dict(before))
    assert repr(table.meta) == repr(before), "the table itself stays as it is"
    assert (new.primary_key, len(new.indices)) == (table.primary_key, len(table.indices))
    assert new.groups.indices.tolist() == table.groups.indices.tolist()
    assert new["blr_p"].info.meta == {"ucd": "stat.probability"}
    assert new["blr_p"].info.description == "a share"
    assert new["blr_p"].tolist() == table["row"].tolist()


@pytest.mark.parametrize("label", PANDAS)
def test_a_frame_keeps_all_it_has(label: str) -> None:
    frame = PANDAS[label]
    before = frame.copy()
    new = catalogs.annotate_table(frame, NEW, compute, read=[first_name(frame)], provenance=PROVENANCE)
    kept = new.iloc[:, : frame.shape[1]]
    pd.testing.assert_frame_equal(kept, frame, check_freq=True)
    pd.testing.assert_frame_equal(before, frame)
    added = [name[0] if isinstance(name, tuple) else name for name in new.columns[frame.shape[1] :]]
    assert added == ["blr_p", "blr_class"]
    assert new.dtypes.iloc[-2:].tolist() == [np.dtype(np.float32), pd.StringDtype(na_value=np.nan)]
    ours = {k: new.attrs.pop(k) for k in [*new.attrs] if str(k).startswith("blr.")}
    assert ours["blr.model"] == "m@1"
    assert repr(new.attrs) == repr(frame.attrs)


def test_columns_of_one_name_stay_where_they_are_not_read() -> None:
    frame = pd.DataFrame([[1, 2, 3]] * N, columns=["a", "row", "a"])
    new = catalogs.annotate_table(frame, NEW, compute, read=["row"])
    assert list(new.columns) == ["a", "row", "a", "blr_p", "blr_class"]
    assert new["a"].to_numpy().tolist() == [[1, 3]] * N
    with pytest.raises(FormatError, match=r"several columns called \['a'\]"):
        catalogs.open(frame)


def test_what_is_read_is_what_a_catalogue_has() -> None:
    """Masks are nulls, coordinates their parts, the index is a column; in batches, whatever their number of threads."""
    table = QTable(
        {
            "mag": MaskedColumn([BIG, 2, 3], mask=[0, 1, 0]),
            "sky": SkyCoord([1, 2, 3] * u.deg, [4, 5, 6] * u.deg),
            "kind": ["a", "b", "c"],
        }
    )
    seen: list[dict[str, Any]] = []

    def look(batch: pa.RecordBatch) -> Mapping[str, Any]:
        seen.extend(batch.to_pylist())
        return compute(batch)

    for rows, threads in ((2, 1), (1, 3), (100, 1)):
        seen.clear()
        read = ["sky.ra", "mag", "kind"]
        new = catalogs.annotate_table(table, NEW, look, read=read, rows=rows, threads=threads)
        twin = pa.Table.from_batches(catalogs.open(table).batches(["sky.ra", "mag", "kind"])).to_pylist()
        assert sorted(seen, key=lambda row: row["sky.ra"]) == twin
        assert new["blr_p"].tolist() == [1, 2, 3]
    frame = pd.DataFrame({"k": pd.Categorical(["x", "y"])}, index=pd.Index([7, 8], name="row"))
    seen.clear()
    catalogs.annotate_table(frame, NEW, look, read=["row", "k"])
    assert seen == [{"row": 7, "k": "x"}, {"row": 8, "k": "y"}]


KINDS = {
    "astropy": lambda: Table({"row": np.arange(N), "x": np.arange(N) / 2}),
    "pandas": lambda: pd.DataFrame({"row": np.arange(N), "x": np.arange(N) / 2}),
    "arrow": lambda: pa.table({"row": np.arange(N), "x": np.arange(N) / 2}),
}


@pytest.mark.parametrize("kind", KINDS)
def test_our_own_columns_are_replaced_and_users_keep_their_bits(kind: str) -> None:
    columns = standard_columns(["early", "late"])

    def scored(batch: pa.RecordBatch) -> Mapping[str, Any]:
        n = batch.num_rows
        return {
            c.name: np.full(n, "late")
            if c.datatype == pa.string()
            else np.ones(n, c.datatype.to_pandas_dtype())
            for c in columns
        }

    def annotated(table: Any, model: str) -> Any:
        provenance = Provenance({"model": model})
        return catalogs.annotate_table(table, columns, scored, read=["row"], provenance=provenance)

    first = annotated(KINDS[kind](), "m@1")
    if kind == "arrow":
        at = first.column_names.index("blr_flags")
        first = first.set_column(at, "blr_flags", pa.array(np.full(N, 1 << 16, np.int32)))
    else:
        first["blr_flags"] = np.full(N, 1 << 16, np.int32)
    again = annotated(first, "m@2")
    names = list(getattr(again, "column_names", None) or getattr(again, "colnames", None) or again.columns)
    assert names == ["row", "x", *(c.name for c in columns)]
    assert set(np.asarray(again["blr_flags"])) == {(1 << 16) + 1}
    told = catalogs.open(again).metadata
    assert told["blr.model"] == "m@2"
    mark = (NewColumn("mark", pa.float32()),)
    other = catalogs.annotate_table(
        again,
        mark,
        lambda batch: {"mark": compute(batch)["blr_p"]},
        read=["row"],
        provenance=Provenance({"model": "o@1"}),
    )
    told = catalogs.open(other).metadata
    assert (told["blr.model"], told["blr.previous.model"]) == ("o@1", "m@2")


def test_names_that_are_not_there_and_names_that_are_taken() -> None:
    for kind, table in KINDS.items():
        with pytest.raises(ColumnNotFoundError, match="has no column 'rows'; did you mean 'row'"):
            catalogs.annotate_table(table(), NEW, compute, read=["rows"])
        with pytest.raises(NameClashError, match="has a column 'x' already"):
            catalogs.annotate_table(table(), [NewColumn("X", pa.float32())], compute, read=["row"])
        assert kind
    with pytest.raises(FormatError, match="got list; expected"):
        catalogs.annotate_table([1], NEW, compute, read=["row"])
