"""One candidate: fitted to the training rows, judged on rows that its fits have not seen.

A candidate is a mixture: over the widths of its basis, where several are to be tried, and over its prior's scale, each
part weighted by its evidence.  What is compared, stacked and kept is the posterior that will be served.
Shapes: N rows, F features of the specification, M basis functions, K classes, P parts of the mixture.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import logsumexp

from blr.basis import Basis, fit_basis
from blr.calibration import log_loss
from blr.classifier import Classifier, Member
from blr.evidence import fit_evidence
from blr.folds import assign_folds, fold_probability
from blr.laplace import fit
from blr.posterior import Posterior
from blr.prior import GaussianPrior
from blr.prior_scale import fit_scales
from blr.sampling import sample_posterior
from blr.selection import leave_one_out, leave_one_out_probability
from blr.variational import refine
from flows.config import Candidate, Specification
from flows.config_bases import basis_choices, basis_words
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

MOST_PARTS = 4
LEAST_PART = 0.05
"""Share of the best part below which a width or scale is left out: each costs as much time in every prediction."""
FOLD_WORK = 1e9
"""Rows times squared weights above which left-out predictions come from one step, not from refitted folds."""


@dataclass(frozen=True, eq=False)
class CandidateData:
    """What every candidate is given: the rows, and their features with the missing ones at their conditional mean."""

    rows: TrainingRows
    filled: Floats
    classes: tuple[str, ...]


@dataclass(frozen=True, eq=False)
class _Part:
    """A width and a scale: the basis, its Laplace fit and the posterior to be judged, and their share."""

    choice: int  # among the widths
    scale: float | None  # standard deviation of the prior; None: where the evidence is highest
    weight: float
    basis: Basis
    laplace: Posterior
    served: Posterior


@dataclass(frozen=True, eq=False)
class FittedCandidate:
    """The candidate's row of the table, and the training rows' left-out probabilities with their shares, (2, N, K)."""

    row: dict[str, Any]
    left_out: Floats | None = None


def fit_candidate(
    specification: Specification, index: int, data: CandidateData, *, threads: int | None = None
) -> FittedCandidate:
    """Fit one candidate to the training rows and judge it on rows that its fits have not seen."""
    candidate = specification.candidate[index]
    what = f"candidate {index + 1} of {len(specification.candidate)}"
    tell().start(f"fitting {what}", 0, "steps")
    parts, log_evidence = _fitted(specification, index, data, threads)
    left_out, by = None, "held-out rows"
    if specification.select.by == "stack" or not data.rows.held_out.any():
        left_out, by = _left_out(specification, parts, data, what)
    held_out = data.rows.held_out.any()
    loss = _held_out_loss(specification, index, parts, data) if held_out else _left_out_loss(left_out)
    row = _row(candidate, _features(specification, candidate), parts, log_evidence, loss)
    return FittedCandidate(row | {"left_out_by": by}, left_out)


def refit_candidate(
    specification: Specification,
    index: int,
    data: CandidateData,
    parts: Sequence[Mapping[str, Any]],
    *,
    threads: int | None = None,
) -> list[Member]:
    """Return the members of a candidate, with the posterior that the specification asks for.

    `parts` are those of its row in the table: their fits are done again, since a fit that was loaded has no data.
    """
    kind, what = specification.select.posterior, f"candidate {index + 1} of {len(specification.candidate)}"
    done = "refining" if kind == "refined" else "sampling the posterior of"
    tell().start(f"{done} {what}", 0, "steps" if kind == "refined" else "blocks of draws")
    columns, X = _columns(specification, index, data)
    members = []
    for part in parts:
        basis = _basis(specification, index, data, X, part["width"])
        q = _at_scale(specification, index, data, basis(X), part["scale"], threads)
        if kind == "refined":
            q = refine(q, start=refine(q, draft=True, on_step=_step_told), on_step=_step_told)
        elif kind == "sampled":
            (rng,) = _generator(specification, specification.candidate[index]).spawn(1)
            q = sample_posterior(q, rng=rng, on_step=_step_told)
        members.append(Member(basis, q, columns, part["weight"]))
    return members


def _step_told() -> None:
    tell().advance(1)


def _features(specification: Specification, candidate: Candidate) -> tuple[str, ...]:
    return candidate.features or tuple(specification.features)


def _columns(specification: Specification, index: int, data: CandidateData) -> tuple[tuple[int, ...], Floats]:
    """Return which features a candidate uses, and these of the training rows."""
    names = list(specification.features)
    columns = tuple(names.index(name) for name in _features(specification, specification.candidate[index]))
    return columns, data.filled[data.rows.training][:, columns]


def _weight(data: CandidateData) -> Floats | None:
    return None if data.rows.weight is None else data.rows.weight[data.rows.training]


def _basis(specification: Specification, index: int, data: CandidateData, X: Floats, choice: int) -> Basis:
    candidate = specification.candidate[index]
    return fit_basis(
        candidate.basis.kind,
        X,
        weight=_weight(data),
        rng=_generator(specification, candidate),
        soften=candidate.transform == "arcsinh",
        **basis_choices(candidate.basis)[choice],
    )


def _response(specification: Specification, index: int, data: CandidateData) -> dict[str, Any]:
    """Return what every fit of a candidate is given beside the design matrix."""
    return {
        "t": data.rows.response[data.rows.training],
        "likelihood": specification.candidate[index].likelihood if len(data.classes) == 2 else "softmax",
        "sample_weight": _weight(data),
        "classes": range(len(data.classes)),
    }


def _at_scale(
    specification: Specification,
    index: int,
    data: CandidateData,
    Phi: Floats,
    scale: float | None,
    threads: int | None,
) -> Posterior:
    """Return the Laplace fit at a standard deviation of the prior, None for where the evidence is highest."""
    given = _response(specification, index, data)
    if scale is None:
        return fit_evidence(Phi, threads=threads, **given)
    prior = GaussianPrior.isotropic(Phi.shape[1], precision=scale**-2, intercept=0)
    return fit(Phi, prior=prior, threads=threads, **given)


def _fitted(
    specification: Specification, index: int, data: CandidateData, threads: int | None
) -> tuple[list[_Part], float]:
    """Return the parts that matter, the best first, and the log evidence of the whole."""
    _, X = _columns(specification, index, data)
    integrated = specification.select.scale == "integrated"
    laplace: list[tuple[float, int, float | None, Basis, Posterior]] = []
    for choice in range(len(basis_choices(specification.candidate[index].basis))):
        basis = _basis(specification, index, data, X, choice)
        Phi = basis(X)
        if integrated:
            found = fit_scales(Phi, threads=threads, **_response(specification, index, data))
            shares = zip(found.weight, found.scale, found.posteriors, strict=True)
            laplace += [
                (found.log_evidence + float(np.log(w)), choice, float(s), basis, q) for w, s, q in shares
            ]
        else:
            q = _at_scale(specification, index, data, Phi, None, threads)
            laplace.append((q.log_evidence, choice, None, basis, q))
    log_weight = np.array([part[0] for part in laplace])
    log_evidence = float(logsumexp(log_weight)) - float(np.log(len(basis_choices(specification.candidate[index].basis))))
    kept = np.argsort(-log_weight, kind="stable")[:MOST_PARTS]
    kept = kept[log_weight[kept] > log_weight[kept[0]] + np.log(LEAST_PART)]
    return _refined(specification, [laplace[i] for i in kept.tolist()]), log_evidence


def _refined(
    specification: Specification, laplace: Sequence[tuple[float, int, float | None, Basis, Posterior]]
) -> list[_Part]:
    """Return the parts with the posteriors to be judged.

    Of refined posteriors the shares follow the lower bounds instead of Laplace's evidences, which are wild where classes
    are separable: bounds are compared with bounds only.
    """
    log_weight = np.array([part[0] for part in laplace])
    posteriors = [q for *_, q in laplace]
    if specification.select.posterior != "laplace":
        posteriors = [refine(q, draft=True, on_step=_step_told) for q in posteriors]
        log_weight += [(r.elbo or 0.0) - q.log_evidence for r, (*_, q) in zip(posteriors, laplace, strict=True)]
    weight = np.exp(log_weight - logsumexp(log_weight))
    parts = [
        _Part(choice, scale, float(w), basis, q, served)
        for w, served, (_, choice, scale, basis, q) in zip(weight, posteriors, laplace, strict=True)
        if w > LEAST_PART * weight.max()
    ]
    total = sum(part.weight for part in parts)
    return sorted((replace(p, weight=p.weight / total) for p in parts), key=lambda p: -p.weight)


def _left_out(
    specification: Specification, parts: Sequence[_Part], data: CandidateData, what: str
) -> tuple[Floats, str]:
    """Return the training rows' left-out probabilities and weighted shares (2, N, K), and how they were found."""
    rows = data.rows
    _, share, weight = leave_one_out_probability(parts[0].laplace)
    work = float(len(share)) * parts[0].laplace.problem.n_solved ** 2
    if work > FOLD_WORK:
        p = sum(part.weight * leave_one_out_probability(part.served)[0] for part in parts)
        return np.stack([np.asarray(p), weight[:, None] * share]), "one step"
    group = None if rows.group is None else rows.group[rows.training]
    fold = assign_folds(rows.target[rows.training], group)
    tell().start(f"folds of {what}", len(parts), "parts")
    refined = specification.select.posterior != "laplace"
    p = np.zeros_like(share)
    for part in parts:
        p += part.weight * fold_probability(part.laplace, fold, refined=refined)
        tell().advance(1)
    return np.stack([p, weight[:, None] * share]), "folds"


def _left_out_loss(left_out: Floats | None) -> float:
    assert left_out is not None  # noqa: S101  there are folds where nothing is held out
    p, share = left_out
    return float(-(share * np.log(np.maximum(p, np.finfo(float).tiny))).sum() / share.sum())


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
        weight=_weight(data),
        low_confidence=specification.flags.low_confidence,
        close_call=specification.flags.close_call,
        untrusted=untrusted,
        averaged_beyond=specification.select.extrapolation == "averaged",
    )


def used_columns(members: Sequence[Member]) -> list[int]:
    """Return the features that some member uses, in the specification's order."""
    return sorted({column for member in members for column in member.columns})


def _generator(specification: Specification, candidate: Candidate) -> np.random.Generator:
    """Return a generator of the candidate's own: adding another one to the list changes nothing for it."""
    words = np.frombuffer(hashlib.sha256(candidate.model_dump_json().encode()).digest(), dtype="<u4")
    return np.random.default_rng([specification.seed, *words.tolist()])


def _held_out_loss(
    specification: Specification, index: int, parts: Sequence[_Part], data: CandidateData
) -> float:
    columns, _ = _columns(specification, index, data)
    members = [Member(part.basis, part.served, columns, part.weight) for part in parts]
    classifier = build_classifier(specification, members, data, untrusted=False)
    held_out, used = data.rows.held_out, used_columns(members)
    p = classifier.score(data.rows.X[held_out][:, used], data.rows.missing[held_out][:, used]).probability
    known = ~np.isnan(p[:, 0])
    # A row of which nothing is measured is told the classes' shares, as every candidate would be.
    shares = np.bincount(data.rows.target[data.rows.training], minlength=len(data.classes))
    p[~known] = shares / shares.sum()
    votes = data.rows.votes
    if votes is None:
        return log_loss(p, data.rows.target[held_out])
    return log_loss(p, votes[held_out] / votes[held_out].sum(axis=1, keepdims=True))


def _row(
    candidate: Candidate, names: Sequence[str], parts: Sequence[_Part], log_evidence: float, loss: float
) -> dict[str, Any]:
    """Return a row of the evidence table; what could not be computed is None there, since JSON has no NaN.

    The evidence is of the whole mixture, its Occam factor what the likelihood at the best part's mode leaves of it;
    BIC, effective parameters and verdict are the best part's.
    """
    best = parts[0].laplace
    loo = leave_one_out(parts[0].served)
    numbers = {
        "log_evidence": log_evidence,
        "second_order": best.second_order,
        "log_likelihood": best.log_likelihood,
        "log_occam_factor": log_evidence - best.log_likelihood,
        "bic": best.bic,
        "loo": loo.log_density,
        "loo_standard_error": loo.standard_error,
        "effective_parameters": best.effective_parameters,
        "log_loss": loss,
    }
    if not np.isfinite([log_evidence, best.bic, loss]).all():
        raise ValueError(f"evidence {log_evidence}, BIC {best.bic}, log loss {loss}")
    return {
        "features": list(names),
        "basis": basis_words(candidate.basis) + (", arcsinh" if candidate.transform == "arcsinh" else ""),
        "n_functions": int(best.problem.n_functions),
        **_plain(numbers),
        "parts": [{"width": p.choice, "scale": p.scale, "weight": p.weight} for p in parts],
        "verdict": best.trust.verdict,
        "reasons": list(best.trust.reasons),
        "numbers": _plain(best.trust.numbers),
        "converged": bool(best.converged),
        "n_iter": int(best.n_iter),
        "prior_probability": candidate.prior_probability,
    }


def _plain(numbers: Mapping[str, float]) -> dict[str, float | None]:
    return {name: float(x) if np.isfinite(x) else None for name, x in numbers.items()}
