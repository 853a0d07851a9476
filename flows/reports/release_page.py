"""What goes with a release: the page that is read before signing, README, citation and provenance."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence

from catalogs.errors import counted
from flows.documents import template
from flows.models.model import Model
from flows.plots.axes import CLASSES, new_axes
from flows.plots.pictures import plot_sky
from flows.reports._html import Picture, drawn, made_words, render_page
from flows.reports.answers import Answer, Finding, Level
from flows.reports.data import made_now
from flows.reports.report_table import ReportTable
from flows.runs.manifest import Manifest
from flows.runs.results import CELL_ORDER, Check, Checked, Profile

QUESTIONS = {
    "conservation": "Is every object here, once, with its input unchanged?",
    "contract": "Do the files hold what they promise?",
    "replay": "Did the named model make these rows?",
    "differences": "What changed since the last release?",
}


def release_documents(
    manifest: Manifest, model: Model, checked: Checked, profile: Profile, before: Profile | None
) -> dict[str, str]:
    """Return the report and the documents that a reader of the release needs, without knowing blr, by file name."""
    size = f"{counted(profile.n_rows, 'object')} in {counted(len(profile.files), 'file')}"
    lead = f"{size}, classified by {model.label}"
    about = {"checked": checked, "profile": profile, "lead": lead}
    return {
        "report.html": _page(manifest, model, checked, profile, before, lead),
        "README.md": template("release-readme.md.j2").render(about),
        "KNOWN_ISSUES.md": template("release-issues.md.j2", sentence=_sentence).render(about),
        "CITATION.cff": template("release-citation.cff.j2", json=json.dumps).render(about),
        "provenance.json": json.dumps(_provenance(manifest, model, checked), indent=1) + "\n",
    }


def check_table(checked: Checked) -> ReportTable:
    """Return the checks as a table, the worst first."""
    rows = []
    for c in checked.checks:
        numbers = ("" if value is None else f"{value:.4g}" for value in (c.number, c.limit))
        rows.append((c.verdict, c.name, c.found, c.place, *numbers, c.source))
    return ReportTable.of_kind("checks", rows, name=checked.name, version=checked.version)


def _page(
    manifest: Manifest, model: Model, checked: Checked, profile: Profile, before: Profile | None, lead: str
) -> str:
    """Return the page of a release as HTML: what changed, what looks odd, and the checks by severity."""
    stops, looks = checked.stops, checked.names("look")
    level: Level = "bad" if stops else "care" if looks else "good"
    short = f"Yes, after a look at {', '.join(looks)}." if looks else "Yes: all checks pass."
    if stops:
        short = f"No: {checked.verdict} ({', '.join(stops)})."
    compared = f"compared with release {checked.last}." if checked.last else "the first release."
    return render_page(
        title=f"{checked.name} {checked.version}",
        version=checked.digest[:12],
        kind="release report",
        lead=f"{lead}; {compared}",
        made=made_words(made_now(), manifest.code_version),
        use=Answer(question="Can it be signed?", short=short, level=level),
        four=[_answer(checked, *question) for question in QUESTIONS.items()],
        parts=(),
        pictures=tuple(_pictures(profile, before)),
        lacking="" if profile.cells else "Positions are not known, so there are no maps.",
        groups=(("Checks, the worst first", (check_table(checked),)), *_changes(checked)),
        last=("Negative controls and known objects", _numbers(checked)),
        provenance={
            "model": model.label,
            "settings": f"sha256 {manifest.specification_hash}",
            "content": f"sha256 {checked.digest}",
            "blr": manifest.code_version,
            "seed": str(checked.seed),
            "rows scored again": f"{checked.n_replayed:,}",
        },
    )


LEVELS: Mapping[str, Level] = {"stop": "bad", "look": "care", "pass": "good"}


def _answer(checked: Checked, kind: str, question: str) -> Answer:
    """Return the answer to a question, from the checks of a kind; the worst come first."""
    found = [c for c in checked.checks if c.kind == kind]
    bad = [c for c in found if c.verdict != "pass"]
    level, short = LEVELS[bad[0].verdict] if bad else "good", "Yes."
    if bad:
        short = f"{'No' if level == 'bad' else 'Look'}: {', '.join(dict.fromkeys(c.name for c in bad))}."
    elif kind == "differences" and not checked.compared:
        short = "There is nothing to compare with."
    elif kind == "differences":
        short = f"{checked.class_changed:,} of {checked.compared:,} objects have another class."
    findings = [Finding(what=_sentence(c).rstrip("."), level=LEVELS[c.verdict]) for c in (bad or found)[:4]]
    return Answer(question=question, short=short, level=level, findings=tuple(findings))


def _sentence(check: Check) -> str:
    """Return what a check found, and where, in a line."""
    return f"{check.name}: {check.found}" + (f" ({check.place})" if check.place else "")


def _pictures(profile: Profile, before: Profile | None) -> Iterator[Picture]:
    """Yield maps of the sky: objects with flags, and changes of the shares of a class since the last release."""
    cells = {c: counts for c, counts in profile.cells.items() if counts["rows"] >= 5}
    flagged = {c: counts.get("flagged", 0) / counts["rows"] for c, counts in cells.items()}
    change = {}
    for cell, now in cells.items():
        was = {} if before is None else before.cells.get(cell, {})
        if was.get("rows", 0) >= 5:
            shares = ((one.get(name, 0) / one["rows"] for one in (now, was)) for name in profile.classes)
            change[cell] = max(abs(a - b) for a, b in shares)
    for of, kind, title, colour in (
        (flagged, "release_flags", "Share of objects with a flag", CLASSES[0]),
        (change, "release_changes", "Change of class shares", CLASSES[1]),
    ):
        if of:
            axes, pixels, values = new_axes(5.2, 2.8), [int(cell) for cell in of], [*of.values()]
            plot_sky(axes, pixels, values, order=CELL_ORDER, title=title, colour=colour, percent=True)
            yield drawn(axes, kind)


def _changes(checked: Checked) -> Sequence[tuple[str, Sequence[ReportTable]]]:
    moves = ((t["was"] or "none", t["now"] or "none", f"{t['objects']:,}") for t in checked.transitions[:20])
    why = ((cause, f"{n:,}") for cause, n in checked.attributed.items())
    first = (
        (e["file"], e["id"], e["was"] or "none", e["now"] or "none", f"{e['moved']:.2f}")
        for e in checked.examples
    )
    named = {"class_changes": moves, "causes": why, "moved_objects": first}
    tables = [ReportTable.of_kind(kind, rows) for kind, rows in named.items()]
    return ((f"Changes since release {checked.last}", tables),) if checked.compared else ()


def _numbers(checked: Checked) -> tuple[ReportTable, ...]:
    rates = ((name, f"{rate:.0%}") for name, rate in checked.controls.items())
    controls = ReportTable.of_kind("controls", rates)
    known = ((name, f"{x:.1%}", f"{low:.1%} to {high:.1%}") for name, (x, low, high) in checked.truth.items())
    truth = ReportTable.of_kind("truth", known)
    return (controls, truth) if checked.truth else (controls,)


def _provenance(manifest: Manifest, model: Model, checked: Checked) -> dict[str, object]:
    """Return what made the release as W3C PROV-JSON."""
    release, run = f"release:{checked.name}-{checked.version}", "run:classification"
    maker = f"model:{model.label}"
    kinds = ({"prov:type": "annotated catalogue"}, {"prov:type": "catalogue"})
    files = {f"file:{o.name}": kinds[0] | {"blr:sha256": o.sha256} for o in manifest.outputs}
    inputs = {f"input:{o.input_path}": kinds[1] | {"blr:sha256": o.input.sha256} for o in manifest.outputs}
    made = {"blr:version": manifest.code_version, "blr:settings": manifest.specification_hash}
    made["prov:endTime"] = manifest.created
    about = {release: {"blr:content": checked.digest}, maker: {"blr:id": str(model.id)}}
    return {
        "prefix": {"blr": "https://github.com/galaxyblr/galaxyblr#", "prov": "http://www.w3.org/ns/prov#"},
        "entity": {**about, **files, **inputs},
        "activity": {run: made},
        "used": {f"_:u{i}": {"prov:activity": run, "prov:entity": e} for i, e in enumerate([maker, *inputs])},
        "wasGeneratedBy": {f"_:g{i}": {"prov:entity": e, "prov:activity": run} for i, e in enumerate(files)},
        "hadMember": {f"_:m{i}": {"prov:collection": release, "prov:entity": e} for i, e in enumerate(files)},
    }
