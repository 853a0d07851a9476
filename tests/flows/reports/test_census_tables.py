"""The tables of a census."""

from __future__ import annotations

from blr.census.results import Census, ClassCensus, SelectionCensus
from flows.reports.counts import selection_table


def test_no_purity_is_shown_where_no_labelled_object_tells_of_it() -> None:
    of_class = {"count": 10.0, "low": 5.0, "high": 15.0, "source": "model", "assumes": "shares", "reason": ""}
    kept = {"completeness": 0.4, "completeness_low": 0.3, "completeness_high": 0.5}
    told = SelectionCensus(threshold=0.5, objects=20, purity=0.8, purity_low=0.7, purity_high=0.9, **kept)
    untold = SelectionCensus(
        threshold=0.9, objects=9, purity=0.5, purity_low=0.002, purity_high=0.999, **kept
    )
    census = Census(
        n_rows=50, level=0.95, classes={"yes": ClassCensus(**of_class, selections=(told, untold))}
    )
    first, second = selection_table(census).rows
    assert first[3:5] == ("80.0%", "70.0% to 90.0%")
    assert second[3:5] == ("–", "0.2% to 99.9%")
