"""One candidate: fitted to the training rows, judged on the held-out ones.

Shapes: N rows, F features of the specification, M basis functions, K classes.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from blr.basis import fit_basis
from blr.calibration import log_loss
from blr.classifier import Classifier, Member
from blr.evidence import fit_evidence
from blr.posterior import Posterior
from blr.sampling import sample_posterior
from blr.selection import leave_one_out, leave_one_out_probability
from blr.variational import refine
from flows.config import Candidate, Specification
from flows.config_bases import basis_options, basis_words
from flows.progress import tell
from flows.training_rows import TrainingRows

__all__ = [
    "CandidateData",
    "FittedCandidate",
    "build_classifier",
    "fit_candidate",
    "refit_candidate",
    "used_columns",
]

Floats = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class CandidateData:
    """What every candidate is given: the rows, and their features with the missing ones at their conditional mean."""

    rows: TrainingRows
    filled: Floats
    classes: tuple[str, ...]


@dataclass(frozen=True, eq=False)
class FittedCandidate:
    """The model, its row of the evidence table, and where candidates are stacked what `ranking.stacked` takes."""

    member: Member
    row: dict[str, Any]
    left_out: Floats | None = None  # (2, N, K)


def fit_candidate(
    specification: Specification, index: int, data: CandidateData, *, threads: int | None = None
) -> FittedCandidate:
    """Fit one candidate to the training rows and judge it on the held-out ones.

    The fit is Laplace's, which all candidates are compared by.
    """
    member = _fitted(specification, index, data, threads)
    q, candidate = member.posterior, specification.candidate[index]
    classifier = build_classifier(specification, [member], data, untrusted=q.trust.verdict == "red")
    loss = _held_out_loss(classifier, specification, data)
    row = _row(candidate, _features(specification, candidate), q, loss)
    return FittedCandidate(member, row, _left_out(q) if specification.select.by == "stack" else None)


def _left_out(q: Posterior) -> Floats:
    p, share, weight = leave_one_out_probability(q)
    return np.stack([p, weight[:, None] * share])


def refit_candidate(
    specification: Specification, index: int, data: CandidateData, *, threads: int | None = None
) -> Member:
    """Return a candidate with the posterior that the specification asks for.

    A fit that was loaded has no data with it, so it is done again: the same, since nothing in it is left to chance.
    """
    kind, what = specification.select.posterior, f"candidate {index + 1} of {len(specification.candidate)}"
    done = "refining" if kind == "refined" else "sampling the posterior of"
    tell().start(f"{done} {what}", 0, "steps" if kind == "refined" else "blocks of draws")
    member = _fitted(specification, index, data, threads)
    if kind == "refined":
        return replace(member, posterior=refine(member.posterior, on_step=_step_told))
    (rng,) = _generator(specification, specification.candidate[index]).spawn(1)
    return replace(member, posterior=sample_posterior(member.posterior, rng=rng, on_step=_step_told))


def _step_told() -> None:
    tell().advance(1)


def _features(specification: Specification, candidate: Candidate) -> tuple[str, ...]:
    return candidate.features or tuple(specification.features)


def _fitted(specification: Specification, index: int, data: CandidateData, threads: int | None) -> Member:
    candidate, names = specification.candidate[index], list(specification.features)
    columns = tuple(names.index(name) for name in _features(specification, candidate))
    training = data.rows.training
    X = data.filled[training][:, columns]
    weight = None if data.rows.weight is None else data.rows.weight[training]
    basis = fit_basis(
        candidate.basis.kind,
        X,
        weight=weight,
        rng=_generator(specification, candidate),
        **basis_options(candidate.basis),
    )
    q = fit_evidence(
        basis(X),
        data.rows.response[training],
        likelihood=candidate.likelihood if len(data.classes) == 2 else "softmax",
        sample_weight=weight,
        classes=range(len(data.classes)),
        threads=threads,
    )
    return Member(basis, q, columns)


def build_classifier(
    specification: Specification, members: Sequence[Member], data: CandidateData, *, untrusted: bool
) -> Classifier:
    """Return the classifier of fitted members over the features that some member uses."""
    used = used_columns(members)
    place = {column: j for j, column in enumerate(used)}
    training, names = data.rows.training, list(specification.features)
    return Classifier.build(
        [Member(m.basis, m.posterior, tuple(place[c] for c in m.columns), m.weight) for m in members],
        data.rows.X[training][:, used],
        data.rows.missing[training][:, used],
        features=[names[j] for j in used],
        classes=data.classes,
        weight=None if data.rows.weight is None else data.rows.weight[training],
        low_confidence=specification.flags.low_confidence,
        close_call=specification.flags.close_call,
        untrusted=untrusted,
    )


def used_columns(members: Sequence[Member]) -> list[int]:
    """Return the features that some member uses, in the specification's order."""
    return sorted({column for member in members for column in member.columns})


def _generator(specification: Specification, candidate: Candidate) -> np.random.Generator:
    """Return a generator of the candidate's own: adding another one to the list changes nothing for it."""
    words = np.frombuffer(hashlib.sha256(candidate.model_dump_json().encode()).digest(), dtype="<u4")
    return np.random.default_rng([specification.seed, *words.tolist()])


def _held_out_loss(classifier: Classifier, specification: Specification, data: CandidateData) -> float:
    names = list(specification.features)
    columns = [names.index(name) for name in classifier.features]
    held_out = data.rows.held_out
    p = classifier.score(
        data.rows.X[held_out][:, columns], data.rows.missing[held_out][:, columns]
    ).probability
    known = ~np.isnan(p[:, 0])
    # A row of which nothing is measured is told the classes' shares, as every candidate would be.
    shares = np.bincount(data.rows.target[data.rows.training], minlength=len(data.classes))
    p[~known] = shares / shares.sum()
    votes = data.rows.votes
    if votes is None:
        return log_loss(p, data.rows.target[held_out])
    return log_loss(p, votes[held_out] / votes[held_out].sum(axis=1, keepdims=True))


def _row(candidate: Candidate, names: Sequence[str], q: Posterior, loss: float) -> dict[str, Any]:
    """Return a row of the evidence table; what could not be computed is None there, since JSON has no NaN."""
    loo = leave_one_out(q)
    numbers = {
        "log_evidence": q.log_evidence,
        "second_order": q.second_order,
        "log_likelihood": q.log_likelihood,
        "log_occam_factor": q.log_occam_factor,
        "bic": q.bic,
        "loo": loo.log_density,
        "loo_standard_error": loo.standard_error,
        "effective_parameters": q.effective_parameters,
        "log_loss": loss,
    }
    if not np.isfinite([q.log_evidence, q.bic, loss]).all():
        raise ValueError(f"evidence {q.log_evidence}, BIC {q.bic}, held-out log loss {loss}")
    return {
        "features": list(names),
        "basis": basis_words(candidate.basis),
        "n_functions": int(q.problem.n_functions),
        **_plain(numbers),
        "verdict": q.trust.verdict,
        "reasons": list(q.trust.reasons),
        "numbers": _plain(q.trust.numbers),
        "converged": bool(q.converged),
        "n_iter": int(q.n_iter),
        "prior_probability": candidate.prior_probability,
    }


def _plain(numbers: Mapping[str, float]) -> dict[str, float | None]:
    return {name: float(x) if np.isfinite(x) else None for name, x in numbers.items()}
