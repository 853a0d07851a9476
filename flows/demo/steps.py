"""The demonstration: OpenNGC's galaxies, classified twice, from nothing to annotated catalogues and reports.

It does what a user would: write a specification, train, classify.  Running it again does only what is missing.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields, replace
from importlib import resources
from pathlib import Path
from typing import Final

from rich.console import RenderableType
from rich.text import Text

from blr.candidates.candidate import CandidatePart, CandidateRow, PosteriorCheck
from blr.census.results import Census
from catalogs.files.atomic import atomic_write_text
from flows.classification import steps as classification
from flows.classification.request import ClassifyRequest
from flows.demo.openngc import ATTRIBUTION, write_catalogues
from flows.documents import write_document
from flows.models.description import ModelDescription, Review
from flows.models.store import SkillSummary
from flows.release.draft import draft
from flows.release.record import check
from flows.release.request import DraftRequest, ReleaseRequest
from flows.reports.answers import training_answers
from flows.reports.census import census_words
from flows.reports.data import Classification, TrainReport
from flows.reports.html import write_report
from flows.runs.allowed_roots import OutputFolder, check_output
from flows.runs.counts import Counts
from flows.runs.progress import tell
from flows.runs.results import ClassificationResult
from flows.training import steps as training
from flows.training.request import TrainRequest


@dataclass(frozen=True, kw_only=True)
class DemoCandidate:
    """What the summary holds of a row of the evidence table; the fields are those of `CandidateRow`."""

    features: tuple[str, ...]
    basis: str
    n_functions: int
    log_evidence: float
    bic: float
    effective_parameters: float | None
    log_loss: float
    verdict: str
    weight: float
    share: float | None
    parts: tuple[CandidatePart, ...]
    checks: tuple[PosteriorCheck | None, ...]
    second_order: float | None
    loo: float | None

    @classmethod
    def of(cls, row: CandidateRow) -> DemoCandidate:
        """Return what is kept of a row."""
        return cls(**{name: getattr(row, name) for name in cls.__dataclass_fields__})


@dataclass(frozen=True, kw_only=True)
class HeldOutPerformance:
    """How good the model is on the rows that judge it; losses and gains in nats an object."""

    n: int
    judged_by: str
    log_loss: float
    log_loss_plugin: float
    log_loss_baseline: float
    gain_over_baseline: float
    skill: SkillSummary | None
    accuracy: float
    calibration_error: float
    reviews: tuple[Review, ...]


@dataclass(frozen=True, kw_only=True)
class DemoTask:
    """One task: the model, its evidence table, its performance, and the catalogues that it classified."""

    model: str
    classes: tuple[str, ...]
    selected: DemoCandidate
    candidates: tuple[DemoCandidate, ...]
    held_out: HeldOutPerformance
    classified: Mapping[str, Counts]
    remarks: tuple[str, ...]
    attribution: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class DemoResult:
    """The demonstration: the catalogues that were written, whose they are, and the two tasks."""

    catalogues: tuple[str, ...]
    attribution: str
    tasks: Mapping[str, DemoTask]


Show = Callable[[RenderableType], None]
Train = Callable[[TrainRequest], ModelDescription]
Classify = Callable[[ClassifyRequest], ClassificationResult]

TASKS: Final = {
    "binary": "early (E, E-S0, S0, S0-a) or late (Sa to Sm, I)",
    "five-class": "elliptical, lenticular, early spiral, late spiral, irregular",
}
COPIES: Final = {".fits": "annotated", ".parquet": "annotated-parquet"}
"""Where the copies of each catalogue go, by its suffix."""
INTRODUCTION: Final = (
    "The galaxies of the New General Catalogue and its companions, as OpenNGC has them. Those with a Hubble type "
    "train two models; then all are classified, the unlabelled and the doubtful ('S?', 'E?') too."
)
REMARKS: Final = (
    "Left out of the features: redshift and radvel. They say how galaxies were selected, not what they look like.",
    (
        "Left out of the features: sbrightn. It was computed with a correction that depends on the morphological "
        "type, so that together with bmag and majax it gives the class away (binary log loss falls from 0.52 to 0.25)."
    ),
    "B-V is missing for 68 % of the galaxies, so it is in one feature set only; where missing, it is integrated out.",
    "Not trained on, but classified: galaxies without a Hubble type, and the doubtful types 'S?' and 'E?'.",
)


def run_demo(
    out: Path,
    *,
    train: Train = training.train,
    classify: Classify = classification.classify,
    show: Show = lambda _: None,
) -> DemoResult:
    """Run the demonstration in the folder `out`; return what the summaries say.

    `train` and `classify` are the plain functions or Prefect's flows; `show` prints for people.
    """
    folder = check_output(out, key="out")
    catalogues = write_catalogues(folder / "catalogues")
    show(Text(INTRODUCTION))
    tasks = {task: _run_task(task, folder, catalogues, train, classify, show) for task in TASKS}
    show(_checked(folder))
    show(_closing(folder))
    return DemoResult(
        catalogues=tuple(map(str, catalogues)),
        attribution=ATTRIBUTION,
        tasks=tasks,
    )


def _run_task(
    task: str,
    out: OutputFolder,
    catalogues: tuple[Path, ...],
    train: Train,
    classify: Classify,
    show: Show,
) -> DemoTask:
    """Train and classify one task; write its report and its summary; return the summary."""
    folder, store = out / task, out / "models"
    specification = _specification(task, folder)
    trained = train(TrainRequest(specification, store))
    # Both catalogues hold the same galaxies: in one folder of copies each galaxy would count twice.
    results = [
        classify(ClassifyRequest([str(one)], trained.model, store, folder / COPIES[one.suffix]))
        for one in catalogues
    ]
    summaries = [None if result.status == "trial" else result.summary for result in results]
    files = {name: counts for one in summaries if one is not None for name, counts in one.files.items()}
    report = TrainReport.read(
        trained,
        classifications=_classifications(files),
        remarks=REMARKS,
        attribution=(ATTRIBUTION,),
    )
    write_report(report, folder / "report.html")
    summary = _summary(report, trained, files)
    write_document(folder / "summary.json", summary)
    _show_task(task, report, summaries[0].census if summaries[0] else None, show)
    return summary


def _specification(task: str, folder: Path) -> Path:
    """Return the task's specification; one that is there stays, for its user may have changed it."""
    path = folder / "spec.toml"
    text = resources.files("flows").joinpath("templates", f"demo-{task}.toml").read_text(encoding="utf-8")
    folder.mkdir(parents=True, exist_ok=True)
    if not path.exists():
        atomic_write_text(path, text)
    elif path.read_text(encoding="utf-8") != text:
        tell().note(f"{path} was not written by this version; it is used unchanged")
    return path


def _classifications(files: Mapping[str, Counts]) -> tuple[Classification, ...]:
    """Return what the report shows of the catalogues; once where both formats gave the same."""
    shown = [Classification.of(name, counts) for name, counts in files.items()]
    first = shown[0]
    if all((c.n_rows, c.classes, c.flags) == (first.n_rows, first.classes, first.flags) for c in shown):
        return (replace(first, catalogue=" and ".join(c.catalogue for c in shown)),)
    return tuple(shown)


def _summary(report: TrainReport, trained: ModelDescription, files: Mapping[str, Counts]) -> DemoTask:
    """Return the numbers of a task; those of the catalogues file by file, as both hold the same."""
    metrics = trained.metrics
    names = (field.name for field in fields(HeldOutPerformance) if field.name != "gain_over_baseline")
    return DemoTask(
        model=trained.model,
        classes=trained.classes,
        selected=DemoCandidate.of(trained.chosen),
        candidates=tuple(map(DemoCandidate.of, trained.candidates)),
        held_out=HeldOutPerformance(
            **{name: getattr(metrics, name) for name in names},
            gain_over_baseline=metrics.log_loss_baseline - metrics.log_loss,
        ),
        classified=files,
        remarks=report.remarks,
        attribution=report.attribution,
    )


def _show_task(task: str, report: TrainReport, census: Census | None, show: Show) -> None:
    """Say in four lines what a task found: whether to trust the model, how good it is, and what is in the catalogue."""
    use, *four, odd, _ = training_answers(report)
    found = report.classifications[0] if report.classifications else None
    show(Text(f"{report.model.model}: {TASKS[task]}", style="bold"))
    show(Text(f"  {use.question} {use.short}"))
    show(Text(f"  {four[2].question} {four[2].short}"))
    if found is not None:
        counts = "" if census is None else census_words(census)
        said = counts or "how many of each class cannot be said"
        show(Text(f"  Of {found.n_rows:,} galaxies: {said}. {odd.short}"))


def _checked(out: OutputFolder) -> Text:
    """Draft a release of the binary run and check it, as `blr release check` does; return what it says."""
    releases, version = out / "releases", "1.0"
    run = out / "binary" / COPIES[".parquet"]
    draft(DraftRequest("openngc", version, run=run, store=out / "models", releases=releases))
    checked = check(ReleaseRequest("openngc", version, releases=releases))
    stops = f"these say stop: {', '.join(checked.stops)}" if checked.stops else "none says stop"
    report = releases / "openngc" / f".{version}.draft" / "report.html"
    rows = f"{checked.n_rows:,} rows, {checked.n_replayed:,} scored again"
    return Text(f"Release check: {len({c.name for c in checked.checks})} checks of {rows}; {stops}: {report}")


def _closing(out: OutputFolder) -> Text:
    """Return where everything is, and whose the data are."""
    return Text(
        "\n".join(
            [
                f"Reports:  {out / 'binary' / 'report.html'} and {out / 'five-class' / 'report.html'}",
                f"Annotated copies: {' and '.join(COPIES.values())} beside them; catalogues: {out / 'catalogues'}",
                f"Models:   blr models list --store {out / 'models'}",
                "Left out of the features: redshift, radvel and sbrightn, which give types away (see the reports).",
                ATTRIBUTION,
            ]
        )
    )
