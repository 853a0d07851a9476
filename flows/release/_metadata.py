"""What a release's files, headers and summaries say, compared with what its rows are."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence

from catalogs.catalog.catalog import Catalog, Convertible
from catalogs.catalog.earlier_columns import is_provenance
from flows.classification.scoring import Scorer, provenance
from flows.documents import read_document
from flows.errors import DocumentError
from flows.release._contract import Findings, Opened
from flows.runs.counts import Summary
from flows.runs.manifest import MANIFEST, SUMMARY
from flows.runs.outputs import Output

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
OWN_FILES = re.compile(
    r"manifest\.json|summary\.json|audit\.json|report\.html|(?:hats\.|collection\.)?properties|partition_info\.csv|"
    r"data_thumbnail\.parquet|\w*map(?:_order_\d+)?\.fits|README.*"
)
"""Names of files beside the annotated ones."""


def check_files(opened: Opened, findings: Findings) -> None:
    """Compare the files of a release with its manifest: no link, none more, none that could not be classified."""
    n = f"{len(opened.manifest.outputs):,} files"
    findings.ran("checksums", f"{n} have the bytes that were written")
    findings.ran("partitions", f"{n}, as the manifest lists")
    listed = {o.name for o in opened.manifest.outputs}
    for path in sorted(opened.data.rglob("*")):
        relative = path.relative_to(opened.data)
        if path.is_symlink():
            findings.stop("checksums", "a symbolic link, whose target may change", str(relative))
        hidden = any(part.startswith(("_", ".")) for part in relative.parts)
        if hidden or not path.is_file() or relative.as_posix() in listed or OWN_FILES.fullmatch(path.name):
            continue
        findings.stop("partitions", "a file that the manifest does not list", str(relative))
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
    for key, value in metadata_of(source).items():
        if key not in texts or (texts[key] != value and not REWRITTEN.match(key)):
            words = f"the input says {key} = {_short(value)}, the copy {_short(texts.get(key))}"
            findings.stop("metadata", words, output.name, key, None, None, "the input's header")


def metadata_of(catalog: Catalog) -> dict[str, str]:
    """Return what a file says of itself beside its columns and our provenance; of FITS, its cards."""
    partition = catalog.partitions[0]
    if catalog.format != "fits" or not isinstance(partition, Convertible):
        return {k: str(v) for k, v in catalog.metadata.items() if not is_provenance(k)}
    cards: dict[str, str] = {}
    for header, text in partition.beside_the_columns()[0].items():
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
        if kept is None or not kept.repeats_rows:
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
    if opened.manifest.totals is not None:
        _compare_counts(_said(opened.manifest.totals), whole, MANIFEST, findings, MANIFEST)
    try:
        _compare_counts(
            _said(read_document(Summary, opened.data / SUMMARY)), whole, SUMMARY, findings, SUMMARY
        )
    except (OSError, DocumentError) as error:
        findings.stop("summaries", f"{SUMMARY} cannot be read: {error!s:.200}", SUMMARY)


def _said(totals: Summary) -> dict[str, int]:
    """Return the counts that a summary states."""
    classes = {f"class {name}": c.assigned for name, c in totals.classes.items()}
    return {"rows": totals.n_rows, **classes, **{f"flag {name}": f.count for name, f in totals.flags.items()}}


def _compare_counts(
    said: Mapping[str, int], counts: Mapping[str, int], file: str, findings: Findings, source: str
) -> None:
    for key, n in said.items():
        if n != counts.get(key, 0):
            words = f"{source} says {n:,} of {key}, the rows have {counts.get(key, 0):,}"
            findings.stop("summaries", words, file, key, n, counts.get(key, 0), "the rows")
