"""What goes with a release: the page that is read before signing, README, column table, citation and provenance."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np

from catalogs.files.atomic import atomic_write_text
from flows.documents import read_document
from flows.plots.axes import new_axes
from flows.plots.catalogue import plot_sky
from flows.plots.style import CLASSES
from flows.release._contract import PROFILE, Check, Contract, Opened, Profile
from flows.release._rows import CELL_ORDER
from flows.release.check import Checked, check_table
from flows.reports.answers import Answer, Finding
from flows.reports.data import Made
from flows.reports.html import Page, Picture, TableGroup, drawn, made_words, render_page
from flows.reports.report_table import ReportTable

__all__ = ["write_release_documents"]

KINDS = ("conservation", "contract", "replay", "negative controls", "differences", "truth")
QUESTIONS = {
    "conservation": "Is every object here, once, with its input unchanged?",
    "contract": "Do the files hold what they promise?",
    "replay": "Did the named model make these rows?",
    "differences": "What changed since the last release?",
}


def write_release_documents(
    folder: Path,
    name: str,
    version: str,
    contract: Contract,
    checked: Checked,
    profile: Profile,
    opened: Opened,
    last_folder: Path | None,
) -> None:
    """Write the report and the documents that a reader of the release needs, without knowing blr."""
    before = None if last_folder is None else read_document(Profile, last_folder / PROFILE)
    atomic_write_text(folder / "report.html", render_release(checked, profile, before, opened))
    atomic_write_text(folder / "README.md", _readme(name, version, contract, checked, profile))
    atomic_write_text(folder / "columns.csv", _columns(contract, profile))
    atomic_write_text(folder / "KNOWN_ISSUES.md", _issues(name, version, checked))
    atomic_write_text(folder / "CITATION.cff", _citation(name, version, checked))
    atomic_write_text(
        folder / "provenance.json", json.dumps(_provenance(name, version, opened, checked), indent=1) + "\n"
    )


def render_release(checked: Checked, profile: Profile, before: Profile | None, opened: Opened) -> str:
    """Return the page of a release as HTML: what changed, what looks odd, and the checks by severity."""
    stops, looks = checked.stops, checked.looks
    if stops:
        use = Answer(
            question="Can it be signed?",
            short=f"No: {len(stops)} checks say stop ({', '.join(stops)}).",
            level="bad",
        )
    elif looks:
        use = Answer(
            question="Can it be signed?", short=f"Yes, after a look at {', '.join(looks)}.", level="care"
        )
    else:
        use = Answer(question="Can it be signed?", short="Yes: all checks pass.", level="good")
    model = opened.model.label
    return render_page(
        Page(
            title=f"{checked.name} {checked.version}",
            version=checked.digest[:12],
            kind="release report",
            lead=f"{profile.n_rows:,} objects in {len(opened.manifest.outputs):,} files, classified by {model}; "
            + (f"compared with release {checked.last}." if checked.last else "the first release."),
            made=made_words(Made.now(), opened.manifest.code_version),
            use=use,
            four=[_answer(checked, kind) for kind in QUESTIONS],
            parts=(),
            pictures=tuple(_pictures(profile, before)),
            lacking="" if profile.cells else "Positions are not known, so there are no maps.",
            groups=(
                TableGroup(title="Checks, the worst first", tables=(check_table(checked),)),
                *_changes(checked),
            ),
            remarks=(),
            last=TableGroup(title="Negative controls and known objects", tables=_numbers(checked)),
            provenance={
                "model": model,
                "settings": f"sha256 {opened.manifest.specification_hash}",
                "content": f"sha256 {checked.digest}",
                "blr": opened.manifest.code_version,
                "seed": str(checked.seed),
                "rows scored again": f"{checked.n_replayed:,}",
            },
        )
    )


def _answer(checked: Checked, kind: str) -> Answer:
    found = [c for c in checked.checks if c.kind == kind]
    bad = [c for c in found if c.verdict != "pass"]
    worst = "stop" if any(c.verdict == "stop" for c in bad) else "look"
    findings = tuple(_finding(c) for c in (bad or found)[:4])
    if not bad:
        short = (
            "Yes."
            if kind != "differences"
            else f"{checked.class_changed:,} of {checked.compared:,} objects have another class."
        )
        return Answer(question=QUESTIONS[kind], short=short, level="good", findings=findings)
    names = ", ".join(dict.fromkeys(c.name for c in bad))
    return Answer(
        question=QUESTIONS[kind],
        short=f"{'No' if worst == 'stop' else 'Look'}: {names}.",
        level="bad" if worst == "stop" else "care",
        findings=findings,
    )


def _finding(check: Check) -> Finding:
    level = {"stop": "bad", "look": "care", "pass": "good"}[check.verdict]
    place = f" ({check.place})" if check.place else ""
    return Finding(what=f"{check.name}: {check.found}{place}".rstrip("."), level=level)  # type: ignore[arg-type]


def _pictures(profile: Profile, before: Profile | None) -> Iterator[Picture]:
    """Yield maps of the sky: objects with flags, and changes of the shares of a class since the last release."""
    cells = [c for c in profile.cells if profile.cells[c].get("rows", 0) >= 5]
    if not cells:
        return
    pixels = np.array([int(c) for c in cells])
    rows = np.array([profile.cells[c]["rows"] for c in cells], float)
    flagged = np.array([profile.cells[c].get("flagged", 0) for c in cells], float) / rows
    yield drawn(
        plot_sky(
            new_axes(5.2, 2.8),
            pixels,
            flagged,
            order=CELL_ORDER,
            title="Share of objects with a flag",
            percent=True,
        ),
        "Where objects have flags",
        "Fields that differ from their neighbours deserve a look.",
        "Map of the share of flagged objects",
    )
    if before is not None and (shared := [c for c in cells if before.cells.get(c, {}).get("rows", 0) >= 5]):
        change = np.zeros(len(shared))
        for name in profile.classes:
            now = np.array([profile.cells[c].get(name, 0) / profile.cells[c]["rows"] for c in shared])
            was = np.array([before.cells[c].get(name, 0) / before.cells[c]["rows"] for c in shared])
            change = np.maximum(change, np.abs(now - was))
        yield drawn(
            plot_sky(
                new_axes(5.2, 2.8),
                np.array([int(c) for c in shared]),
                change,
                order=CELL_ORDER,
                title="Change of class shares",
                colour=CLASSES[1],
                percent=True,
            ),
            "Where class shares changed",
            "The largest change of any class's share since the last release.",
            "Map of the changes of class shares",
        )


def _changes(checked: Checked) -> Sequence[TableGroup]:
    if not checked.compared:
        return ()
    moves = ReportTable(
        title="Changes of class",
        columns=("was", "is", "objects"),
        numeric=frozenset({2}),
        rows=tuple((t.was or "none", t.now or "none", f"{t.objects:,}") for t in checked.transitions[:20]),
    )
    why = ReportTable(
        title="What changed them",
        columns=("cause", "objects"),
        numeric=frozenset({1}),
        rows=tuple((cause, f"{n:,}") for cause, n in checked.attributed.items()),
        note="Old features were scored with the new model, and new features with the old one.",
    )
    first = ReportTable(
        title="Objects whose probability changed most",
        columns=("file", "row", "was", "is", "by"),
        numeric=frozenset({4}),
        rows=tuple(
            (e.file, e.id, e.was or "none", e.now or "none", f"{e.moved:.2f}") for e in checked.examples
        ),
    )
    return (TableGroup(title=f"Changes since release {checked.last}", tables=(moves, why, first)),)


def _numbers(checked: Checked) -> tuple[ReportTable, ...]:
    controls = ReportTable(
        title="Rows that no object has",
        columns=("rows", "confident classes without a flag"),
        numeric=frozenset({1}),
        rows=tuple((name, f"{rate:.0%}") for name, rate in checked.controls.items()),
    )
    truth = ReportTable(
        title="Objects whose class is known",
        columns=("quantity", "value", "95 % interval"),
        numeric=frozenset({1}),
        rows=tuple(
            (name, f"{x:.1%}", f"{low:.1%} to {high:.1%}") for name, (x, low, high) in checked.truth.items()
        ),
    )
    return (controls, truth) if checked.truth else (controls,)


def _readme(name: str, version: str, contract: Contract, checked: Checked, profile: Profile) -> str:
    classes = "\n".join(f"| {c} | {n:,} |" for c, n in profile.classes.items())
    files = "\n".join(f"| data/{f} | {n.get('rows', 0):,} |" for f, n in profile.files.items())
    lines = [
        f"# {name} {version}",
        f"{profile.n_rows:,} objects in {len(profile.files):,} files, classified by the model {contract.model}.",
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
    for column in contract.columns:
        seen = profile.columns.get(column.name)
        numbers = ("", "", "", "") if seen is None else (seen.minimum, seen.maximum, seen.missing, seen.n)
        writer.writerow(
            (
                column.name,
                column.datatype,
                column.unit or "",
                column.ucd or "",
                column.description or "",
                *numbers,
            )
        )
    return text.getvalue()


def _issues(name: str, version: str, checked: Checked) -> str:
    found = [c for c in checked.checks if c.verdict != "pass"]
    lines = [f"- **{c.verdict}**, {c.name}: {c.found}" + (f" ({c.place})" if c.place else "") for c in found]
    return f"# Known issues of {name} {version}\n\n" + ("\n".join(lines) or "The checks found none.") + "\n"


def _citation(name: str, version: str, checked: Checked) -> str:
    return (
        "cff-version: 1.2.0\ntype: dataset\nmessage: If you use this release, please cite it.\n"
        f"title: {json.dumps(name)}\nversion: {json.dumps(version)}\ndate-released: {checked.checked[:10]}\n"
        f"identifiers:\n  - type: other\n    value: sha256:{checked.digest}\n    description: digest of the content\n"
    )


def _provenance(name: str, version: str, opened: Opened, checked: Checked) -> dict[str, object]:
    """Return what made the release as W3C PROV-JSON."""
    release, run, model = f"release:{name}-{version}", "run:classification", f"model:{opened.model.label}"
    files = {
        f"file:{o.name}": {"prov:type": "annotated catalogue", "blr:sha256": o.sha256}
        for o in opened.manifest.outputs
    }
    inputs = {
        f"input:{o.input_path}": {"prov:type": "catalogue", "blr:sha256": o.input.sha256}
        for o in opened.manifest.outputs
    }
    return {
        "prefix": {"blr": "https://github.com/galaxyblr/galaxyblr#", "prov": "http://www.w3.org/ns/prov#"},
        "entity": {
            release: {"blr:content": checked.digest},
            model: {"blr:id": str(opened.model.id)},
            **files,
            **inputs,
        },
        "activity": {
            run: {
                "blr:version": opened.manifest.code_version,
                "blr:settings": opened.manifest.specification_hash,
                "prov:endTime": opened.manifest.created,
            }
        },
        "used": {f"_:u{i}": {"prov:activity": run, "prov:entity": e} for i, e in enumerate([model, *inputs])},
        "wasGeneratedBy": {f"_:g{i}": {"prov:entity": e, "prov:activity": run} for i, e in enumerate(files)},
        "hadMember": {f"_:m{i}": {"prov:collection": release, "prov:entity": e} for i, e in enumerate(files)},
    }
