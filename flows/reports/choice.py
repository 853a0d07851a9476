"""Why the candidate of the smallest log loss on rows that no fit saw is not the one selected, in one sentence."""

from __future__ import annotations

from blr.candidates.candidate import CandidateRow
from flows.reports.data import TrainReport

__all__ = ["candidate_name", "choice_words", "feature_set"]

CRITERIA = {"evidence": "log evidence", "bic": "BIC", "loo": "left-out log density"}
"""Name of the score that ranks the candidates, by the value of select.by."""


def choice_words(report: TrainReport) -> str:
    """Return why the candidate of the smallest held-out or left-out log loss was not selected; '' if it was."""
    chosen = report.chosen
    better = [i for i, c in enumerate(report.model.candidates) if c.log_loss < chosen.log_loss]
    if not better or report.model.selected_by not in {"", *CRITERIA}:
        return _of_mixture(report) if better else ""
    first = min(better, key=lambda i: report.model.candidates[i].log_loss)
    best = report.model.candidates[first]
    more = f" ({len(better)} candidates have a smaller one)" if len(better) > 1 else ""
    return (
        f"{candidate_name(report, first)} has the smallest {report.metrics.judged_by} log loss, "
        f"{best.log_loss:.4f} against the selected one's {chosen.log_loss:.4f}{more}, and was not selected: "
        f"{_reason(report, best, chosen)}. {_what_judges(report, mixture=False)}"
    )


def _reason(report: TrainReport, best: CandidateRow, chosen: CandidateRow) -> str:
    by = report.model.selected_by or "evidence"
    ranked = f"candidates are ranked by {CRITERIA[by]} on the training objects"
    if by == "evidence":
        rival = best.log_evidence - chosen.log_evidence
        weight = (
            f"by which its probability is {_probability(best.weight)} against {_probability(chosen.weight)}"
        )
        return f"{ranked}, {weight} (log evidence {rival:+,.1f} nats)".replace("-", "−")
    score, other = getattr(best, by), getattr(chosen, by)
    if score is None or other is None:
        return f"{ranked}, which is not known of it"
    return f"{ranked}, where it has {score:,.1f} against {other:,.1f} nats".replace("-", "−")


def _of_mixture(report: TrainReport) -> str:
    """Return a sentence for a mixture, of which the marked candidate is only the largest part."""
    first = min(range(len(report.model.candidates)), key=lambda i: report.model.candidates[i].log_loss)
    weighed = {"average": "by evidence", "stack": "as left-out training objects ask for"}
    how = weighed.get(report.model.selected_by, "by the training objects")
    return (
        f"{candidate_name(report, first)} has the smallest {report.metrics.judged_by} log loss, "
        f"{report.model.candidates[first].log_loss:.4f}, and is not the marked one: the model is a mixture of "
        f"candidates, weighed {how}; its own {report.metrics.judged_by} log loss is {report.metrics.log_loss:.4f}. "
        f"{_what_judges(report, mixture=report.model.selected_by == 'stack')}"
    )


def _what_judges(report: TrainReport, *, mixture: bool) -> str:
    """Return what the rows that judge decide: held-out ones nothing, left-out ones the shares of a stack."""
    if report.metrics.judged_by == "held-out":
        return "Held-out objects judge the model and choose nothing."
    if mixture:
        return (
            "The left-out objects set the shares too, so that the mixture's own loss is a little too small."
        )
    return "Left-out objects judge the model here and choose nothing."


def candidate_name(report: TrainReport, i: int) -> str:
    """Return a name of a candidate: its basis and its features."""
    return f"{report.model.candidates[i].basis} of {feature_set(report, i)}"


def feature_set(report: TrainReport, i: int) -> str:
    """Return the features of a candidate in words: those that it has or those that it lacks, whichever are fewer."""
    chosen = report.model.candidates[i].features
    left_out = [f.name for f in report.model.training.features if f.name not in chosen]
    if not left_out:
        return f"all {len(chosen)}"
    return f"all but {', '.join(left_out)}" if len(left_out) < len(chosen) / 2 else ", ".join(chosen)


def _probability(value: float) -> str:
    return "< 0.001" if value < 0.001 else f"{value:.3f}"
