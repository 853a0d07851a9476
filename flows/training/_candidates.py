"""How one candidate is fitted to the training rows, and judged on rows that its fits have not seen.

Shapes: N rows, F features of the specification, M basis functions, K classes.
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from blr.calibration import log_loss
from blr.classifier import Classifier, Member
from blr.gaussian import Gaussian
from blr.likelihood.confusion import recorded_probability
from blr.posterior.posterior import Posterior
from blr.posterior.repair import served
from blr.posterior.sampling import sample_posterior
from blr.posterior.variational import refine
from blr.predictive.temperature import Temperature
from blr.selection.compare import LeaveOneOut, leave_one_out
from blr.selection.folds import assign_folds
from blr.threads import default_threads
from blr.trust.verdict import Trust, named_reasons
from flows.engines.current import current_engine
from flows.models.candidates import CandidatePart, JudgedCandidate, PosteriorCheck
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
from flows.training._rows import TrainingRows
from flows.training._shards import TrainingShards

__all__ = [
    "FinalMember",
    "FittedCandidate",
    "build_classifier",
    "fit_candidate",
    "known_trust",
    "refit_candidate",
    "used_columns",
]

Floats = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class FittedCandidate:
    """The candidate as it was judged, and what later steps need of its fits.

    `left_out` are the left-out probabilities of the training rows.
    `drafts` are the refined posteriors of the parts, from which a later refinement starts; none if nothing was refined.
    """

    row: JudgedCandidate
    left_out: LeftOut | None = None
    drafts: tuple[Gaussian, ...] = ()


@dataclass(frozen=True, eq=False)
class FinalMember:
    """A member of the model, and the check of its posterior against the exact one; None where it was not checked."""

    member: Member
    check: PosteriorCheck | None


def fit_candidate(
    specification: Specification, index: int, data: CandidateData, *, threads: int | None = None
) -> FittedCandidate:
    """Fit one candidate to the training rows and judge it on rows that its fits have not seen."""
    candidate, select = specification.candidate[index], specification.select
    what = f"candidate {index + 1} of {len(specification.candidate)}"
    tell().start(f"fitting {what}", 0, "steps")
    problem, refined = _problem(specification, index, data, threads), select.posterior != "laplace"
    parts, log_evidence = fitted_parts(
        problem, integrated=select.scale == "integrated", refined=refined, on_step=_advance
    )
    held_out = bool(data.rows.held_out.any())
    loo = leave_one_out(parts[0].served)
    unseen = None
    if select.by == "stack" or not held_out:
        training, group = data.rows.training, data.rows.group
        if problem.shards is None:
            tell().start(f"folds of {what}", len(parts), "parts")
            fold = assign_folds(data.rows.target[training], None if group is None else group[training])
            incomplete = IncompleteRows.of(data, tuple(specification.features), problem.columns)
            n_influential = loo.n_influential
            unseen = left_out(
                parts, fold, incomplete, n_influential=n_influential, refined=refined, on_part=_advance
            )
        else:
            tell().start(f"left-out rows of {what}", len(problem.X), "rows")
            unseen = left_out_of_sample(problem, parts, on_rows=tell().advance)
        unseen = unseen.recorded(data.rows.confused(training))
    if held_out:
        loss = _held_out_loss(specification, index, parts, data)
    else:
        assert unseen is not None  # noqa: S101  nothing is held out
        loss = unseen.loss()
    named = _features(specification, candidate)
    by = "held-out rows" if unseen is None else unseen.by
    row = _row(candidate, named, data.classes, parts, log_evidence, loss, loo, by)
    drafts = tuple(part.served.gaussian for part in parts) if refined else ()
    return FittedCandidate(row, unseen, drafts)


def refit_candidate(
    specification: Specification,
    index: int,
    data: CandidateData,
    parts: Sequence[CandidatePart],
    *,
    drafts: Sequence[Gaussian] = (),
    checked: Collection[int] = (),
    verdict: Trust | None = None,
    threads: int | None = None,
) -> list[FinalMember]:
    """Return the members of a candidate, with the posterior that the specification asks for.

    `parts` are those of the candidate's row in the table.  Their fits are done again, since a loaded fit has no data.
    The refinement of a part starts at its draft if there are `drafts`, one for each part.  The refined posteriors of
    the `checked` parts (indices) are compared with the exact ones where the verdict is red.  `verdict` is that of the
    first part's Laplace fit, if a fit to the same rows was judged before.
    """
    kind, what = specification.select.posterior, f"candidate {index + 1} of {len(specification.candidate)}"
    done = "refining" if kind == "refined" else "sampling the posterior of"
    tell().start(f"{done} {what}", 0, "steps" if kind == "refined" else "blocks of draws")
    problem, columns = _problem(specification, index, data, threads), _columns(specification, index)
    members, named = [], _features(specification, specification.candidate[index])
    for number, part in enumerate(parts):
        basis, check = problem.basis(part.width, known=part.widths or part.heights), None
        laplace = problem.at_scale(basis, part.scale)
        if verdict is not None and not number and number in checked:
            laplace = replace(laplace, verdict=verdict)
        q: Posterior = laplace
        (rng,) = _generator(specification, specification.candidate[index]).spawn(1)
        if kind == "refined":
            draft = drafts[number] if number < len(drafts) else None
            # Of other rows a basis may have other functions: steps lie at the different values of a feature.
            if draft is not None and draft.mean.size == laplace.gaussian.mean.size:
                start: Posterior = replace(laplace, gaussian=draft)
            else:
                start = refine(laplace, draft=True, on_step=_advance)
            q = refined = refine(laplace, start=start, on_step=_advance)
            if number in checked and problem.shards is None:  # chains read all rows thousands of times
                tell().start(f"checking {what} against the exact posterior", 0, "steps")
                exact = served(laplace, refined, rng=rng)
                q, check = exact.posterior, posterior_check(exact, basis.names(named), data.classes)
        elif kind == "sampled":
            q = sample_posterior(laplace, rng=rng, on_step=_advance)
        members.append(FinalMember(Member(basis, q, columns, part.weight), check))
    return members


def known_trust(row: JudgedCandidate) -> Trust:
    """Return the verdict on the Laplace fit of a candidate's first part, as its row in the table has it."""
    numbers = {name: float("nan") if x is None else x for name, x in row.numbers.items()}
    return Trust(row.verdict, tuple(row.reasons), numbers)


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


def _held_out_loss(
    specification: Specification, index: int, parts: Sequence[Part], data: CandidateData
) -> float:
    columns = _columns(specification, index)
    members = [Member(part.basis, part.served, columns, part.weight) for part in parts]
    classifier = build_classifier(specification, members, data, untrusted=False)
    used = used_columns(members)
    counts = np.bincount(data.rows.target[data.rows.training], minlength=len(data.classes))
    losses = [_loss(classifier, used, rows, counts / counts.sum()) for rows in data.held_out()]
    return losses[0][0] if len(losses) == 1 else sum(x * n for x, n in losses) / sum(n for _, n in losses)


def _loss(
    classifier: Classifier, used: Sequence[int], rows: TrainingRows, shares: Floats
) -> tuple[float, int]:
    """Return the mean log loss of the held-out rows among some rows, and the number of these."""
    held_out = rows.held_out
    p = classifier.score(rows.X[held_out][:, used], rows.missing[held_out][:, used]).probability
    p = recorded_probability(p, rows.confused(held_out))
    # A row without any measured feature has no probabilities: it gets the shares of the classes, in every candidate.
    p[np.isnan(p[:, 0])] = shares
    if rows.votes is None:
        return log_loss(p, rows.target[held_out]), len(p)
    votes = rows.votes[held_out]
    return log_loss(p, votes / votes.sum(axis=1, keepdims=True)), len(p)


def _row(
    candidate: Candidate,
    names: Sequence[str],
    classes: Sequence[str],
    parts: Sequence[Part],
    log_evidence: float,
    loss: float,
    loo: LeaveOneOut,
    left_out_by: str,
) -> JudgedCandidate:
    """Return the candidate's row in the table; a number that could not be computed is None, since JSON has no NaN.

    The evidence is that of all parts together.  The log of the Occam factor is this log evidence minus the log
    likelihood at the mode of the best part.  BIC, effective parameters and verdict are those of the best part.
    """
    best = parts[0].laplace
    if not np.isfinite([log_evidence, best.bic, loss]).all():
        raise ValueError(f"evidence {log_evidence}, BIC {best.bic}, log loss {loss}")
    return JudgedCandidate(
        features=tuple(names),
        basis=basis_words(candidate.basis) + (", arcsinh" if candidate.transform == "arcsinh" else ""),
        n_functions=int(best.problem.n_functions),
        log_evidence=float(log_evidence),
        second_order=_finite(best.second_order),
        log_likelihood=_finite(best.log_likelihood),
        log_occam_factor=_finite(log_evidence - best.log_likelihood),
        bic=float(best.bic),
        loo=_finite(loo.log_density),
        loo_standard_error=_finite(loo.standard_error),
        effective_parameters=_finite(best.effective_parameters),
        log_loss=float(loss),
        parts=tuple(part.described for part in parts),
        verdict=best.trust.verdict,
        reasons=named_reasons(best.trust.reasons, parts[0].basis.names(names), classes),
        numbers={name: _finite(x) for name, x in best.trust.numbers.items()},
        converged=bool(best.converged),
        n_iter=int(best.n_iter),
        prior_probability=candidate.prior_probability,
        left_out_by=left_out_by,
    )


def _finite(x: float) -> float | None:
    return float(x) if np.isfinite(x) else None
