"""The contract of a release: what its files must hold, and how the checks say what they found.

A contract is written from the model, the inputs and the last release, and may be edited before the check.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from catalogs.catalog.catalog import Catalog, Column, is_provenance
from catalogs.catalog.new_columns import NewColumn
from catalogs.errors import CatalogError, counted
from catalogs.formats import open_annotated
from catalogs.metadata.fits_cards import metadata_of
from catalogs.profile.columns import ColumnRange
from flows.classification.scoring import Scorer, flag_names, provenance
from flows.documents import read_document, word_table
from flows.errors import DocumentError
from flows.models.model import Model, read_model
from flows.models.row_files import ROWS_FILE
from flows.runs.manifest import MANIFEST, SUMMARY, SUMS, FlagDetails, Manifest, Output
from flows.runs.results import ORDER, Check, Counts, Profile, Summary, Verdict
from flows.specification.specification import Specification, specification_hash
from flows.specification.toml_file import read_specification

CONTRACT = "contract.json"
DATA = "data"
MODEL = "model.asdf"
SETTINGS = "specification.toml"
PROFILE = "profile.json"
MOST_ROWS = 20  # that a check names
MOST_PLACES = 12  # that a check names one by one
ROOM = 0.5  # part of a range's width by which values may exceed the last release's range on either side
LEAST_KNOWN = 500  # values that make a range a limit: the extremes of fewer move far
TEXTS = {"string", "large_string", "string_view"}  # they differ only in how Arrow keeps them

CHECKS = word_table("checks.toml")  # by name, the kind of a check, and what is said of one that passes
ROW_CHECKS = tuple(name for name, (_, said) in CHECKS.items() if said.startswith("{rows:,} rows"))


def check_of(name: str, verdict: Verdict, found: str, **where: Any) -> Check:
    """Return a check with its kind."""
    kind, _ = CHECKS["companion" if name.startswith("companion ") else name]
    return Check(kind=kind, name=name, verdict=verdict, found=found, **where)


class Findings:
    """The findings of a check, by name; a check without findings has passed."""

    def __init__(self) -> None:
        self.found: list[Check] = []
        self.done: dict[str, Check] = {}
        self.kept: Counter[tuple[str, Verdict]] = Counter()
        self.left_out: Counter[tuple[str, Verdict]] = Counter()

    def ran(self, *names: str, **numbers: Any) -> None:
        """Note that checks were made; their numbers are said of those that pass."""
        for name in names:
            _, said = CHECKS["companion" if name.startswith("companion ") else name]
            self.done.setdefault(name, check_of(name, "pass", said.format(**numbers)))

    def add(self, verdict: Verdict, name: str, found: str, *where: Any, rows: Iterable[int] = ()) -> None:
        """Note a finding with its file, field, number, limit, and the limit's source.

        Of many places only the first are named, and the first of each column.
        """
        about = dict(zip(("file", "field", "number", "limit", "source"), where, strict=False))
        about |= {k: float(about[k]) for k in ("number", "limit") if about.get(k) is not None}
        check = check_of(name, verdict, found, **about, rows=tuple(rows)[:MOST_ROWS])
        known = any((c.name, c.verdict, c.field) == (name, verdict, check.field) for c in self.found)
        if self.kept[name, verdict] >= MOST_PLACES and known:
            self.left_out[name, verdict] += 1
            return
        self.kept[name, verdict] += 1
        self.found.append(check)

    def stop(self, name: str, found: str, *where: Any, rows: Iterable[int] = ()) -> None:
        """Note a fault."""
        self.add("stop", name, found, *where, rows=rows)

    def look(self, name: str, found: str, *where: Any) -> None:
        """Note what a person should look at."""
        self.add("look", name, found, *where)

    def graded(self, name: str, found: str, limits: tuple[float, float], *where: Any, source: str) -> bool:
        """Note a number, the last of `where`, beyond the first of two limits; say whether it is beyond the second."""
        low, high = limits
        far = abs(where[-1]) > high
        if abs(where[-1]) > low:
            self.add("stop" if far else "look", name, found, *where, high if far else low, source)
        return far

    def checks(self) -> tuple[Check, ...]:
        """Return all checks, the worst first."""
        bad = {check.name for check in self.found}
        more = [check_of(*key, f"{n:,} more places") for key, n in self.left_out.items()]
        good = [check for name, check in self.done.items() if name not in bad]
        return tuple(sorted([*self.found, *more, *good], key=lambda c: ORDER.index(c.verdict)))


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


def _contract_column(column: Column | NewColumn, source: str) -> ContractColumn:
    """Return a column of a catalogue as a contract has it."""
    same = {key: getattr(column, key) for key in ("name", "unit", "ucd", "description")}
    null, shape = getattr(column, "null", None), getattr(column, "shape", ())
    return ContractColumn(**same, datatype=str(column.datatype), null=null, shape=shape, source=source)


def derived_contract(
    opened: Opened, last: Opened | None, *, companions: Sequence[str] = (), id_column: str | None = None
) -> Contract:
    """Return the contract that follows from the run, its model, its inputs and the last release.

    New columns are as the model promises; old ones as in the inputs, and as in the contract of the last release.
    Whatever a unit, UCD or description was in the training catalogue, it must be still.
    """
    manifest, model, scorer = opened.manifest, opened.model, Scorer.of(opened.model, opened.settings)
    copy = open_annotated(opened.data / manifest.outputs[0].name, scorer.prefix)
    names, inputs = copy.names, dict[str, Column]()
    for output in manifest.outputs:  # of the first input that is still there
        with suppress(CatalogError, OSError):
            inputs = {c.name: c for c in scorer.choice.open(opened.data / output.input_path).columns}
            break
    if opened.settings.output.mode == "slim":
        inputs = {name: column for name, column in inputs.items() if name in names}
    made = {c.name: _ranged(_contract_column(c, f"model {model.label}")) for c in scorer.columns}
    before, seen = (None, {}) if last is None else (last.contract, last.profile.columns)
    release = f"release {last.version}" if last else ""
    promised = {c.name: c for c in before.columns if c.name not in before.made} if before else {}
    old = {name: _contract_column(column, "input") for name, column in inputs.items()}
    columns = [
        _promised(old.get(name) or promised[name], promised.get(name), model, release, seen.get(name))
        for name in dict.fromkeys([*names, *inputs, *promised])
        if name not in made and (name in old or name in promised)
    ]
    columns += made.values()
    # CSV says nothing of a column, and a new one has the type that its texts look like.
    if copy.format == "csv":
        types = {name: str(copy.column(name).datatype) for name in made}
        columns = [
            replace(c, datatype=types.get(c.name, c.datatype), unit=None, ucd=None, description=None)
            for c in columns
        ]
    position, flags = manifest.position, flag_names()
    return Contract(
        model=model.label,
        model_id=model.id,
        code_version=manifest.code_version,
        specification_hash=specification_hash(opened.settings),
        prefix=scorer.prefix,
        classes=model.classes,
        columns=tuple(columns),
        made=tuple(made),
        flags={str(bit): FlagDetails(name=name, meaning=meaning) for bit, (name, meaning) in flags.items()},
        partitions=tuple(o.name for o in manifest.outputs),
        id=id_column or (before.id if before else None) or position.id,
        ra=position.ra,
        dec=position.dec,
        position_unit=position.unit,
        companions=tuple(companions),
        last=last.version if last else None,
    )


def _promised(
    column: ContractColumn, old: ContractColumn | None, model: Model, release: str, seen: ColumnRange | None
) -> ContractColumn:
    """Return a column with what the last release promised of it, or else the training catalogue, and with its range."""
    trained = model.columns.get(column.name)
    for key in ("unit", "ucd", "description"):
        value = (old and getattr(old, key)) or (trained and getattr(trained, key))
        if value and getattr(column, key) != value and (old or getattr(column, key) is None):
            column = replace(column, **{key: value}, source=release if old else "the training catalogue")
    if old is not None:
        column = replace(column, datatype=old.datatype, null=old.null, source=release)
    if seen is not None and seen.n - seen.missing >= LEAST_KNOWN and None not in {seen.minimum, seen.maximum}:
        low, high = float(seen.minimum or 0), float(seen.maximum or 0)
        column = replace(column, minimum=low - ROOM * (high - low), maximum=high + ROOM * (high - low))
    return column


def _ranged(column: ContractColumn) -> ContractColumn:
    """Return a new column with the range that its meaning gives it."""
    share = (column.ucd or "").startswith("stat.probability")
    some = column.ucd == "stat.stdev" or column.name.endswith(("mutual_info", "entropy"))
    return replace(column, minimum=0.0 if share or some else None, maximum=1.0 if share else None)


def check_columns(contract: Contract, catalog: Catalog, file: str, findings: Findings) -> None:
    """Compare a file's columns with the contract: names, their order, types, units, UCDs, descriptions, nulls."""
    promised = {c.name: c for c in contract.columns}
    names, folded = Counter(catalog.names), {name.casefold(): name for name in catalog.names}

    def stop(check: str, name: str, said: str) -> None:
        findings.stop(check, said, file, name, None, None, promised[name].source if name in promised else "")

    if twice := [name for name, n in names.items() if n > 1]:
        stop("columns", "", f"columns there twice: {', '.join(twice)}")
    for name, want in promised.items():
        if name in names:
            for check, said in _unlike(_contract_column(catalog.column(name), want.source), want):
                stop(check, name, said)
        else:
            spelt = f"is spelt '{folded[name.casefold()]}'" if name.casefold() in folded else "is absent"
            stop("columns", name, f"the column '{name}' {spelt}")
    if extra := [name for name in names if name not in promised]:
        stop("columns", extra[0], f"columns that no contract has: {', '.join(extra)}")
    pairs = zip([n for n in names if n in promised], [n for n in promised if n in names], strict=True)
    for name, wanted in [(a, b) for a, b in pairs if a != b][:1]:
        stop("columns", name, f"the columns are in another order: '{name}' where the contract has '{wanted}'")


def _unlike(got: ContractColumn, want: ContractColumn) -> Iterator[tuple[str, str]]:
    """Yield the checks that a column does not pass, and what is wrong."""
    name = want.name
    alike = {got.datatype, want.datatype} <= TEXTS or got.datatype == want.datatype
    if not alike or got.shape != want.shape:
        types = (c.datatype + (f"{list(c.shape)}" if c.shape else "") for c in (got, want))
        yield "types", "'{}' is {}, promised {}".format(name, *types)
    for key in ("unit", "ucd", "description"):
        here, wanted = getattr(got, key) or "", getattr(want, key) or ""
        if here != wanted and (wanted or key == "unit"):
            yield f"{key}s", f"the {key} of '{name}' is {here or 'absent'!r}, promised {wanted or 'none'!r}"
    if want.null is not None and got.null != want.null:
        yield "nulls", f"the null value of '{name}' is {got.null}, promised {want.null}"


def check_edits(contract: Contract, promised: Contract, findings: Findings) -> None:
    """Note where the contract was edited after it was drafted."""
    findings.ran("contract")
    ours, theirs = ({c.name: c for c in one.columns} for one in (contract, promised))
    changed = [k for k, v in vars(contract).items() if k != "columns" and v != getattr(promised, k)]
    changed += [name for name in dict.fromkeys([*ours, *theirs]) if ours.get(name) != theirs.get(name)]
    if contract != promised:
        findings.look("contract", f"it was edited: {', '.join(changed)}", CONTRACT)


class Opened:
    """A release's folder, its version and its manifest; the rest of it is read when it is asked for.

    A patch has the manifest of the run that it takes its rows from.
    """

    def __init__(self, folder: Path, version: str, manifest: Manifest | None = None) -> None:
        """Open a folder; CatalogError where it has no manifest."""
        self.folder, self.version, self.data = folder, version, folder / DATA
        found = manifest or Manifest.read(self.data)
        if found is None:
            raise CatalogError(f"{self.data}: got no {MANIFEST}; draft the release again")
        self.manifest = found

    @cached_property
    def model(self) -> Model:
        """The model that made the files."""
        return read_model(self.folder / MODEL)

    @cached_property
    def settings(self) -> Specification:
        """The settings of the run."""
        return read_specification(self.folder / SETTINGS)

    @cached_property
    def contract(self) -> Contract:
        """The contract."""
        return read_document(Contract, self.folder / CONTRACT)

    @cached_property
    def profile(self) -> Profile:
        """What the release holds, which its check has found."""
        return read_document(Profile, self.folder / PROFILE)

    @property
    def n_rows(self) -> int:
        """Rows of all files, as the manifest says."""
        return sum(output.n_rows for output in self.manifest.outputs)


COUNTS_OF_ROWS = re.compile(
    r"(?:^|[._ -])(?:n_?rows|num_?rows|nrec|nobj|n_?objects|row_?count|rowcount|total_?rows|hats_nrows|nsources)$",
    re.IGNORECASE,
)
REWRITTEN = re.compile(r"pandas|ARROW:schema|IVOA\.|table_meta_yaml")
"""Keys of metadata that list the columns, and so differ in a copy."""
ADDED = re.compile(r"LONGSTRN$|^table::")  # keys that a copy has for its new columns
OWN_FILES = re.compile(
    r"_(?:files|labelled|census|releases|report)/.*|(?:.*/)?(?:manifest\.json|summary\.json|audit\.json|report\.html|"
    r"(?:hats\.|collection\.)?properties|partition_info\.csv|(?:data_thumbnail|per_partition_statistics)\.parquet|_(?:common_)?metadata|"
    r"\w*map(?:_order_\d+)?\.fits|README(?:\.(?:md|rst|txt))?)"
)
"""Files beside the annotated ones."""
LISTS = re.compile(r"(?:review|outliers|audit)\.(?:csv|vot|html)|audit_design\.json|maps/.*")
"""What `blr review`, `blr audit draw` and `blr map` write into a run's folder for people: no part of a release."""
DOCUMENTS = re.compile(
    r"(?:release|contract|checks|profile|provenance|signature)\.json|specification\.toml|(?:README|KNOWN_ISSUES)\.md|"
    rf"{SUMS}|model\.asdf|{re.escape(ROWS_FILE)}|columns\.csv|CITATION\.cff|report\.html"
)
"""Files of a release beside its data and companions."""


def check_files(opened: Opened, findings: Findings) -> None:
    """Compare the files of a release with its manifest: no link, none more, none that could not be classified."""
    findings.ran("checksums", "partitions", files=counted(len(opened.manifest.outputs), "file"))
    made = {"model": opened.model.label, "model_id": opened.model.id}
    made["specification_hash"] = specification_hash(opened.settings)
    for key, value in made.items():
        if (said := getattr(opened.manifest, key)) != value:
            words = f"it says {key} = {_short(str(said))}, expected {_short(str(value))}"
            findings.stop("metadata", words, MANIFEST, key, None, None, "the model and the settings")
    listed, beside = {o.name for o in opened.manifest.outputs}, {*opened.contract.companions}
    for path in sorted(opened.folder.rglob("*")):
        inside = path.is_relative_to(opened.data)
        relative = path.relative_to(opened.data if inside else opened.folder)
        name, known, own = str(relative), *((listed, OWN_FILES) if inside else (beside, DOCUMENTS))
        temporary = any(part.startswith(".blr-") for part in relative.parts)
        if path.is_file() and not temporary and relative.as_posix() not in known and not own.fullmatch(name):
            findings.stop("partitions", "a file that the manifest does not list", name)
    for root in sorted({name.partition("/")[0] for name in listed if "/dataset/Norder=" in name}):
        try:
            open_annotated(opened.data / root, opened.contract.prefix)
        except CatalogError as error:
            findings.stop("metadata", f"it does not open as HATS: {error}", root)
    for quarantined in opened.manifest.quarantined:
        findings.stop("rows", f"not classified: {quarantined.reason}", quarantined.name)


def check_metadata(
    scorer: Scorer,
    output: Output,
    catalog: Catalog,
    source: Catalog | None,
    findings: Findings,
    *,
    version: str,
) -> None:
    """Compare what a file says of itself with what it holds, and with what its input said.

    `version` is that of the code which made it.
    """
    said = {key.removeprefix("blr."): value for key, value in catalog.metadata.items() if is_provenance(key)}
    made = provenance(scorer, output.input.sha256)
    expected = made.covering(scorer.columns).metadata(prefix="") | {"version": version}
    for key, value in expected.items() if catalog.format != "csv" else ():  # which has no place for metadata
        if said.get(key) != value:
            name = "versions" if key == "version" else "metadata"
            words = f"its metadata say {key} = {_short(said.get(key))}, expected {_short(value)}"
            findings.stop(name, words, output.name, f"blr.{key}", None, None, "model, run and input")
    texts = metadata_of(catalog)
    for key, value in texts.items():
        if COUNTS_OF_ROWS.search(key) and value.strip().isdecimal() and int(value) != catalog.n_rows:
            words = f"its metadata say {key} = {value}, but it has {catalog.n_rows:,} rows"
            findings.stop("metadata", words, output.name, key, int(value), catalog.n_rows, "the rows")
    if source is None or source.format != catalog.format:
        return
    original = metadata_of(source)
    ours = {f"type.{column.name}" for column in scorer.columns}
    for key, value in original.items():
        if key not in texts or (texts[key] != value and not REWRITTEN.match(key)):
            words = f"the input says {key} = {_short(value)}, the copy {_short(texts.get(key))}"
            findings.stop("metadata", words, output.name, key, None, None, "the input's header")
    for key in texts:
        if not (key in original or key in ours or ADDED.search(key) or REWRITTEN.match(key)):
            words = f"the copy says {key} = {_short(texts[key])}, the input nothing"
            findings.look("metadata", words, output.name, key, None, None, "the input's header")


def _short(value: str | None) -> str:
    return "nothing" if value is None else repr(value if len(value) <= 40 else f"{value[:37]}...")


def check_summaries(opened: Opened, by_file: Mapping[str, Mapping[str, int]], findings: Findings) -> None:
    """Compare the counts of summary.json and of the manifest with those of the rows."""
    findings.ran("summaries")
    manifest, classes, whole = opened.manifest, opened.contract.classes, Counter[str]()
    stated: list[tuple[str, str, dict[str, float]]] = []
    for output in (o for o in manifest.outputs if o.name in by_file):
        tally = output.summary.tally
        if output.summary.counted:
            whole.update(by_file[output.name])
        said: dict[str, float] = {f"class {c}": n for c, n in zip(classes, tally.assigned, strict=True)}
        said |= {f"expected {c}": n for c, n in zip(classes, tally.expected, strict=True)}
        said |= {"rows": tally.n_rows} | {f"flag {flag}": n for flag, n in tally.flags.items()}
        stated.append((MANIFEST, output.name, said))
    totals = manifest.totals
    shown: list[tuple[str, str, Counts]] = [(MANIFEST, "", totals)]
    try:
        summary = read_document(Summary, opened.data / SUMMARY)
    except (OSError, DocumentError) as error:
        findings.stop("summaries", f"{SUMMARY} cannot be read: {error!s:.200}", SUMMARY)
    else:
        shown += [(SUMMARY, "", summary), *((SUMMARY, *of_file) for of_file in summary.files.items())]
        if summary.totals != totals:
            other = [key for key, value in vars(totals).items() if getattr(summary.totals, key) != value]
            words = f"{SUMMARY} has other values than {MANIFEST}: {', '.join(other)}"
            findings.stop("summaries", words, SUMMARY)
    for source, name, reported in shown:
        said = {f"class {c}": n["assigned"] for c, n in reported.classes.items()}
        said |= {f"expected {c}": n["expected"] for c, n in reported.classes.items()}
        said |= {"rows": reported.n_rows} | {f"flag {flag}": n["count"] for flag, n in reported.flags.items()}
        stated.append((source, name, said))
    for source, name, said in stated:
        counts, n_files = (by_file.get(name, {}), 1) if name else (whole, len(by_file))
        for key, n in said.items():
            known = counts.get(key, 0)  # sums of probabilities were rounded to whole numbers in each file
            if abs(n - known) > (key.startswith("expected") and n_files + 1e-4 * said["rows"]):
                words = f"{source} says {n:,.10g} of {key}, the rows have {known:,}"
                findings.stop("summaries", words, name or source, key, n, known, "the rows")
