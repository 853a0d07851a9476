"""The contract of a release: what its files must hold, and how the checks say what they found.

A contract is written from the model, the inputs and the last release, and may be edited before the check.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

from catalogs.catalog.catalog import Catalog, Column, is_provenance
from catalogs.catalog.new_columns import NewColumn
from catalogs.errors import CatalogError
from catalogs.formats import annotated_table
from flows.classification.scoring import Scorer, flag_names, provenance
from flows.documents import read_document
from flows.errors import DocumentError
from flows.models.model import Model, read_model
from flows.models.row_files import ROWS_FILE
from flows.runs.manifest import MANIFEST, SUMMARY, SUMS, FlagDetails, Manifest, ObjectColumns, Output
from flows.runs.results import Summary
from flows.specification.specification import Specification, specification_hash
from flows.specification.toml_file import read_specification

CONTRACT = "contract.json"
DATA = "data"
MODEL = "model.asdf"
SETTINGS = "specification.toml"
PROFILE = "profile.json"
MOST_ROWS = 20
"""Most rows that a check names."""
MOST_PLACES = 12
"""Most places that a check names one by one."""
ROOM = 0.5
"""Part of a range's width by which values may exceed the last release's range on either side."""
LEAST_KNOWN = 500
"""Values that the last release must have of a column for its range to be a limit: the extremes of fewer move far."""

TEXTS = {"string", "large_string", "string_view"}
"""Types of texts, which differ only in how Arrow keeps them."""

Verdict = Literal["pass", "look", "stop"]


@dataclass(frozen=True, kw_only=True)
class Check:
    """What a check found: where, the number, the limit and where that comes from."""

    kind: str
    name: str
    verdict: Verdict
    found: str
    file: str = ""
    field: str = ""
    rows: tuple[int, ...] = ()
    number: float | None = None
    limit: float | None = None
    source: str = ""

    @property
    def place(self) -> str:
        """File, field and first rows in words."""
        rows = f"rows {', '.join(map(str, self.rows[:5]))}" if self.rows else ""
        return ", ".join(filter(None, (self.file, self.field, rows)))


KINDS = {
    "conservation": ("checksums", "input columns", "rows", "identifiers", "identifiers of the inputs"),
    "replay": ("replay",),
    "negative controls": ("negative controls",),
    "differences": (
        *("objects", "positions", "class changes", "flag changes"),
        *("values", "missing values", "new objects", "class shares"),
    ),
    "truth": ("truth", "calibration"),
}
"""Checks by their kind; others are of the contract, and those of companions of conservation."""


def check_of(name: str, verdict: Verdict, found: str, **where: Any) -> Check:
    """Return a check with its kind."""
    kinds = (kind for kind, names in KINDS.items() if name in names)
    kind = "conservation" if name.startswith("companion ") else next(kinds, "contract")
    return Check(kind=kind, name=name, verdict=verdict, found=found, **where)


class Findings:
    """The findings of a check, by name; a check without findings has passed."""

    def __init__(self) -> None:
        self.found: list[Check] = []
        self.done: dict[str, str] = {}
        self.counts: Counter[tuple[str, Verdict]] = Counter()

    def ran(self, name: str, what: str) -> None:
        """Note that a check was made; `what` is said if it passes."""
        self.done.setdefault(name, what)

    def add(
        self,
        verdict: Verdict,
        name: str,
        found: str,
        file: str = "",
        field: str = "",
        number: float | None = None,
        limit: float | None = None,
        source: str = "",
        *,
        rows: Iterable[int] = (),
    ) -> None:
        """Note a finding; of many places only the first are named, and the first of each column."""
        self.counts[name, verdict] += 1
        known = any((c.name, c.verdict, c.field) == (name, verdict, field) for c in self.found)
        if self.counts[name, verdict] <= MOST_PLACES or not known:
            numbers = {"number": number, "limit": limit}
            where: dict[str, Any] = {k: None if x is None else float(x) for k, x in numbers.items()}
            where |= {"file": file, "field": field, "source": source, "rows": tuple(rows)[:MOST_ROWS]}
            self.found.append(check_of(name, verdict, found, **where))

    def stop(self, name: str, found: str, *where: Any, rows: Iterable[int] = ()) -> None:
        """Note a fault, with file, field, number, limit and the limit's source as in `add`."""
        self.add("stop", name, found, *where, rows=rows)

    def look(self, name: str, found: str, *where: Any) -> None:
        """Note what a person should look at."""
        self.add("look", name, found, *where)

    def graded(
        self,
        name: str,
        found: str,
        place: str,
        field: str,
        number: float,
        limits: tuple[float, float],
        source: str,
    ) -> bool:
        """Note a number beyond the first of two limits, as a fault beyond the second; say whether it is one."""
        low, high = limits
        far = abs(number) > high
        if abs(number) > low:
            limit = high if far else low
            self.add("stop" if far else "look", name, found, place, field, number, limit, source)
        return far

    def checks(self) -> tuple[Check, ...]:
        """Return all checks, the worst first."""
        bad = {check.name for check in self.found}
        passed = [check_of(name, "pass", what) for name, what in self.done.items() if name not in bad]
        named = Counter((check.name, check.verdict) for check in self.found)
        more = [
            check_of(*key, f"{n - named[key]:,} more places")
            for key, n in self.counts.items()
            if n > named[key]
        ]
        order = ("stop", "look", "pass")
        return tuple(sorted([*self.found, *more, *passed], key=lambda c: order.index(c.verdict)))


@dataclass(frozen=True, kw_only=True)
class ContractColumn:
    """A column: its type, unit, UCD, description and null value, its range, and who promises it."""

    name: str
    datatype: str
    unit: str | None = None
    ucd: str | None = None
    description: str | None = None
    null: int | None = None
    shape: tuple[int, ...] = ()
    minimum: float | None = None
    maximum: float | None = None
    source: str = "input"


@dataclass(frozen=True, kw_only=True)
class Contract:
    """What the files of a release must hold; ranges of the last release have room of half their width."""

    model: str
    model_id: int
    code_version: str
    specification_hash: str
    prefix: str
    classes: tuple[str, ...]
    columns: tuple[ContractColumn, ...]
    flags: Mapping[str, FlagDetails]
    partitions: tuple[str, ...]
    made: tuple[str, ...] = ()
    id: str | None = None
    ra: str | None = None
    dec: str | None = None
    position_unit: str | None = None
    companions: tuple[str, ...] = ()
    last: str | None = None

    def column(self, name: str) -> ContractColumn | None:
        """Return a column; None where the contract has none of that name."""
        return next((c for c in self.columns if c.name == name), None)


def _contract_column(column: Column | NewColumn, source: str) -> ContractColumn:
    """Return a column of a catalogue as a contract has it."""
    return ContractColumn(
        name=column.name,
        datatype=str(column.datatype),
        unit=column.unit,
        ucd=column.ucd,
        description=column.description,
        null=getattr(column, "null", None),
        shape=getattr(column, "shape", ()),
        source=source,
    )


def derived_contract(
    opened: Opened, last: Opened | None, *, companions: Sequence[str] = (), id_column: str | None = None
) -> Contract:
    """Return the contract that follows from the run, its model, its inputs and the last release.

    New columns are as the model promises; old ones as in the inputs, and as in the contract of the last release.
    Whatever a unit, UCD or description was in the training catalogue, it must be still.
    """
    manifest, model, scorer = opened.manifest, opened.model, Scorer.of(opened.model, opened.settings)
    names = annotated_table(scorer.prefix).open(opened.data / manifest.outputs[0].name).names
    inputs: dict[str, Column] = {}
    for output in opened.manifest.outputs:  # of the first input that is still there
        with suppress(CatalogError, OSError):
            inputs = {c.name: c for c in scorer.choice.open(opened.data / output.input_path).columns}
            break
    if opened.settings.output.mode == "slim":
        inputs = {name: column for name, column in inputs.items() if name in names}
    made = {c.name: _ranged(_contract_column(c, f"model {model.label}")) for c in scorer.columns}
    before = None if last is None else last.contract
    seen = {} if last is None else last.profile.columns
    promised = {c.name: c for c in before.columns if c.name not in before.made} if before else {}
    columns = []
    for name in dict.fromkeys([*names, *inputs, *promised]):
        if name in made or (name not in inputs and name not in promised):
            continue
        column = _contract_column(inputs[name], "input") if name in inputs else promised[name]
        release = f"release {last.version}" if last else ""
        columns.append(_promised(column, promised.get(name), model, release, seen.get(name)))
    position = manifest.position or ObjectColumns()
    return Contract(
        model=model.label,
        model_id=model.id,
        code_version=manifest.code_version,
        specification_hash=specification_hash(opened.settings),
        prefix=scorer.prefix,
        classes=model.classes,
        columns=(*columns, *made.values()),
        made=tuple(made),
        flags={
            str(bit): FlagDetails(name=name, meaning=meaning) for bit, (name, meaning) in flag_names().items()
        },
        partitions=tuple(o.name for o in manifest.outputs),
        id=id_column or (before.id if before else None) or position.id,
        ra=position.ra,
        dec=position.dec,
        position_unit=position.unit,
        companions=tuple(companions),
        last=last.version if last else None,
    )


def _promised(
    column: ContractColumn,
    before: ContractColumn | None,
    model: Model,
    release: str,
    seen: ColumnProfile | None,
) -> ContractColumn:
    """Return a column with what the last release promised of it, or else the training catalogue, and with its range."""
    trained = model.columns.get(column.name)
    for key in ("unit", "ucd", "description"):
        value = (before and getattr(before, key)) or (trained and getattr(trained, key))
        if value and getattr(column, key) != value and (before or getattr(column, key) is None):
            column = replace(column, **{key: value}, source=release if before else "the training catalogue")
    if before is not None:
        column = replace(column, datatype=before.datatype, null=before.null, source=release)
    if seen is not None and seen.n - seen.missing >= LEAST_KNOWN and None not in {seen.minimum, seen.maximum}:
        low, high = float(seen.minimum or 0), float(seen.maximum or 0)
        room = ROOM * (high - low)
        column = replace(column, minimum=low - room, maximum=high + room)
    return column


def _ranged(column: ContractColumn) -> ContractColumn:
    """Return a new column with the range that its meaning gives it."""
    ucd = column.ucd or ""
    if ucd.startswith("stat.probability"):
        return replace(column, minimum=0.0, maximum=1.0)
    if ucd == "stat.stdev" or column.name.endswith(("mutual_info", "entropy")):
        return replace(column, minimum=0.0)
    return column


def check_columns(contract: Contract, catalog: Catalog, file: str, findings: Findings) -> None:
    """Compare a file's columns with the contract: names, types, units, UCDs, descriptions, nulls."""
    names, folded = set(catalog.names), {name.casefold(): name for name in catalog.names}
    if len(names) < len(catalog.names):
        twice = [name for name, n in Counter(catalog.names).items() if n > 1]
        findings.stop("columns", f"columns there twice: {', '.join(twice)}", file)
    for promised in contract.columns:
        name = promised.name
        if name not in names:
            spelt = folded.get(name.casefold())
            said = f"is spelt '{spelt}'" if spelt else "is absent"
            findings.stop("columns", f"the column '{name}' {said}", file, name, None, None, promised.source)
            continue
        column = _contract_column(catalog.column(name), promised.source)
        alike = {column.datatype, promised.datatype} <= TEXTS or column.datatype == promised.datatype
        if not alike or column.shape != promised.shape:
            types = (c.datatype + (f"{list(c.shape)}" if c.shape else "") for c in (column, promised))
            said = "'{}' is {}, promised {}".format(name, *types)
            findings.stop("types", said, file, name, None, None, promised.source)
        for key in ("unit", "ucd", "description"):
            got, want = getattr(column, key), getattr(promised, key)
            if (want or got) and (want or "") != (got or "") and (want or key == "unit"):
                said = f"the {key} of '{name}' is {got or 'absent'!r}, promised {want or 'none'!r}"
                findings.stop(f"{key}s", said, file, name, None, None, promised.source)
        if promised.null is not None and column.null != promised.null:
            said = f"the null value of '{name}' is {column.null}, promised {promised.null}"
            findings.stop("nulls", said, file, name, None, None, promised.source)
    extra = [name for name in catalog.names if contract.column(name) is None]
    if extra:
        findings.stop("columns", f"columns that no contract has: {', '.join(extra)}", file, extra[0])


def check_edits(contract: Contract, promised: Contract, findings: Findings) -> None:
    """Note where the contract was edited after it was drafted."""
    findings.ran("contract", "it is as it follows from model, inputs and last release")
    ours, theirs = ({c.name: c for c in one.columns} for one in (contract, promised))
    changed = [k for k, v in vars(contract).items() if k != "columns" and v != getattr(promised, k)]
    changed += [name for name in dict.fromkeys([*ours, *theirs]) if ours.get(name) != theirs.get(name)]
    if contract != promised:
        findings.look("contract", f"it was edited: {', '.join(changed)}", CONTRACT)


@dataclass(frozen=True)
class Opened:
    """A release's folder: its manifest, its model, the settings of its run, and its version."""

    folder: Path
    manifest: Manifest
    model: Model
    settings: Specification
    version: str

    @classmethod
    def of(cls, folder: Path, version: str) -> Opened:
        """Open a release's folder; CatalogError where it has no manifest."""
        manifest = Manifest.read(folder / DATA)
        if manifest is None:
            raise CatalogError(
                f"{folder / DATA}: got no {MANIFEST}, expected the files of a run; draft the release again"
            )
        model, settings = read_model(folder / MODEL), read_specification(folder / SETTINGS)
        return cls(folder, manifest, model, settings, version)

    @property
    def data(self) -> Path:
        """Folder of the annotated files."""
        return self.folder / DATA

    @property
    def n_rows(self) -> int:
        """Rows of all files, as the manifest says."""
        return sum(output.n_rows for output in self.manifest.outputs)

    @cached_property
    def contract(self) -> Contract:
        """The contract."""
        return read_document(Contract, self.folder / CONTRACT)

    @cached_property
    def profile(self) -> Profile:
        """What the release holds, which its check has found."""
        return read_document(Profile, self.folder / PROFILE)


@dataclass(frozen=True, kw_only=True)
class ColumnProfile:
    """A column of all files: rows, missing values, and the range; None where no value is a number."""

    n: int
    missing: int
    minimum: float | None = None
    maximum: float | None = None


@dataclass(frozen=True, kw_only=True)
class Profile:
    """What a release holds: its columns, and by file the rows and the classes."""

    n_rows: int
    columns: Mapping[str, ColumnProfile]
    files: Mapping[str, Mapping[str, int]]
    classes: Mapping[str, int]
    flags: Mapping[str, int]
    cells: Mapping[str, Mapping[str, int]] = field(default_factory=dict)


COUNTS_OF_ROWS = re.compile(
    r"(?:^|[._ -])(?:n_?rows|num_?rows|nrec|nobj|n_?objects|row_?count|rowcount|total_?rows|hats_nrows|nsources)$",
    re.IGNORECASE,
)
STRUCTURAL = re.compile(
    r"(?:NAXIS\d?|TFIELDS|PCOUNT|GCOUNT|THEAP|CHECKSUM|DATASUM|XTENSION|SIMPLE|BITPIX|EXTEND|END|COMMENT|"
    r"(?:TTYPE|TFORM|TUNIT|TNULL|TSCAL|TZERO|TDISP|TDIM|TUCD|TCOMM|TBCOL)\d+)?$"
)
REWRITTEN = re.compile(r"pandas|ARROW:schema|IVOA\.|table_meta_yaml")
"""Keys of metadata that list the columns, and so differ in a copy."""
ADDED = re.compile(r"LONGSTRN$|^table::")
"""Keys that a copy has for its new columns."""
OWN_FILES = re.compile(
    r"_(?:files|labelled|census|releases|report)/.*|(?:.*/)?(?:manifest\.json|summary\.json|audit\.json|report\.html|"
    r"(?:hats\.|collection\.)?properties|partition_info\.csv|data_thumbnail\.parquet|_(?:common_)?metadata|"
    r"\w*map(?:_order_\d+)?\.fits|README(?:\.(?:md|rst|txt))?)"
)
"""Files beside the annotated ones."""
DOCUMENTS = re.compile(
    r"(?:release|contract|checks|profile|provenance|signature)\.json|specification\.toml|(?:README|KNOWN_ISSUES)\.md|"
    rf"{SUMS}|model\.asdf|{re.escape(ROWS_FILE)}|columns\.csv|CITATION\.cff|report\.html"
)
"""Files of a release beside its data and companions."""


def check_files(opened: Opened, findings: Findings) -> None:
    """Compare the files of a release with its manifest: no link, none more, none that could not be classified."""
    n = f"{len(opened.manifest.outputs):,} files"
    findings.ran("checksums", f"{n} have the bytes that were written")
    findings.ran("partitions", f"{n}, as the manifest lists")
    listed, beside = {o.name for o in opened.manifest.outputs}, {*opened.contract.companions}
    for path in sorted(opened.folder.rglob("*")):
        inside = path.is_relative_to(opened.data)
        relative = path.relative_to(opened.data if inside else opened.folder)
        name, known, own = str(relative), *((listed, OWN_FILES) if inside else (beside, DOCUMENTS))
        if path.is_symlink():
            findings.stop("checksums", "a symbolic link, whose target may change", name)
        temporary = any(part.startswith(".blr-") for part in relative.parts)
        if path.is_file() and not temporary and relative.as_posix() not in known and not own.fullmatch(name):
            findings.stop("partitions", "a file that the manifest does not list", name)
    for quarantined in opened.manifest.quarantined:
        findings.stop("rows", f"not classified: {quarantined.reason}", quarantined.name)


def check_metadata(
    opened: Opened, output: Output, catalog: Catalog, source: Catalog | None, findings: Findings
) -> None:
    """Compare what a file says of itself with what it holds, and with what its input said."""
    said = {key.removeprefix("blr."): value for key, value in catalog.metadata.items() if is_provenance(key)}
    scorer = Scorer.of(opened.model, opened.settings)
    made = provenance(opened.model, opened.settings, output.input.sha256, scorer.reader.read)
    expected = made.covering(scorer.columns).metadata(prefix="") | {"version": opened.manifest.code_version}
    for key, value in expected.items():
        if said.get(key) != value:
            name = "versions" if key == "version" else "metadata"
            words = f"its metadata say {key} = {_short(said.get(key))}, expected {_short(value)}"
            findings.stop(
                name, words, output.name, f"blr.{key}", None, None, "the model, the run and the input"
            )
    texts = metadata_of(catalog)
    for key, value in texts.items():
        if (
            COUNTS_OF_ROWS.search(key)
            and re.fullmatch(r"\d+", value.strip())
            and int(value) != catalog.n_rows
        ):
            words = f"its metadata say {key} = {value}, but it has {catalog.n_rows:,} rows"
            findings.stop("metadata", words, output.name, key, int(value), catalog.n_rows, "the rows")
    if source is None or source.format != catalog.format:
        return
    original = metadata_of(source)
    for key, value in original.items():
        if key not in texts or (texts[key] != value and not REWRITTEN.match(key)):
            words = f"the input says {key} = {_short(value)}, the copy {_short(texts.get(key))}"
            findings.stop("metadata", words, output.name, key, None, None, "the input's header")
    for key in texts:
        if not (key in original or ADDED.search(key) or REWRITTEN.match(key)):
            words = f"the copy says {key} = {_short(texts[key])}, the input nothing"
            findings.look("metadata", words, output.name, key, None, None, "the input's header")


def metadata_of(catalog: Catalog) -> dict[str, str]:
    """Return what a file says of itself beside its columns and our provenance; of FITS, its cards."""
    if catalog.format != "fits":
        return {k: str(v) for k, v in catalog.metadata.items() if not is_provenance(k)}
    cards: dict[str, str] = {}
    for header, text in catalog.partitions[0].beside_the_columns()[0].items():
        for line in text.splitlines():
            keyword = line[:8].strip()
            if line.startswith("HISTORY") and not re.match(r"HISTORY (?:blr |  )", line):
                cards[f"fits card HISTORY {line[8:].strip()}"] = ""
            elif "=" in line[8:10] and not STRUCTURAL.fullmatch(keyword):
                value = line[10:].split(" /")[0].strip().strip("'").strip()
                cards[f"fits card {header.removeprefix('fits.')} {keyword}"] = value
    return cards


def _short(value: str | None) -> str:
    return "nothing" if value is None else repr(value if len(value) <= 40 else f"{value[:37]}...")


def check_summaries(
    opened: Opened, by_file: Mapping[str, Mapping[str, int]], classes: Sequence[str], findings: Findings
) -> None:
    """Compare the counts of summary.json and of the manifest with those of the rows."""
    findings.ran("summaries", "counts of classes and flags are those of the rows")
    whole: Counter[str] = Counter()
    for name, counts in by_file.items():
        output = opened.manifest.find(name)
        kept = None if output is None else output.summary
        if kept is None or kept.counted:
            whole.update(counts)
        if kept is None:
            continue
        assigned = {f"class {c}": n for c, n in zip(classes, kept.tally.assigned, strict=True)}
        flags = {f"flag {flag}": n for flag, n in kept.tally.flags.items()}
        _compare_counts({"rows": kept.tally.n_rows, **assigned, **flags}, counts, name, findings, MANIFEST)
        for c, expected in zip(classes, kept.tally.expected, strict=True):
            if abs(expected - counts[f"expected {c}"]) > 1 + 1e-4 * kept.tally.n_rows:
                said = f"{MANIFEST} expects {expected:,.1f} of {c}, the rows give {counts[f'expected {c}']:,}"
                findings.stop("summaries", said, name, c, expected, counts[f"expected {c}"], "the rows")
    stated = [] if opened.manifest.totals is None else [(MANIFEST, opened.manifest.totals)]
    try:
        stated.append((SUMMARY, read_document(Summary, opened.data / SUMMARY)))
    except (OSError, DocumentError) as error:
        findings.stop("summaries", f"{SUMMARY} cannot be read: {error!s:.200}", SUMMARY)
    for source, totals in stated:
        of_classes = {f"class {c}": n["assigned"] for c, n in totals.classes.items()}
        of_flags = {f"flag {flag}": n["count"] for flag, n in totals.flags.items()}
        _compare_counts({"rows": totals.n_rows, **of_classes, **of_flags}, whole, source, findings, source)


def _compare_counts(
    said: Mapping[str, int], counts: Mapping[str, int], file: str, findings: Findings, source: str
) -> None:
    for key, n in said.items():
        if n != counts.get(key, 0):
            words = f"{source} says {n:,} of {key}, the rows have {counts.get(key, 0):,}"
            findings.stop("summaries", words, file, key, n, counts.get(key, 0), "the rows")
