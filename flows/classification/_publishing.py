"""Publication: counts and census of a release, its report, then its final names, all or none."""

from __future__ import annotations

import hashlib
import os
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.types as pt

from blr.census.results import Census
from blr.decisions import Flag
from catalogs.arrays import column_values, distinct, given_identifiers, hashed_identifiers
from catalogs.errors import counted
from catalogs.formats import open_annotated
from catalogs.writing import finish as finish_catalogue
from flows.classification._class_shares import shift_record
from flows.classification._plan import Plan, Work
from flows.classification._tally import most_doubtful, object_columns, summarise, total, total_sky
from flows.classification.census_taking import folder_census
from flows.classification.explanation import class_examples
from flows.classification.release_changes import release_report, write_report
from flows.classification.scoring import flag_names, provenance
from flows.documents import write_document
from flows.inputs.opening import open_source
from flows.models.description import why_no_error
from flows.models.model import Model
from flows.models.row_files import read_labelled_identifiers
from flows.reports.catalogue_page import ClassificationReport, write_classification
from flows.reports.counts import status_table
from flows.reports.data import FeatureComparison, FlaggedByInput, NotableObject, made_now
from flows.reports.report_table import class_words
from flows.runs.drift import drift
from flows.runs.manifest import (
    SCHEMA_VERSION,
    SUMMARY,
    ColumnDetails,
    FlagDetails,
    Manifest,
    Output,
    Problem,
    read_status,
    without_margins,
    write_labelled_names,
)
from flows.runs.results import (
    Counts,
    DoubtfulObject,
    FileCounts,
    ReleaseResult,
    Summary,
    Tally,
    drifted,
    summed,
)
from flows.specification.specification import specification_hash
from flows.version import code_version

# The content of a classification's report, from its counts, and the report itself.

SHORT_MEANINGS = {
    Flag.OUT_OF_DOMAIN: "unlike the training set",
    Flag.CLOSE_CALL: "close call",
    Flag.LOW_CONFIDENCE: "low confidence",
    Flag.FLIPPED: "another class but for the uncertainty of the fit",
    Flag.UNCERTAIN_INPUT: "uncertain because of its measurement errors",
}
"""In a few words, why an object is worth a look."""
MOST_SHOWN = 100
"""Most files whose counts a summary shows one by one."""


def write_classification_report(
    plan: Plan, done: ReleaseResult, summary: Summary, manifest: Manifest
) -> None:
    """Write `report.html` beside the annotated files; margins, which repeat rows, are not counted in it."""
    model, by_input = plan.scorer.model, plan.scorer.by_input
    counts = [o.summary for o in without_margins(manifest.outputs)]
    doubtful = most_doubtful(one for of_file in counts for one in of_file.doubtful)
    names, n_labelled = [o.name for o in manifest.outputs], model.training.training_counts
    tally, flagged = total(of_file.tally for of_file in counts), None
    if by_input is not None and any(tally.by_input[:-1]):
        flagged = FlaggedByInput(
            name=model.features[by_input[0]],
            edges=tuple(by_input[1].tolist()),
            n=tally.by_input,
            flagged=tally.flagged_by_input,
        )
    report = ClassificationReport(
        catalogue=names[0] if len(names) == 1 else counted(len(names), "file"),
        summary=summary.totals,
        sky=total_sky([of_file.sky for of_file in counts if of_file.sky is not None]),
        flagged=flagged,
        features=_features(model, counts),
        label_shares={
            name: n / max(1, sum(n_labelled)) for name, n in zip(model.classes, n_labelled, strict=True)
        },
        trust=model.trust,
        metrics=model.metrics,
        objects=tuple(_notable(one) for one in doubtful),
        examples=class_examples(plan.scorer, doubtful),
        quarantined={q.name: q.reason for q in manifest.quarantined},
        deferred=done.deferred,
        repeats=done.repeats,
        files=status_table(read_status(plan.out, manifest)),
        release=manifest.release,
        made=made_now(),
        units={f["name"]: (f["expression"], f["unit"]) for f in model.training.features},
        provenance={
            "model": model.label,
            "blr_model": str(model.id),
            "specification": f"sha256 {manifest.specification_hash}",
            "blr": manifest.code_version,
            "release": str(manifest.release),
            "files": f"{len(manifest.outputs):,}, listed in manifest.json",
        },
    )
    write_classification(report, plan.out)


def _features(model: Model, files: Sequence[FileCounts]) -> tuple[FeatureComparison, ...]:
    """Return the features of which the model kept how they are distributed, in two bins or more."""
    bins = summed([counts.drift for counts in files]).bins
    ranges = {f["name"]: f for f in model.training.features}
    return tuple(
        FeatureComparison(
            name=name,
            edges=trained.edges,
            training=trained.counts,
            target=bins[j],
            low=ranges[name]["minimum"],
            high=ranges[name]["maximum"],
        )
        for j, name in enumerate(model.features)
        for trained in [model.training.distribution[name]]
        if sum(n > 0 for n in trained.counts) > 1  # one bin has nothing to show
    )


def _notable(one: DoubtfulObject) -> NotableObject:
    (first, second), (p, q) = one["classes"], one["probabilities"]
    flags = ", ".join(words for flag, words in SHORT_MEANINGS.items() if one["flags"] & int(flag))
    why = f"{class_words(first)} {p:.1%}, {class_words(second)} {q:.1%}; {flags}"
    return NotableObject(name=one["id"], ra=one["ra"], dec=one["dec"], why=why)


# The end of a classification: final names, `summary.json`, a release's report, and last of all `manifest.json`.


def publish(
    plan: Plan, done: ReleaseResult, outputs: Sequence[Output], bad: Mapping[str, Problem]
) -> ReleaseResult:
    """Give all outputs their final names, write summary and manifest, remove the staging; return what was published.

    `done` is the result so far, and `bad` has the quarantined files by name.  A run may be killed after any step; the
    next run repeats the steps.
    """
    work, staging, model = plan.work, plan.work.staging, plan.scorer.model
    outputs = tuple(sorted(outputs, key=lambda o: o.name))
    for name in done.retired:
        staging.retire(name, done.release or 1)
    staging.publish(outputs)
    done = replace(done, repeats=(*done.repeats, *_finish_catalogues(plan, outputs)))
    names = read_labelled_identifiers(work.model.folder)
    if names:
        write_labelled_names(names, staging.out)
    census = folder_census(
        model,
        staging.out,
        outputs,
        asked=work.asked,
        selected=plan.scorer.selected,
        keep=True,
    )
    summary = summary_of(model, outputs, census)
    write_document(staging.out / SUMMARY, summary)
    manifest = _manifest(plan, done, outputs, [bad[name] for name in sorted(bad)], summary.totals)
    before = Manifest.read(staging.out)
    if before is not None and before.same_outputs(manifest):  # no row has changed
        manifest = replace(manifest, release=before.release)
    done = replace(
        done,
        release=manifest.release,
        retired=tuple(staging.retired(manifest.release)),
        summary=summary,
        drifted=tuple(drifted(summary.drift)),
    )
    if plan.policy == "release":
        why = {job.name: job.why for job in plan.jobs if not job.finished}
        report = release_report(manifest, summary.totals, done, why)
        path = write_report(staging.out, report)
        done = replace(done, report=path, difference=report.difference)
    write_classification_report(plan, done, summary, manifest)
    manifest.write(staging.out)
    staging.close()
    return done


def _finish_catalogues(plan: Plan, outputs: Sequence[Output]) -> tuple[str, ...]:
    """Write what catalogues have beside their files (HATS: properties, metadata, maps), where all files are there.

    Return sentences on what had to be left out.
    """
    left_out: list[str] = []
    scorer, hashes = plan.scorer, {o.name: o.input.sha256 for o in outputs}
    # Each once: a catalogue may have files beside those with rows.
    for source, named in {job.catalogue.source: job.catalogue for job in plan.jobs}.items():
        if not source.is_folder or named.without:
            continue  # without a damaged file, the catalogue is not complete
        catalog = open_source(named)
        keys = [partition.key for partition in catalog.partitions]
        another = named.form not in {None, catalog.format}
        if another or catalog.whole is None or not hashes.keys() >= set(keys):
            continue
        content = hashlib.sha256("\n".join(f"{key} {hashes[key]}" for key in sorted(keys)).encode())
        left_out += finish_catalogue(
            catalog,
            plan.out,
            scorer.columns,
            provenance=provenance(scorer, content.hexdigest()),
            mode=scorer.specification.output.mode,
            keep=scorer.kept,
        )
    return tuple(left_out)


def summary_of(model: Model, outputs: Sequence[Output], census: Census | None) -> Summary:
    """Return the summary of all outputs with a census; for few outputs, it also has the counts of each."""
    counted = {o.name: o.summary for o in sorted(outputs, key=lambda o: o.name)}
    once = [o.summary for o in without_margins(outputs)]
    shift = once[0].shift
    no_error = why_no_error(shift.class_priors_source)
    sets = once[0].set_rule

    def read(tally: Tally) -> Counts:
        return summarise(tally, model.classes, model.features, no_error=no_error, sets=sets)

    shown = () if len(counted) > MOST_SHOWN else counted.items()
    summary = Summary(
        **vars(replace(read(total(counts.tally for counts in once)), model=model.label)),
        shift=shift,
        drift=drift(summed([counts.drift for counts in once]), model.training.distribution, model.features),
        files={name: replace(read(own.tally), left_behind=own.left_behind) for name, own in shown},
    )
    return summary.with_census(census)


def _manifest(
    plan: Plan, done: ReleaseResult, outputs: tuple[Output, ...], bad: Sequence[Problem], totals: Summary
) -> Manifest:
    work, specification, model = plan.work, plan.work.specification, plan.scorer.model
    return Manifest(
        format="blr-manifest",
        schema_version=SCHEMA_VERSION,
        created="",
        model=model.label,
        model_id=model.id,
        specification_hash=specification_hash(specification),
        versions={"blr": code_version()},
        outputs=outputs,
        quarantined=tuple(bad),
        table=None,
        release=done.release or 1,
        totals=totals,
        classes=shift_record(model, specification).class_priors,
        columns={
            c.name: ColumnDetails(datatype=str(c.datatype), ucd=c.ucd, description=c.description)
            for c in plan.scorer.columns
        },
        flags={
            str(bit): FlagDetails(name=name, meaning=meaning) for bit, (name, meaning) in flag_names().items()
        },
        position=object_columns(specification),
        selected=plan.scorer.selected,
        census_asked=work.asked,
        store=Path(os.path.relpath(work.model.folder.parents[1], plan.out)).as_posix(),
    )


MOST_IDENTIFIERS = 3_000_000
"""Most rows of all files whose identifiers are compared: they lie in memory, some 100 MB."""


def repeats(outputs: Sequence[Output], work: Work) -> tuple[str, ...]:
    """Return a sentence for each set of equal files, on identifiers that are there again, and on files without rows.

    Margins of HATS catalogues, which repeat rows, do not count.
    """
    known = sorted((o for o in outputs if o.summary.counted), key=lambda o: o.name)
    by_input: dict[str, list[Output]] = defaultdict(list)
    for output in (o for o in known if o.n_rows):
        by_input[output.input.sha256].append(output)
    rowless = [o.name for o in known if not o.n_rows]
    more = f" (and {len(rowless) - 1:,} more)" if len(rowless) > 1 else ""
    sentences = [
        f"{name}{more}: no rows, expected some; copy it again if it is not whole" for name in rowless[:1]
    ]
    sentences += [
        f"{', '.join(o.name for o in equal)} are copies of one file, byte for byte: each of its {equal[0].n_rows:,} "
        f"rows is in the release {len(equal)} times"
        for equal in by_input.values()
        if len(equal) > 1
    ]
    return (*sentences, *_repeated_identifiers([equal[0] for equal in by_input.values()], work))


def _repeated_identifiers(outputs: Sequence[Output], work: Work) -> Iterator[str]:
    """Yield a sentence where identifiers are there again, in copies that are staged or have their final names."""
    name, n_rows = object_columns(work.specification).id, sum(output.n_rows for output in outputs)
    if name is None:
        return
    if n_rows > MOST_IDENTIFIERS:
        yield (
            f"whether an object is there twice is not known: identifiers of {n_rows:,} rows were not compared, "
            f"expected at most {MOST_IDENTIFIERS:,}"
        )
        return

    def identifiers(output: Output) -> Iterator[pa.Array]:
        catalog = open_annotated(work.staging.place(output), work.specification.output.prefix)
        if name in catalog.names and not pt.is_nested(catalog.column(name).datatype):
            yield from (given_identifiers(batch.column(0)) for batch in catalog.batches([name]))

    hashes = []
    for output in outputs:
        every = np.concatenate([np.empty(0, np.uint64), *map(hashed_identifiers, identifiers(output))])
        hashes.append(distinct(every))
        if n := len(every) - len(hashes[-1]):
            yield (
                f"{output.name}: {n:,} of {output.n_rows:,} rows have the identifier of an earlier row; each row "
                "counts as an object"
            )
    found, n_files = np.unique(np.concatenate([np.empty(0, np.uint64), *hashes]), return_counts=True)
    shared = found[n_files > 1]
    if not len(shared):
        return
    one, *others = [o for o, here in zip(outputs, hashes, strict=True) if np.isin(shared[0], here)]
    texts = (
        str(column_values(b)[at[0]])
        for b in identifiers(one)
        if len(at := np.flatnonzero(hashed_identifiers(b) == shared[0]))
    )
    yield (
        f"identifiers in more than one file: {len(shared):,}, such as {next(texts).strip()} in {one.name} and "
        f"{others[0].name}; each row counts as an object"
    )
