"""What goes with a release: the page that is read before signing, README, column table, citation and provenance."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from catalogs.errors import counted
from catalogs.files import atomic_write_text
from flows.plots.axes import CLASSES, new_axes
from flows.plots.pictures import plot_sky
from flows.release._contract import Contract, Opened, Profile
from flows.release._differences import CELL_ORDER
from flows.release.check import Checked, check_table
from flows.reports.answers import Answer, Finding, Level
from flows.reports.data import made_now
from flows.reports.html import Picture, drawn, made_words, render_page
from flows.reports.report_table import ReportTable

QUESTIONS = {
    "conservation": "Is every object here, once, with its input unchanged?",
    "contract": "Do the files hold what they promise?",
    "replay": "Did the named model make these rows?",
    "differences": "What changed since the last release?",
}


def write_release_documents(opened: Opened, checked: Checked, profile: Profile, last: Opened | None) -> None:
    """Write the report and the documents that a reader of the release needs, without knowing blr."""
    before, contract = None if last is None else last.profile, opened.contract
    provenance = json.dumps(_provenance(opened, checked), indent=1) + "\n"
    for name, text in {
        "report.html": render_release(checked, profile, before, opened),
        "README.md": _readme(contract, checked, profile),
        "columns.csv": _columns(contract, profile),
        "KNOWN_ISSUES.md": _issues(checked),
        "CITATION.cff": _citation(checked),
        "provenance.json": provenance,
    }.items():
        atomic_write_text(opened.folder / name, text)


def _size(profile: Profile) -> str:
    return f"{counted(profile.n_rows, 'object')} in {counted(len(profile.files), 'file')}"


def render_release(checked: Checked, profile: Profile, before: Profile | None, opened: Opened) -> str:
    """Return the page of a release as HTML: what changed, what looks odd, and the checks by severity."""
    stops, looks = checked.stops, checked.names("look")
    level: Level = "bad" if stops else "care" if looks else "good"
    short = {
        "bad": f"No: {checked.verdict} ({', '.join(stops)}).",
        "care": f"Yes, after a look at {', '.join(looks)}.",
        "good": "Yes: all checks pass.",
    }[level]
    model = opened.model.label
    compared = f"compared with release {checked.last}." if checked.last else "the first release."
    return render_page(
        title=f"{checked.name} {checked.version}",
        version=checked.digest[:12],
        kind="release report",
        lead=f"{_size(profile)}, classified by {model}; {compared}",
        made=made_words(made_now(), opened.manifest.code_version),
        use=Answer(question="Can it be signed?", short=short, level=level),
        four=[_answer(checked, kind) for kind in QUESTIONS],
        parts=(),
        pictures=tuple(_pictures(profile, before)),
        lacking="" if profile.cells else "Positions are not known, so there are no maps.",
        groups=(
            ("Checks, the worst first", (check_table(checked),)),
            *_changes(checked),
        ),
        last=("Negative controls and known objects", _numbers(checked)),
        provenance={
            "model": model,
            "settings": f"sha256 {opened.manifest.specification_hash}",
            "content": f"sha256 {checked.digest}",
            "blr": opened.manifest.code_version,
            "seed": str(checked.seed),
            "rows scored again": f"{checked.n_replayed:,}",
        },
    )


LEVELS: Mapping[str, Level] = {"stop": "bad", "look": "care", "pass": "good"}


def _answer(checked: Checked, kind: str) -> Answer:
    """Return the answer to a question, from the checks of a kind; the worst come first."""
    found = [c for c in checked.checks if c.kind == kind]
    bad = [c for c in found if c.verdict != "pass"]
    level = LEVELS[bad[0].verdict] if bad else "good"
    if bad:
        names = ", ".join(dict.fromkeys(c.name for c in bad))
        short = f"{'No' if level == 'bad' else 'Look'}: {names}."
    elif kind == "differences":
        short = f"{checked.class_changed:,} of {checked.compared:,} objects have another class."
    else:
        short = "Yes."
    findings = []
    for c in (bad or found)[:4]:
        place = f" ({c.place})" if c.place else ""
        findings.append(Finding(what=f"{c.name}: {c.found}{place}".rstrip("."), level=LEVELS[c.verdict]))
    return Answer(question=QUESTIONS[kind], short=short, level=level, findings=tuple(findings))


def _pictures(profile: Profile, before: Profile | None) -> Iterator[Picture]:
    """Yield maps of the sky: objects with flags, and changes of the shares of a class since the last release."""
    cells = {c: counts for c, counts in profile.cells.items() if counts["rows"] >= 5}
    flagged = {c: counts.get("flagged", 0) / counts["rows"] for c, counts in cells.items()}
    yield from _sky_map(
        flagged,
        "Where objects have flags",
        "Fields that differ from their neighbours deserve a look.",
        title="Share of objects with a flag",
    )
    change = {}
    for cell, now in cells.items():
        was = {} if before is None else before.cells.get(cell, {})
        if was.get("rows", 0) >= 5:
            shares = ((one.get(name, 0) / one["rows"] for one in (now, was)) for name in profile.classes)
            change[cell] = max(abs(a - b) for a, b in shares)
    yield from _sky_map(
        change,
        "Where class shares changed",
        "The largest change of any class's share since the last release.",
        title="Change of class shares",
        colour=CLASSES[1],
    )


def _sky_map(shares: Mapping[str, float], caption: str, words: str, **style: Any) -> Iterator[Picture]:
    """Yield a map of shares by HEALPix cell, where there are any."""
    if shares:
        pixels, values = np.array([int(cell) for cell in shares]), np.array([*shares.values()])
        axes = plot_sky(new_axes(5.2, 2.8), pixels, values, order=CELL_ORDER, percent=True, **style)
        yield drawn(axes, caption, words, f"Map: {style['title']}")


def _table(
    title: str, columns: tuple[str, ...], rows: Iterable[tuple[str, ...]], numeric: int, note: str = ""
) -> ReportTable:
    return ReportTable(
        title=title, columns=columns, rows=tuple(rows), numeric=frozenset({numeric}), note=note
    )


def _changes(checked: Checked) -> Sequence[tuple[str, Sequence[ReportTable]]]:
    if not checked.compared:
        return ()
    moves = ((t["was"] or "none", t["now"] or "none", f"{t['objects']:,}") for t in checked.transitions[:20])
    why = ((cause, f"{n:,}") for cause, n in checked.attributed.items())
    first = ((e.file, e.id, e.was or "none", e.now or "none", f"{e.moved:.2f}") for e in checked.examples)
    note = "Old features were scored with the new model, and new features with the old one."
    tables = (
        _table("Changes of class", ("was", "is", "objects"), moves, 2),
        _table("What changed them", ("cause", "objects"), why, 1, note),
        _table("Objects whose probability changed most", ("file", "row", "was", "is", "by"), first, 4),
    )
    return ((f"Changes since release {checked.last}", tables),)


def _numbers(checked: Checked) -> tuple[ReportTable, ...]:
    rates = ((name, f"{rate:.0%}") for name, rate in checked.controls.items())
    controls = _table("Rows that no object has", ("rows", "confident classes without a flag"), rates, 1)
    known = ((name, f"{x:.1%}", f"{low:.1%} to {high:.1%}") for name, (x, low, high) in checked.truth.items())
    truth = _table("Objects whose class is known", ("quantity", "value", "95 % interval"), known, 1)
    return (controls, truth) if checked.truth else (controls,)


def _readme(contract: Contract, checked: Checked, profile: Profile) -> str:
    classes = "\n".join(f"| {c} | {n:,} |" for c, n in profile.classes.items())
    files = "\n".join(f"| data/{f} | {n.get('rows', 0):,} |" for f, n in profile.files.items())
    lines = [
        f"# {checked.name} {checked.version}",
        f"{_size(profile)}, classified by the model {contract.model}.",
        "- `columns.csv`: every column, its type, unit, UCD and meaning",
        "- `KNOWN_ISSUES.md`: what the checks found; `report.html`: the report that was read before signing",
        "- `provenance.json`: W3C PROV; `SHA256SUMS`: `sha256sum -c SHA256SUMS` verifies every file",
        "- `signature.json`: who signed the release, and why",
        "- `model.asdf`: the model; `blr release replay FILE --model model.asdf` scores rows again",
        f"| class | objects |\n|---|---|\n{classes}",
        f"| file | rows |\n|---|---|\n{files}",
        f"Compared with: {checked.last or 'no release before'}.",
    ]
    return "\n\n".join(lines) + "\n"


def _columns(contract: Contract, profile: Profile) -> str:
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(("name", "type", "unit", "ucd", "description", "minimum", "maximum", "missing", "rows"))
    for c in contract.columns:
        seen = profile.columns.get(c.name)
        numbers = () if seen is None else (seen.minimum, seen.maximum, seen.missing, seen.n)
        writer.writerow((c.name, c.datatype, c.unit, c.ucd, c.description, *numbers))  # None is empty
    return text.getvalue()


def _issues(checked: Checked) -> str:
    found = [c for c in checked.checks if c.verdict != "pass"]
    lines = [f"- **{c.verdict}**, {c.name}: {c.found}" + (f" ({c.place})" if c.place else "") for c in found]
    said = "\n".join(lines) or "The checks found none."
    return f"# Known issues of {checked.name} {checked.version}\n\n{said}\n"


def _citation(checked: Checked) -> str:
    return (
        "cff-version: 1.2.0\ntype: dataset\nmessage: If you use this release, please cite it.\n"
        f"title: {json.dumps(checked.name)}\nversion: {json.dumps(checked.version)}\n"
        f"date-released: {checked.checked[:10]}\nidentifiers:\n  - type: other\n"
        f"    value: sha256:{checked.digest}\n    description: digest of the content\n"
    )


def _provenance(opened: Opened, checked: Checked) -> dict[str, object]:
    """Return what made the release as W3C PROV-JSON."""
    manifest, model = opened.manifest, f"model:{opened.model.label}"
    release, run = f"release:{checked.name}-{checked.version}", "run:classification"
    files, inputs = {}, {}
    for o in manifest.outputs:
        files[f"file:{o.name}"] = {"prov:type": "annotated catalogue", "blr:sha256": o.sha256}
        inputs[f"input:{o.input_path}"] = {"prov:type": "catalogue", "blr:sha256": o.input.sha256}
    made = {
        "blr:version": manifest.code_version,
        "blr:settings": manifest.specification_hash,
        "prov:endTime": manifest.created,
    }
    about = {release: {"blr:content": checked.digest}, model: {"blr:id": str(opened.model.id)}}
    return {
        "prefix": {"blr": "https://github.com/galaxyblr/galaxyblr#", "prov": "http://www.w3.org/ns/prov#"},
        "entity": {**about, **files, **inputs},
        "activity": {run: made},
        "used": {f"_:u{i}": {"prov:activity": run, "prov:entity": e} for i, e in enumerate([model, *inputs])},
        "wasGeneratedBy": {f"_:g{i}": {"prov:entity": e, "prov:activity": run} for i, e in enumerate(files)},
        "hadMember": {f"_:m{i}": {"prov:collection": release, "prov:entity": e} for i, e in enumerate(files)},
    }
