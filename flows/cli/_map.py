"""`blr map`."""

from __future__ import annotations

from flows.classification import sky_maps
from flows.classification.map_results import MappedFraction, MapResult
from flows.classification.request import MapRequest
from flows.cli._options import WriteOptions
from flows.cli._printing import plain_table, print_tables, say, show

__all__ = ["run_map"]

COLUMNS = ("objects", "k of n", "by the classifier", "by the labels", "95 % interval")


def run_map(request: MapRequest, options: WriteOptions) -> None:
    """Map, and show what was found."""
    show(sky_maps.make_map(request, dry_run=options.dry_run), show_map, json=options.json)


def show_map(result: MapResult) -> None:
    """Show the fraction of all and by bins, and where the maps are."""
    title = f"{result.what.capitalize()} of {result.class_name}"
    print_tables(plain_table(title, COLUMNS, [_cells(result.whole)]))
    for quantity in result.over:
        unit = f", {quantity.unit}" if quantity.unit else ""
        rows = [(f"{part.start:.4g}", f"{part.stop:.4g}", *_cells(part)) for part in quantity.bins]
        print_tables(plain_table(f"{title} over {quantity.expression}{unit}", ("from", "to", *COLUMNS), rows))
    for remark in result.remarks:
        say(remark[:1].upper() + remark[1:])
    files = ", ".join(str(path) for path in result.files) or "nothing written"
    say(f"{result.cells:,} pixels of order {result.order}: {files}")


def _cells(part: MappedFraction) -> tuple[str, ...]:
    interval = "–" if part.low is None or part.high is None else f"{part.low:.3f} to {part.high:.3f}"
    return (
        f"{part.objects:,.0f}",
        f"{part.k:,} of {part.n:,}",
        _share(part.expected),
        _share(part.fraction),
        interval,
    )


def _share(value: float | None) -> str:
    return "–" if value is None else f"{value:.3f}"
