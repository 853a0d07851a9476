"""How one candidate is fitted to the training rows, and judged on rows that its fits have not seen.

Shapes: N rows, F features of the specification, M basis functions, K classes.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType

import numpy as np
from numpy.typing import NDArray

from blr.classifier import Classifier, Member
from blr.gaussian import Gaussian
from blr.posterior.kinds import LaplacePosterior, RefinedPosterior
from blr.posterior.posterior import Posterior
from blr.posterior.repair import served
from blr.posterior.sampling import sample_posterior
from blr.posterior.variational import refine
from blr.predictive.temperature import Temperature
from blr.threads import default_threads
from blr.trust.verdict import Trust, named_reasons
from flows.engines.current import current_engine
from flows.models.candidates import JudgedCandidate, PosteriorCheck
from flows.runs.progress import tell
from flows.specification.basis import SigmoidBasis, basis_choices, basis_words
from flows.specification.specification import Candidate, Specification
from flows.training._candidate_data import CandidateData
from flows.training._candidate_parts import (
    CandidateProblem,
    Part,
    fitted_parts,
)
from flows.training._checks import posterior_check
from flows.training._left_out import IncompleteRows, LeftOut, left_out, left_out_of_sample
from flows.training._shards import TrainingShards

__all__ = [
    "FinalMember",
    "FittedCandidate",
    "build_classifier",
    "fit_candidate",
    "refit_candidate",
    "used_columns",
]

Floats = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class FittedCandidate:
    """The candidate as it was judged, and what later steps need of its fits.

    `left_out` are the left-out probabilities of the training rows.  `drafts` are the refined posteriors of the parts,
    from which a later refinement starts; none if nothing was refined.  `parts` are the fits themselves, as long as
    they are in memory.
    """

    row: JudgedCandidate
    left_out: LeftOut
    drafts: tuple[Gaussian, ...] = ()
    parts: tuple[Part, ...] = ()


@dataclass(frozen=True, eq=False)
class FinalMember:
    """A member of the model, and the check of its posterior against the exact one; None where it was not checked.

    `trust` is the verdict on its Laplace fit, where it was asked for.
    """

    member: Member
    check: PosteriorCheck | None
    trust: Trust | None = None


def fit_candidate(
    specification: Specification, index: int, data: CandidateData, *, threads: int | None = None
) -> FittedCandidate:
    """Fit one candidate to the training rows, and judge it on each row left out."""
    candidate, select = specification.candidate[index], specification.select
    what = f"candidate {index + 1} of {len(specification.candidate)}"
    tell().start(f"fitting {what}", 0, "steps")
    problem, refined = _problem(specification, index, data, threads), select.posterior != "laplace"
    parts, log_evidence = fitted_parts(
        problem, integrated=select.scale == "integrated", refined=refined, on_step=_advance
    )
    training = data.rows.training
    if problem.shards is None:
        tell().start(f"left-out rows of {what}", len(parts), "parts")
        incomplete = IncompleteRows.of(data, tuple(specification.features), problem.columns)
        unseen = left_out(parts, incomplete, group=problem.group, on_part=_advance)
    else:
        tell().start(f"left-out rows of {what}", len(problem.X), "rows")
        unseen = left_out_of_sample(problem, parts, on_rows=tell().advance)
    unseen = unseen.recorded(data.rows.confused(training))
    row = _row(
        candidate,
        _features(specification, candidate),
        data.classes,
        parts,
        log_evidence,
        unseen,
        judged=select.by in {"evidence", "average"},
    )
    drafts = tuple(part.served.gaussian for part in parts) if refined else ()
    numbers = problem.X.shape[0] * parts[0].basis.n_functions
    kept = tuple(parts) if problem.shards is None and numbers <= MOST_NUMBERS else ()
    return FittedCandidate(row, unseen, drafts, kept)


CHECK_WORK = 1.5e8
"""Operations that all checks may take, shared out by the parts' shares: about two seconds."""
MOST_NUMBERS = 2**22
"""Most numbers of a design matrix that is kept between the steps of a training; larger ones are computed again."""


def refit_candidate(
    specification: Specification,
    index: int,
    data: CandidateData,
    fitted: FittedCandidate,
    *,
    same_rows: bool,
    checked: Mapping[int, float] = MappingProxyType({}),
    judged: bool = False,
    threads: int | None = None,
) -> list[FinalMember]:
    """Return the members of a candidate, with the posterior that the specification asks for.

    The refinement of a part starts at its draft.  With the `same_rows` as before, fits that are in memory are used.
    The refined posteriors of the `checked` parts (index: share in the model) are compared with the exact ones where the
    verdict on their Laplace fits is red.  `judged` asks for the verdict on the first part.
    """
    kind, what = specification.select.posterior, f"candidate {index + 1} of {len(specification.candidate)}"
    done = "refining" if kind == "refined" else "sampling the posterior of"
    tell().start(f"{done} {what}", 0, "steps" if kind == "refined" else "blocks of draws")
    problem, columns = _problem(specification, index, data, threads), _columns(specification, index)
    members, named = [], _features(specification, specification.candidate[index])
    in_memory = fitted.parts if same_rows else ()
    for number, part in enumerate(fitted.row.parts):
        if in_memory:
            basis, laplace = in_memory[number].basis, in_memory[number].laplace
        else:
            basis = problem.basis(part.width, known=part.widths or part.heights)
            laplace = problem.at_scale(basis, part.scale)
        (rng,) = _generator(specification, specification.candidate[index]).spawn(1)
        q, check = _final(kind, laplace, _start(laplace, fitted.drafts[number : number + 1]), rng), None
        # Chains read all rows thousands of times.
        if isinstance(q, RefinedPosterior) and number in checked and problem.shards is None:
            tell().start(f"checking {what} against the exact posterior", 0, "steps")
            exact = served(laplace, q, rng=rng, work=CHECK_WORK * checked[number])
            q, check = exact.posterior, posterior_check(exact, basis.names(named), data.classes)
        trust = None
        if number in checked or (judged and not number):
            reasons = named_reasons(laplace.trust.reasons, basis.names(named), data.classes)
            trust = replace(laplace.trust, reasons=reasons)
        members.append(FinalMember(Member(basis, q, columns, part.weight), check, trust))
    return members


def _start(laplace: LaplacePosterior, draft: Sequence[Gaussian]) -> Posterior | None:
    """Return the draft that a refinement starts from; None where there is none, or it has other functions.

    Of other rows a basis may have other functions: steps lie at the different values of a feature.
    """
    if draft and draft[0].mean.size == laplace.gaussian.mean.size:
        return replace(laplace, gaussian=draft[0])
    return None


def _final(
    kind: str, laplace: LaplacePosterior, start: Posterior | None, rng: np.random.Generator
) -> Posterior:
    """Return the posterior of a kind that a specification asks for."""
    if kind == "laplace":
        return laplace
    if kind == "sampled":
        return sample_posterior(laplace, rng=rng, on_step=_advance)
    start = start or refine(laplace, draft=True, on_step=_advance)
    return refine(laplace, start=start, on_step=_advance)


def _advance() -> None:
    tell().advance(1)


def _features(specification: Specification, candidate: Candidate) -> tuple[str, ...]:
    return candidate.features or tuple(specification.features)


def _columns(specification: Specification, index: int) -> tuple[int, ...]:
    """Return the positions, among all features, of those that a candidate uses."""
    names = list(specification.features)
    return tuple(names.index(name) for name in _features(specification, specification.candidate[index]))


def _weight(data: CandidateData) -> Floats | None:
    return None if data.rows.weight is None else data.rows.weight[data.rows.training]


def _problem(
    specification: Specification, index: int, data: CandidateData, threads: int | None
) -> CandidateProblem:
    """Return the inputs of a candidate's fits to the training rows."""
    candidate, training, weight = specification.candidate[index], data.rows.training, _weight(data)
    columns, shards = _columns(specification, index), None
    if data.stored is not None:
        engine = current_engine(default_threads() if threads is None else threads)
        shards = TrainingShards(
            data.stored, len(data.classes), engine, data.held_out_too, data.rows.confusion_by_annotator
        )
    return CandidateProblem(
        X=data.filled[training][:, columns],
        kind=candidate.basis.kind,
        widths=basis_choices(candidate.basis),
        soften=candidate.transform == "arcsinh",
        response={
            "t": data.rows.response[training],
            "likelihood": candidate.likelihood if len(data.classes) == 2 else "softmax",
            "sample_weight": weight,
            "classes": range(len(data.classes)),
            "confusion": data.rows.confused(training),
        },
        weight=weight,
        generator=lambda: _generator(specification, candidate),
        threads=threads,
        columns=columns,
        shards=shards,
        group=None if data.rows.group is None else data.rows.group[training],
    )


def build_classifier(
    specification: Specification,
    members: Sequence[Member],
    data: CandidateData,
    *,
    untrusted: bool,
    temperature: Temperature | None = None,
    integrated: float = 1.0,
) -> Classifier:
    """Return the classifier that is made of fitted members; its features are those that some member uses."""
    used = used_columns(members)
    place = {column: j for j, column in enumerate(used)}
    training, names = data.rows.training, list(specification.features)
    return Classifier.build(
        [Member(m.basis, m.posterior, tuple(place[c] for c in m.columns), m.weight) for m in members],
        data.rows.X[training][:, used],
        data.rows.missing[training][:, used],
        features=[names[j] for j in used],
        classes=data.classes,
        weight=_weight(data),
        low_confidence=specification.flags.low_confidence,
        close_call=specification.flags.close_call,
        untrusted=untrusted,
        averaged_beyond=specification.select.extrapolation == "averaged",
        temperature=temperature,
        integrated=integrated,
    )


def used_columns(members: Sequence[Member]) -> list[int]:
    """Return the positions of the features that some member uses, in the specification's order."""
    return sorted({column for member in members for column in member.columns})


def _generator(specification: Specification, candidate: Candidate) -> np.random.Generator:
    """Return a generator for this candidate alone, so that another candidate in the list changes nothing for it."""
    # The seed depends on keys that earlier versions lacked only if they are used.
    later: dict[str, bool | set[str]] = {} if candidate.transform != "none" else {"transform": True}
    if isinstance(candidate.basis, SigmoidBasis) and candidate.basis.height is None:
        later["basis"] = {"height"}
    text = candidate.model_dump_json(exclude=later)
    words = np.frombuffer(hashlib.sha256(text.encode()).digest(), dtype="<u4")
    return np.random.default_rng([specification.seed, *words.tolist()])


def _row(
    candidate: Candidate,
    names: Sequence[str],
    classes: Sequence[str],
    parts: Sequence[Part],
    log_evidence: float,
    unseen: LeftOut,
    *,
    judged: bool,
) -> JudgedCandidate:
    """Return the candidate's row in the table; a number that could not be computed is None, since JSON has no NaN.

    The evidence is that of all parts together.  The log of the Occam factor is this log evidence minus the log
    likelihood at the mode of the best part.  BIC, effective parameters and verdict are those of the best part.  The
    verdict and the second-order term take longer than the fit: they are there where the evidence ranks (`judged`).
    """
    best, loss = parts[0].laplace, unseen.loss()
    if not np.isfinite([log_evidence, best.bic, loss]).all():
        raise ValueError(f"evidence {log_evidence}, BIC {best.bic}, log loss {loss}")
    density, error = unseen.log_density(best.problem.n_effective)
    trust = best.trust if judged else None
    return JudgedCandidate(
        features=tuple(names),
        basis=basis_words(candidate.basis) + (", arcsinh" if candidate.transform == "arcsinh" else ""),
        n_functions=int(best.problem.n_functions),
        log_evidence=float(log_evidence),
        second_order=_finite(best.second_order) if judged else None,
        log_likelihood=_finite(best.log_likelihood),
        log_occam_factor=_finite(log_evidence - best.log_likelihood),
        bic=float(best.bic),
        loo=_finite(density),
        loo_standard_error=_finite(error),
        effective_parameters=_finite(best.effective_parameters),
        log_loss=float(loss),
        parts=tuple(part.described for part in parts),
        verdict=None if trust is None else trust.verdict,
        reasons=() if trust is None else named_reasons(trust.reasons, parts[0].basis.names(names), classes),
        numbers={} if trust is None else {name: _finite(x) for name, x in trust.numbers.items()},
        converged=bool(best.converged),
        n_iter=int(best.n_iter),
        prior_probability=candidate.prior_probability,
    )


def _finite(x: float) -> float | None:
    return float(x) if np.isfinite(x) else None
