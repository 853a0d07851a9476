"""Champion and challenger side by side: what the rule says, and what a person who decides has to know.

The rule: the challenger's log loss on objects that neither model has seen is smaller by a margin, it knows the same
classes, its own verdict is not red, and nobody has rejected it.  Held-out rows are chosen by a salted hash of the
object, so that no version of a model has seen them.  Without such objects (models of earlier versions, no identifiers)
the two models' own numbers decide.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from catalogs.profile.split import HEALPIX_ORDER
from flows.models.model import Model
from flows.models.request import PromoteRequest
from flows.models.row_files import ClassComparison, compare_classes, compare_losses, read_judged_rows
from flows.models.skill import SkillSummary, gain_interval, skill_words
from flows.models.store import Store
from flows.models.store_folder import Promotion, StoredModel, standing_vetoes, veto_words
from flows.runs.difference import SampledChange
from flows.runs.model_reference import ModelReference

__all__ = [
    "ClassChange",
    "Comparison",
    "InRelease",
    "compare",
    "compare_stored",
    "gain_words",
    "losses_words",
]

REPORT_FILE = "report.html"
InRelease = Callable[[PromoteRequest, Model, Model], SampledChange | None]
"""What a challenger would change in the last release, of the request, the champion and the challenger."""


@dataclass(frozen=True, kw_only=True)
class ClassChange:
    """A class on the objects that neither model has seen; shares are None where they have no objects.

    `gain` is that in log loss of the objects which have the class.  Completeness and purity are of the challenger and
    of the champion.
    """

    name: str
    gain: SkillSummary
    completeness: float
    champion_completeness: float
    purity: float | None
    champion_purity: float | None


@dataclass(frozen=True)
class Comparison:
    """A challenger beside the champion; `against` says why the rule keeps the champion, if it does."""

    challenger: str
    champion: str | None
    log_loss: float
    champion_log_loss: float | None
    n_held_out: int
    champion_n_held_out: int | None
    verdict: str
    same_rows: bool
    judged_by: str  # "held-out" or "left-out"
    champion_judged_by: str | None
    skill: str  # in words
    champion_skill: str | None
    against: tuple[str, ...]
    common: SkillSummary | None  # of the challenger over the champion, on objects that neither has seen
    better: bool  # whether the rule prefers the challenger
    champion_verdict: str | None = None
    classes: tuple[ClassChange, ...] = ()  # on the objects that neither has seen
    # what it would change in the last release; None where there is none to look at
    in_release: SampledChange | None = None
    vetoes: tuple[Promotion, ...] = ()  # who has rejected the challenger
    report: str | None = None  # path of the challenger's report
    champion_report: str | None = None

    @property
    def name(self) -> str:
        """The name that both are versions of."""
        return ModelReference.parse(self.challenger).name


def compare(request: PromoteRequest, *, in_release: InRelease | None = None) -> Comparison:
    """Compare a model with the champion of its name; `NAME` alone means the newest of its versions.

    `in_release` says what the model would change in the last release; without it nothing is said of that.
    """
    place = Store.named(request.store)
    return compare_stored(request, place, place.find(request.model, newest=True), in_release=in_release)


def compare_stored(
    request: PromoteRequest, place: Store, stored: StoredModel, *, in_release: InRelease | None = None
) -> Comparison:
    """Compare a model that was found in a store, as `compare` does."""
    challenger, version = place.read(stored), place.champion(stored.name)
    vetoes = standing_vetoes(place.history(stored.name), stored.version)
    if version is None:
        sides = _Sides(challenger, stored)
        return _comparison(sides, same_rows=True, against=_alone(challenger, vetoes), vetoes=vetoes)
    in_use = place.at(stored.name, version)
    champion = place.read(in_use)
    sides = _Sides(challenger, stored, champion, in_use)
    common, classes = _on_common_rows(sides)
    against = _against(challenger, champion, common, request.margin, vetoes)
    another = champion.label != challenger.label
    return _comparison(
        sides,
        same_rows=_rows(challenger) == _rows(champion),
        against=against,
        vetoes=vetoes,
        common=common,
        classes=classes,
        changed=in_release(request, champion, challenger) if in_release and another else None,
    )


@dataclass(frozen=True)
class _Sides:
    """The two models, and where they lie."""

    challenger: Model
    stored: StoredModel
    champion: Model | None = None
    in_use: StoredModel | None = None


def _on_common_rows(sides: _Sides) -> tuple[SkillSummary | None, tuple[ClassChange, ...]]:
    """Return a challenger's gain over a champion on objects new to both, and that by class; None where not known."""
    challenger, champion = sides.challenger, sides.champion
    if champion is None or sides.in_use is None:
        return None, ()
    if challenger.classes != champion.classes or challenger.label == champion.label:
        return None, ()
    ours, theirs = (read_judged_rows(stored.folder) for stored in (sides.stored, sides.in_use))
    gain = None if ours is None or theirs is None else compare_losses(ours, theirs)
    if gain is None or ours is None or theirs is None:
        return None, ()
    return SkillSummary.of(gain), _class_changes(compare_classes(ours, theirs), challenger.classes)


def _class_changes(
    compared: Mapping[int, ClassComparison], classes: tuple[str, ...]
) -> tuple[ClassChange, ...]:
    return tuple(
        ClassChange(
            name=classes[k],
            gain=SkillSummary.of(found.gain),
            completeness=found.completeness[0],
            champion_completeness=found.completeness[1],
            purity=_known(found.purity[0]),
            champion_purity=_known(found.purity[1]),
        )
        for k, found in compared.items()
    )


def _known(share: float) -> float | None:
    return share if math.isfinite(share) else None


def _comparison(
    sides: _Sides,
    *,
    same_rows: bool,
    against: tuple[str, ...],
    vetoes: tuple[Promotion, ...],
    common: SkillSummary | None = None,
    classes: tuple[ClassChange, ...] = (),
    changed: SampledChange | None = None,
) -> Comparison:
    challenger, champion = sides.challenger, sides.champion
    return Comparison(
        challenger=challenger.label,
        champion=None if champion is None else champion.label,
        log_loss=challenger.metrics.log_loss,
        champion_log_loss=None if champion is None else champion.metrics.log_loss,
        n_held_out=challenger.metrics.n,
        champion_n_held_out=None if champion is None else champion.metrics.n,
        verdict=challenger.trust.verdict,
        same_rows=same_rows,
        judged_by=challenger.metrics.judged_by,
        champion_judged_by=None if champion is None else champion.metrics.judged_by,
        skill=_skill(challenger),
        champion_skill=None if champion is None else _skill(champion),
        against=against,
        common=common,
        better=not against,
        champion_verdict=None if champion is None else champion.trust.verdict,
        classes=classes,
        in_release=changed,
        vetoes=vetoes,
        report=_report(sides.stored),
        champion_report=None if sides.in_use is None else _report(sides.in_use),
    )


def _report(stored: StoredModel) -> str | None:
    path: Path = stored.folder / REPORT_FILE
    return str(path) if path.is_file() else None


def _alone(challenger: Model, vetoes: tuple[Promotion, ...]) -> tuple[str, ...]:
    """Return the reasons against a model that hold for every champion."""
    reasons = [veto_words(veto) for veto in vetoes]
    if challenger.trust.verdict == "red":
        reasons.append(f"its verdict is red: {'; '.join(challenger.trust.reasons)}")
    if not math.isfinite(challenger.metrics.log_loss):
        reasons.append(f"its {challenger.metrics.judged_by} log loss is not finite")
    return tuple(reasons)


def _against(
    challenger: Model,
    champion: Model,
    common: SkillSummary | None,
    margin: float,
    vetoes: tuple[Promotion, ...],
) -> tuple[str, ...]:
    """Return what speaks against a model in the champion's place."""
    reasons = [*_alone(challenger, vetoes)]
    if challenger.classes != champion.classes:
        reasons.append(f"its classes are {', '.join(challenger.classes)}, not {', '.join(champion.classes)}")
    if common is not None:
        gain, what = common.gain, f"log loss on {common.n:,} objects that neither model has seen"
    else:
        gain = champion.metrics.log_loss - challenger.metrics.log_loss
        what = f"{challenger.metrics.judged_by} log loss"
    if not gain >= margin:
        much = f"{abs(gain):.4f} nats an object"
        if not float(f"{gain:.4f}"):
            reasons.append(f"its {what} is not better (difference {much})")
        elif gain > 0:
            reasons.append(f"its {what} is better by {much}, less than {margin:g}")
        else:
            reasons.append(f"its {what} is worse by {much}")
    return tuple(reasons)


def gain_words(common: SkillSummary) -> str:
    """Return a gain with its interval."""
    return f"{common.gain:z.4f} nats ({common.level:.0%} interval {gain_interval(common)})"


def losses_words(comparison: Comparison, what: str = "log loss") -> str:
    """Return what is compared: "held-out log loss", or, of models judged in two ways, how each was."""
    other = comparison.champion_judged_by
    if other in (None, comparison.judged_by):
        return f"{comparison.judged_by} {what}"
    return f"{what} ({comparison.judged_by}; the champion's {other})"


def _skill(model: Model) -> str:
    metrics = model.metrics
    return skill_words(
        metrics.skill,
        log_loss=metrics.log_loss,
        baseline=metrics.log_loss_baseline,
        rows=metrics.judged_by,
    )


def _rows(model: Model) -> tuple[object, ...]:
    """Return what decides which rows are held out: equal for models that were tested on the same ones."""
    spec = model.specification
    inputs = tuple(file.sha256 for file in model.training.inputs)
    split = model.training.split
    order = HEALPIX_ORDER if split is None else split.healpix_order
    by_place = order if spec.split.by == "healpix" else None
    asked = spec.split.model_copy(update={"healpix_order": by_place})
    label = spec.label.model_copy(
        update={"noise": None, "annotator": None}
    )  # rows are the same however labels err
    return (inputs, spec.catalog.where, spec.catalog.id, label, asked)
