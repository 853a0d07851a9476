"""Maps over the sky of the fraction of a class, or of the contamination or completeness of a selection.

Two passes over the annotated copies: one for the pixels, the quantities' ranges and the objects whose class is known,
to which the fraction's model is fitted; and one for the sums by pixel and by bin.  Shapes: n rows, F quantities,
S draws.
"""

from __future__ import annotations

import math
import re
import shutil
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import get_args

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

import catalogs
from blr.arrays import Array, Floats, Mask, Places
from blr.census.counts import covariate_scales
from blr.census.fraction_map import (
    REGION_SCALES,
    FractionSums,
    Scales,
    design_matrix,
    drawn_fractions,
    fraction_prior,
    mixed_draws,
)
from blr.gaussian import GaussianPrior
from blr.posterior.laplace import fit
from blr.threads import single_threaded_blas
from catalogs.arrays import batch_values, floats, plain_texts
from catalogs.catalog.catalog import Catalog
from catalogs.catalog.new_columns import safe_name
from catalogs.errors import OutputExistsError, nearest
from catalogs.expressions.expression import Expression, parse
from catalogs.files import own_folder, scratch_folder
from catalogs.fits.healpix import Frame, HealpixMap, MapColumn, centres, read_healpix, write_healpix
from catalogs.formats import open_annotated
from catalogs.hats import write_hats
from catalogs.profile.split import healpix_pixels
from catalogs.sky.positions import PositionUnit, positions
from flows.documents import write_document
from flows.errors import UsageError
from flows.request import MapRequest
from flows.runs.manifest import Manifest, annotated_manifest
from flows.runs.references import check_inside, check_output
from flows.runs.release_store import output_folder
from flows.runs.results import MappedFraction, MappedQuantity, MapResult

# The data of a map: classified rows with positions and quantities, and objects whose class is known.

OPTIONAL = ("weight", "how")
"""Columns of lists of objects that say how an object came into it."""
OTHER = "other"
"""The answer for an object that is of no class of the model."""
UNDECIDED = ("", "?")

SKY_MAP = re.compile(
    r"(?P<name>[A-Za-z_]\w*)=(?P<path>[^#@]+?)(?:#(?P<column>[^@]+))?(?:@(?P<frame>\w+))?", re.ASCII
)


def sky_maps(texts: Sequence[str]) -> dict[str, HealpixMap]:
    """Return the maps that NAME=FILE#COLUMN@FRAME name; UsageError where a text says something else."""
    maps = {}
    for text in texts:
        match = SKY_MAP.fullmatch(text)
        frames = get_args(Frame)
        if match is None or match["frame"] not in (None, *frames):
            raise UsageError(
                f"--sky-map: got '{text}', expected NAME=FILE, NAME=FILE#COLUMN or NAME=FILE@FRAME, the frame one of "
                f"{', '.join(frames)}"
            )
        if match["name"] in maps:
            raise UsageError(
                f"--sky-map: got the name '{match['name']}' twice, expected each name once; rename one map"
            )
        frame = next((f for f in frames if f == match["frame"]), None)
        maps[match["name"]] = read_healpix(Path(match["path"]), column=match["column"], frame=frame)
    return maps


def row_type(n_quantities: int) -> np.dtype[np.void]:
    """Return the type of classified rows with a position.

    They have a nested pixel, the probability of the class, whether it is selected, the quantities (F,), NaN for
    missing, and an identifier, None where the copies have none.  Rows with a label have whether they are of the class,
    and how many objects each stands for.
    """
    numbers = [("pixel", "i8"), ("p", "f8"), ("selected", "?"), ("X", "f8", (n_quantities,))]
    return np.dtype([*numbers, ("name", "O"), ("is_class", "?"), ("weight", "f8")])


Answers = Mapping[str, tuple[str, float]]
"""By the identifier of an object its class, and how many objects it stands for."""


def read_answers(
    path: Path, *, label: str, identifier: str, classes: Sequence[str]
) -> tuple[Answers, Counter[str]]:
    """Return the objects of a table whose class is known, and the numbers of rows that are left out.

    `unanswered` rows have no class; `chosen` ones were picked and not drawn, so that they stand for nobody else.
    UsageError where a column or a class is unknown, or two answers differ.
    """
    catalog = catalogs.open(path)
    for flag, name in (("--label", label), ("--id", identifier)):
        if name not in catalog.names:
            raise UsageError(
                f"{flag}: got '{name}', expected a column of {path}; {nearest(name, catalog.names)}"
            )
    optional = [name for name in OPTIONAL if name in catalog.names and name not in (label, identifier)]
    found: dict[str, tuple[str, float]] = {}
    left_out: Counter[str] = Counter()
    for batch in catalog.batches([identifier, label, *optional]):
        values = batch_values(batch, [identifier, label, *optional])
        weights = floats(values["weight"]) if "weight" in optional else np.ones(batch.num_rows)
        if wrong := int(np.sum(~(weights > 0) | np.isinf(weights))):
            raise UsageError(
                f"got {wrong} weights that are not positive and finite, expected 1 / (probability of being drawn); "
                "correct the column 'weight', or leave it out"
            )
        texts = [plain_texts(values[name]).tolist() for name in (identifier, label)]
        hows = plain_texts(values["how"]).tolist() if "how" in optional else [""] * batch.num_rows
        for name, said, weight, how in zip(*texts, weights.tolist(), hows, strict=True):
            if said in UNDECIDED or how == "top":
                left_out["unanswered" if said in UNDECIDED else "chosen"] += 1
                continue
            if said not in (*classes, OTHER):
                raise UsageError(
                    f"{path}: got the class '{said}' of {name}, expected '{OTHER}' or one of the model's: "
                    f"{', '.join(classes)}; {nearest(said, classes)}"
                )
            before = found.get(name, (said, weight))[0]
            if before != said:
                raise UsageError(
                    f"{path}: got '{before}' and '{said}' for {name}, expected one class for each object; correct the "
                    "table"
                )
            found[name] = (said, weight)
    return found, left_out


# The sums of a map: a first pass for pixels, ranges and labelled rows, their fit, and a second pass for the
# fractions. The model predicts whether an object is of the class, from the classifier's probability, the quantities
# and the region. For a contamination, it is fitted to the selected labelled objects only: which of them are of other
# classes.

Pixels = NDArray[np.int64]

DRAWS = 128
REGION_ORDER = 1
"""Finest order of the regions with an effect of their own: 29 degrees; a coarser map has coarser regions."""
BINS = 8
SAMPLE = 100_000
"""Most rows, at equal distances, from which the edges of the bins are computed."""
ROWS_AT_ONCE = 16_384


MapCopy = tuple[Catalog, str | None, tuple[str, str, PositionUnit]]
"""An annotated copy, its columns of identifiers (None without) and of positions, with the unit of these."""


@dataclass(frozen=True, eq=False)
class MapWork:
    """What is mapped: the request, the copies, the quantities, and the objects whose class is known (None: no table).

    `left_out` counts rows of the table that have no class, or that were chosen (`read_answers`).  The first pass finds
    the pixels with objects, the edges of each quantity's bins, how many rows have a position, the labelled rows (n,),
    and the number of labels that are of no row.
    """

    request: MapRequest
    folder: Path
    manifest: Manifest
    over: tuple[Expression, ...]
    maps: Mapping[str, HealpixMap]
    copies: tuple[MapCopy, ...] = ()
    known: Answers | None = None
    left_out: Counter[str] = field(default_factory=Counter)
    pixels: Pixels = field(default_factory=lambda: np.empty(0, dtype=np.int64))
    edges: tuple[Floats, ...] = ()
    n_classified: int = 0
    labelled: Array = field(default_factory=lambda: np.zeros(0, row_type(0)))
    unmatched: int = 0

    @property
    def counts(self) -> tuple[Mask, Mask]:
        """Which labelled rows count as n in the fraction k of n, and which of these count as k; (n,) each."""
        selected, is_class = self.labelled["selected"], self.labelled["is_class"]
        if self.request.what == "completeness":
            return is_class, is_class & selected
        if self.request.what == "contamination":
            return selected, selected & ~is_class
        return np.ones(len(selected), dtype=bool), is_class

    def rows(self) -> Iterator[Array]:
        """Yield the rows of all copies that have probabilities and a position, batch by batch."""
        own = {name for e in self.over for name in e.names}.difference(self.maps)
        prefix, class_name = self.manifest.prefix, self.request.class_name
        probability, assigned = f"{prefix}p_{safe_name(class_name)}", f"{prefix}class"
        for catalog, identifier, (ra, dec, unit) in self.copies:
            named = [identifier] if identifier else []
            read = tuple(dict.fromkeys([*named, ra, dec, probability, assigned, *sorted(own)]))
            for batch in catalog.batches(read):
                values = batch_values(batch, read)
                place = positions(values[ra], values[dec], unit)
                p = np.asarray(np.ma.filled(values[probability].astype(np.float64), np.nan))
                pixel = healpix_pixels(place.ra, place.dec, self.request.order)
                kept = np.isfinite(p) & (pixel >= 0)
                seen = {**values, **{name: sky.at(place.ra, place.dec) for name, sky in self.maps.items()}}
                X = [np.asarray(e.evaluate(seen), dtype=np.float64) for e in self.over]
                least = self.request.threshold
                wanted = plain_texts(values[assigned]) == class_name if least is None else p >= least
                rows = np.zeros(batch.num_rows, row_type(len(X)))
                rows["pixel"], rows["p"], rows["selected"] = pixel, p, wanted
                for j, x in enumerate(X):
                    rows["X"][:, j] = np.where(np.isfinite(x), x, np.nan)
                rows["name"] = None if identifier is None else plain_texts(values[identifier])
                yield rows[kept]


def surveyed(work: MapWork) -> MapWork:
    """Read all rows once, and return the work with what was found."""
    known, what, n_quantities = work.known or {}, work.request.what, len(work.over)
    touched = work.pixels
    parts, samples = [np.zeros(0, row_type(n_quantities))], [[np.empty(0)] for _ in range(n_quantities)]
    step = max(1, math.ceil(sum(catalog.n_rows for catalog, *_ in work.copies) / SAMPLE))
    n, seen = 0, set[str]()
    for rows in work.rows():
        use = rows["selected"] if what == "contamination" else np.ones(len(rows), dtype=bool)
        touched = np.union1d(touched, rows["pixel"][use])
        for j, sample in enumerate(samples):
            sample.append(rows["X"][use, j][::step])
        n += len(rows)
        if known:
            names = reversed([*enumerate(rows["name"].tolist())])
            first = {name: i for i, name in names if name in known and name not in seen}
            parts.append(rows[sorted(first.values())])
            seen |= first.keys()
    labelled = np.concatenate(parts)
    answers = [known[name] for name in labelled["name"]]
    labelled["is_class"] = [said == work.request.class_name for said, _ in answers]
    labelled["weight"] = [weight for _, weight in answers]
    finite = (values[np.isfinite(values)] for values in map(np.concatenate, samples))
    # Bins with equal numbers of values; fewer where values repeat.
    q = np.linspace(0, 1, BINS + 1)
    edges = tuple(np.unique(np.quantile(values, q)) if values.size else values for values in finite)
    return replace(
        work,
        pixels=touched,
        edges=edges,
        n_classified=n,
        labelled=labelled,
        unmatched=len(known) - len(seen),
    )


def bin_of(x: Floats, edges: Floats) -> Places:
    """Return the bin (n,) of values, -1 outside; the last bin has its upper end."""
    if len(edges) < 2:
        return np.full(len(x), -1, dtype=np.intp)
    place = np.minimum(np.searchsorted(edges, x, side="right") - 1, len(edges) - 2)
    return np.where((x >= edges[0]) & (x <= edges[-1]), place, -1)


def _covariates(request: MapRequest, rows: Array) -> tuple[Floats, Floats, Places]:
    """Return the classifier's expectation (n,), the quantities with whether a row is selected, and its region."""
    expected = 1 - rows["p"] if request.what == "contamination" else rows["p"].copy()
    # All rows of a contamination's fit are selected: there the last column is constant and has no effect.
    X = np.column_stack([rows["X"], rows["selected"].astype(float)])
    region = rows["pixel"] >> (2 * (request.order - min(request.order, REGION_ORDER)))
    return expected, X, region.astype(np.intp)


def fitted(work: MapWork) -> tuple[Scales, Floats]:
    """Return the scales of the quantities, and draws of the weights (S, M): none without rows that count."""
    request, rows = work.request, work.labelled
    if request.what == "contamination":
        rows = rows[rows["selected"]]
    success = rows["is_class"] != (request.what == "contamination")
    expected, X, region = _covariates(request, rows)
    scales, n_regions = covariate_scales(X), 12 * 4 ** min(request.order, REGION_ORDER)
    Phi = design_matrix(scales, expected, X, region, n_regions)
    if not len(rows):
        return scales, Phi
    # Weights sum to what the rows count as: an interval is then as wide as that of so many rows.
    weight = rows["weight"] * (rows["weight"].sum() / (rows["weight"] ** 2).sum())
    rng = np.random.default_rng(request.seed)
    evidence, draws = [], []
    for scale in REGION_SCALES:
        mean, variance = fraction_prior(X.shape[1], n_regions, scale)
        q = fit(Phi, success.astype(float), GaussianPrior(mean, variance), sample_weight=weight)
        evidence.append(q.log_evidence)
        draws.append(q.sample(DRAWS, rng))
    return scales, mixed_draws(evidence, draws, DRAWS, rng)


def _parts(
    request: MapRequest, rows: Array, scales: Scales, draws: Floats
) -> tuple[Mask, tuple[Floats, Floats], tuple[Floats, Floats]]:
    """Return which rows count (n,), part and whole by the classifier (n,), and both under each draw (n, S)."""
    expected, X, region = _covariates(request, rows)
    pi = drawn_fractions(scales, draws, expected, X, region)
    use = rows["selected"] if request.what == "contamination" else np.ones(len(rows), dtype=bool)
    if request.what == "completeness":
        chosen = rows["selected"].astype(float)
        return use, (expected * chosen, expected), (pi * chosen[:, None], pi)
    return use, (expected, np.ones(len(rows))), (pi, np.ones_like(pi))


def summed(
    work: MapWork, scales: Scales, draws: Floats
) -> tuple[FractionSums, FractionSums, list[FractionSums]]:
    """Read all rows a second time; return the fractions of all together, of the pixels, and of each quantity's bins."""
    S = len(draws)
    whole, cells = FractionSums(1, S), FractionSums(len(work.pixels), S)
    bins = [FractionSums(max(len(edges) - 1, 0), S) for edges in work.edges]
    for large in work.rows():
        for start in range(0, len(large), ROWS_AT_ONCE):
            rows = large[start : start + ROWS_AT_ONCE]
            use, expected, drawn = _parts(work.request, rows, scales, draws)
            whole.add(np.zeros(len(rows), dtype=np.intp), expected, drawn, use)
            cells.add(np.searchsorted(work.pixels, rows["pixel"]), expected, drawn, use)
            for j, (edges, sums) in enumerate(zip(work.edges, bins, strict=True)):
                place = bin_of(rows["X"][:, j], edges)
                sums.add(place, expected, drawn, use & (place >= 0))
    return whole, cells, bins


# A map as files: HEALPix FITS and a HATS table, one row a pixel.

SKY = 4 * np.pi * np.degrees(1) ** 2
"""The whole sky, in square degrees."""


def write_map(work: MapWork, files: Sequence[Path], cells: FractionSums) -> None:
    """Write the pixels with their fractions, as HEALPix FITS and as a HATS table."""
    request, manifest = work.request, work.manifest
    made_by = {"model": manifest.model, "model_id": str(manifest.model_id)}
    columns = _columns(work, cells)
    history = [
        f"blr map of {request.what}, class {request.class_name}",
        *(f"blr {key} = {said}" for key, said in made_by.items()),
    ]
    write_healpix(files[0], work.pixels, columns, order=request.order, history=history)
    ra, dec = centres(work.pixels, request.order)
    fields = [pa.field(name, pa.float64(), metadata={"unit": "deg"}) for name in ("ra", "dec")]
    arrays = [pa.array(ra), pa.array(dec)]
    for name, values, unit, description in columns:
        array = pa.array(values)
        said = {"description": description} | ({"unit": unit} if unit else {})
        fields.append(pa.field(name.lower(), array.type, metadata=said))
        arrays.append(array)
    extra = {f"blr.{key}": said for key, said in made_by.items()}
    extra["blr.map"] = f"{request.what} of {request.class_name}"
    table = pa.table(arrays, schema=pa.schema(fields))
    write_hats(files[1], table, work.pixels, order=request.order, extra=extra)


def _columns(work: MapWork, cells: FractionSums) -> list[MapColumn]:
    trial, success = work.counts
    place = np.searchsorted(work.pixels, work.labelled["pixel"])
    n, k = (np.bincount(place[x], minlength=len(work.pixels)).astype(np.int32) for x in (trial, success))
    area = SKY / (12 * 4**work.request.order)
    fraction, low, high = cells.corrected
    return [
        ("DENSITY", cells.whole / area, "deg-2", "objects among which the fraction is counted"),
        ("EXPECTED", cells.expected, "", "fraction by the classifier"),
        ("FRACTION", fraction, "", "fraction by the labels"),
        ("LOW", low, "", "lower end of its 95 % interval"),
        ("HIGH", high, "", "upper end of its 95 % interval"),
        ("N_LABELLED", n, "", "labelled objects among these"),
        ("K_LABELLED", k, "", "labelled objects that count for the fraction"),
    ]


FINEST_ORDER = 8
"""Pixels of 14 arcminutes: 786,432 of them."""


def make_map(request: MapRequest, *, dry_run: bool = False) -> MapResult:
    """Write the map of a class in a folder that `classify` has written; return what was found.

    UsageError where the folder, the class or a column is not there; OutputExistsError where the map is.
    """
    with output_folder(request.out, key="out", publish=not dry_run) as folder:
        work = _prepared(request, folder)
        place = folder / "maps" if request.folder is None else check_output(request.folder, key="--folder")
        name = f"{safe_name(request.class_name)}-{request.what}"
        files = (place / f"{name}.fits", place / f"{name}-hats", place / f"{name}.json")
        if not request.overwrite and not dry_run and (there := next((f for f in files if f.exists()), None)):
            raise OutputExistsError(
                f"{there} exists already; choose another --folder, or replace it with --overwrite"
            )
        with single_threaded_blas():
            work = surveyed(work)
            whole, cells, bins = summed(work, *fitted(work))
        result = _result(work, whole, bins)
        if dry_run:
            return result
        own_folder(place, folder if request.folder is None else place)
        done = replace(result, status="done", files=files)
        # A run that is killed while it writes leaves no part of a map in the next one's way.
        with scratch_folder(place) as made:
            write_map(work, tuple(made / file.name for file in files), cells)
            write_document(made / files[2].name, done)
            for file in files:
                if file.is_dir():
                    shutil.rmtree(file)
                (made / file.name).replace(file)
        return done


def _prepared(request: MapRequest, folder: Path) -> MapWork:
    manifest = annotated_manifest(folder)
    classes = tuple(manifest.classes)
    if request.class_name not in classes:
        raise UsageError(
            f"--class: got '{request.class_name}', expected one of {', '.join(classes)}; "
            f"{nearest(request.class_name, classes)}"
        )
    if request.order > FINEST_ORDER:
        raise UsageError(
            f"--order: got {request.order}, expected at most {FINEST_ORDER}; choose a coarser map"
        )
    over = tuple(parse(text) for text in request.over or [])
    work = MapWork(request, folder, manifest, over, sky_maps(request.sky_map or []))
    copies = tuple(
        _copy(work, open_annotated(folder / output.name, manifest.prefix))
        for output in manifest.outputs
        if output.summary.counted  # the margins of a HATS catalogue repeat objects of the other files
    )
    if request.labels is None:
        return replace(work, copies=copies)
    identifier = next((name for _, name, *_ in copies if name), None)
    if identifier is None:
        raise UsageError(
            "--id: got no column that names the objects, expected a column that the copies and the "
            "labels both have; name it"
        )
    path = check_inside(request.labels, key="--labels")
    known, left_out = read_answers(path, label=request.label, identifier=identifier, classes=classes)
    return replace(work, copies=copies, known=known, left_out=left_out)


def _copy(work: MapWork, catalog: Catalog) -> MapCopy:
    """Return a copy with its columns; UsageError where there is no position, or an expression names no column."""
    maps, asked, names = work.maps, work.request.identifier, catalog.names
    place = work.manifest.position.place(catalog)
    if place is None:
        raise UsageError(
            f"{catalog.path}: got no columns of positions, expected right ascension and declination; state "
            "'catalog.ra' and 'catalog.dec' in the specification, and classify again"
        )
    for expression in work.over:
        expression.check_names([*names, *maps])
    if clash := sorted({*maps} & {*names}):
        raise UsageError(
            f"--sky-map: got '{clash[0]}', which is a column of {catalog.path}; choose another name"
        )
    if asked is not None and asked not in names:
        raise UsageError(f"--id: got '{asked}', expected a column of {catalog.path}; {nearest(asked, names)}")
    name = asked or work.manifest.position.id
    return catalog, name if name in names else None, place


def _result(work: MapWork, whole: FractionSums, of_bins: Sequence[FractionSums]) -> MapResult:
    request = work.request
    trial, success = work.counts
    columns = {c.name: c.unit for c in work.copies[0][0].columns}
    units = columns | {name: m.unit for name, m in work.maps.items()}
    over = []
    for j, (text, edges, fractions) in enumerate(zip(request.over or [], work.edges, of_bins, strict=True)):
        place = bin_of(work.labelled["X"][:, j], edges)
        bins: list[MappedFraction] = []
        for b in range(len(edges) - 1):
            inside = place == b
            shown = _fraction(fractions, b, k=success & inside, n=trial & inside)
            bins.append({**shown, "start": float(edges[b]), "stop": float(edges[b + 1])})
        unit = work.over[j].unit({name: units.get(name) for name in work.over[j].names})
        over.append(MappedQuantity(expression=text, unit=unit, bins=tuple(bins)))
    return MapResult(
        status="planned",
        model=work.manifest.model,
        out=work.folder,
        class_name=request.class_name,
        what=request.what,
        order=request.order,
        n_classified=work.n_classified,
        cells=len(work.pixels),
        labelled=len(trial),
        unanswered=work.left_out["unanswered"],
        unmatched=work.unmatched,
        whole=_fraction(whole, 0, k=success, n=trial),
        over=tuple(over),
        remarks=tuple(_remarks(work)),
        files=(),
    )


def _fraction(fractions: FractionSums, i: int, *, k: Mask, n: Mask) -> MappedFraction:
    values = [float(x[i]) for x in (fractions.expected, *fractions.corrected)]
    expected, fraction, low, high = (x if math.isfinite(x) else None for x in values)
    n_k, n_n, objects = int(k.sum()), int(n.sum()), float(fractions.whole[i])
    return MappedFraction(
        objects=objects, k=n_k, n=n_n, expected=expected, fraction=fraction, low=low, high=high
    )


def _remarks(work: MapWork) -> Iterator[str]:
    if work.known is None:
        yield (
            "no labels were given, so the fraction is the classifier's and has no interval; name a table with --labels"
        )
        return
    if not work.counts[0].any():
        yield "the fraction has no interval, since none of its objects has a label; label some of them"
    for n, words in (
        (work.left_out["unanswered"], "of the labels have no class and are left out"),
        (
            work.left_out["chosen"],
            "were chosen because they are uncertain, not drawn at random, and are left out",
        ),
        (work.unmatched, "of the labels are not among the classified ones with a position"),
    ):
        if n:
            yield f"{n} objects {words}"
