"""What reports show: descriptions of models and counts of catalogues as they are stored, and what lies beside."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields

from blr.candidates.candidate import CandidateRow
from blr.census.results import Census
from flows.models.description import Metrics, ModelDescription
from flows.models.skill import has_skill, skill_words
from flows.reports.picture_data import FeatureComparison, ReportParts, SkyMap
from flows.runs.summary import Counts

__all__ = ["Classification", "TrainReport", "judged_objects"]


@dataclass(frozen=True, kw_only=True)
class Classification(Counts):
    """What `classify` found in catalogues: the counts of all their objects, and what belongs to pictures."""

    catalogue: str
    drifted: tuple[str, ...] = ()  # features whose distribution is far from the training's
    sky: SkyMap | None = None  # None where positions are not known
    features: tuple[FeatureComparison, ...] = ()
    census: Census | None = None  # None where none was taken
    label_shares: Mapping[str, float] = field(default_factory=dict)  # of the classes among the model's labels

    @classmethod
    def of(cls, name: str, counts: Counts) -> Classification:
        """Return what a report shows of counts, of one file or of all, which it calls `name`."""
        return cls(catalogue=name, **{f.name: getattr(counts, f.name) for f in fields(Counts)})


@dataclass(frozen=True, kw_only=True)
class TrainReport:
    """A model, what lies beside it for its report, catalogues that it classified, and sentences of the training."""

    model: ModelDescription
    parts: ReportParts = field(default_factory=ReportParts)
    classifications: tuple[Classification, ...] = ()
    # Columns that the features use and that may give the class away, each set with how.
    leaks: Mapping[str, str] = field(default_factory=dict)
    remarks: tuple[str, ...] = ()  # what a reader should know: what was left out and why
    attribution: tuple[str, ...] = ()

    @property
    def metrics(self) -> Metrics:
        """How good the model is."""
        return self.model.metrics

    @property
    def has_skill(self) -> bool:
        """Whether the model is known to predict better than the class shares alone."""
        m = self.metrics
        return has_skill(m.skill, log_loss=m.log_loss, baseline=m.log_loss_baseline)

    @property
    def skill_words(self) -> str:
        """The sentence on the model's skill."""
        m = self.metrics
        return skill_words(m.skill, log_loss=m.log_loss, baseline=m.log_loss_baseline, rows=m.judged_by)

    @property
    def is_mixture(self) -> bool:
        """Whether the model is a mixture of candidates, each with a share."""
        return self.model.selected_by in ("average", "stack")

    @property
    def chosen(self) -> CandidateRow:
        """The selected candidate."""
        return self.model.candidates[self.model.selected]

    @property
    def n_training(self) -> int:
        """Rows that the fits saw."""
        return sum(self.model.training.training_counts)

    @property
    def n_held_out(self) -> int:
        """Rows that no fit saw."""
        return sum(self.model.training.held_out_counts)


def judged_objects(report: TrainReport) -> str:
    """Return the objects that judge: "held-out objects", or "left-out objects"."""
    return f"{report.metrics.judged_by} objects"
