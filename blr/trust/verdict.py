"""Can the probabilities of a fit be trusted?  A verdict, its reasons in words, and the numbers behind them.

The verdict is on probabilities: by how much they differ from those of the exact posterior, over training rows.  Of a
Laplace fit this is how far its probabilities move when its mean is moved to that of the posterior (`_corrections`).
Green: they err by less than 0.01 on average.  Amber: by less than 0.03.  Red: by more, or there is no posterior.
The shift in posterior sd, the second-order term of the evidence, what that leaves, the Pareto shape and effective
sample size of importance draws (`importance`), separation and collinear columns are numbers beside it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from blr.arrays import Matrix, Vector
from blr.fitting.collinearity import find_collinearity
from blr.fitting.problem import Problem
from blr.fitting.separation import Separation, find_separation
from blr.gaussian import Gaussian
from blr.likelihood.likelihoods import Categorical
from blr.likelihood.targets import most_likely_class
from blr.predictive.mixture import predicted
from blr.predictive.output_moments import OutputMoments
from blr.sums import ChunkFunction, Data, Terms, evenly_spread
from blr.threads import single_threaded_blas
from blr.trust._corrections import Corrections, corrections
from blr.trust.importance import evidence_left, laplace_ratios, smooth

MEAN_ERROR = 0.01, 0.03
"""Mean error of probabilities from which a verdict is amber, and from which it is red."""
_SHIFT = 0.8  # in posterior sd, above which the second-order term does not hold
_SECOND_ORDER = 0.12  # nats, likewise; what is left beyond it is about its square, here 0.015
# Nats, of a term of the evidence's expansion: what is left beyond smaller ones is nothing.
_LOOK_CLOSER = 0.02
_CLOSER_ROWS = 5000
_LEFT = 0.01  # nats beyond the second-order term: 0.015 are promised where it holds
_K_HAT = 0.7
_EFFECTIVE = 0.05
_ROWS = 256  # training rows whose probabilities are compared
_SEPARATION = {"none": 0.0, "quasi": 1.0, "complete": 2.0, "unknown": -1.0}
_LEVELS = ("green", "amber", "red")
_NAMED = 5  # columns or classes in a message
_COLUMNS = re.compile(r"\bcolumn(\(s\))? (\d+(?:, \d+)*)")
_CLASSES = re.compile(r"\btell (\d+ and \d+(?:, \d+ and \d+)*) apart\b")

Finding = tuple[str, str]
"""A level and what led to it, in words."""


@dataclass(frozen=True, kw_only=True)
class TrustAnswer:
    """A question that decides whether probabilities may be used: the answer, a number and a sentence."""

    name: str  # "computed", "calibrated" or "known"
    colour: str  # "green", "amber" or "red"
    value: float | None  # the number that decides; None where it is not known
    low: float | None  # its 95 % interval
    high: float | None
    says: str
    advice: str  # the one thing to do about it; "" where it is green


@dataclass(frozen=True)
class Trust:
    """The verdict "green", "amber" or "red", its reasons in words, and numbers by name.

    Of a model it is the worst of the `answers`; a single fit has none.

    Numbers: `mean_error` and `largest_error` of probabilities; and of a Laplace fit `shift` (posterior sd),
    `second_order` (nats), `evidence_left` beyond it (nats), `k_hat`, `effective_draws` (a share), `separation` (0 none,
    1 quasi, 2 complete, -1 too large to tell), `redundant_columns`, `jitter`, `condition` of A scaled to unit diagonal.
    """

    verdict: str
    reasons: tuple[str, ...]
    numbers: Mapping[str, float]
    answers: tuple[TrustAnswer, ...] = ()

    @classmethod
    def of(cls, findings: list[Finding], numbers: Mapping[str, float]) -> Trust:
        """Return the verdict of the worst finding, the worst findings first."""
        ordered = sorted(findings, key=lambda f: -_LEVELS.index(f[0]))
        verdict = ordered[0][0] if ordered else "green"
        return cls(verdict, tuple(text for _, text in ordered), dict(numbers))

    @property
    def second_order_holds(self) -> bool:
        """Whether the log evidence with its second-order term is good to 0.015 nats."""
        return second_order_holds(self.numbers)

    def to_dict(self) -> dict[str, Any]:
        """Return strings, lists and numbers."""
        return {
            "verdict": self.verdict,
            "reasons": list(self.reasons),
            "numbers": dict(self.numbers),
            "answers": [dict(vars(one)) for one in self.answers],
        }

    @classmethod
    def from_dict(cls, d: Mapping[str, Any]) -> Trust:
        """Return the verdict of `to_dict`."""
        answers = tuple(TrustAnswer(**one) for one in d["answers"])
        return cls(d["verdict"], tuple(d["reasons"]), {k: float(v) for k, v in d["numbers"].items()}, answers)


def assess(problem: Problem, gaussian: Gaussian, *, converged: bool, status: str) -> Trust:
    """Return the verdict on the Laplace approximation `gaussian` of the problem's posterior."""
    data = problem.require_data()
    with single_threaded_blas():
        beyond = corrections(data, problem.likelihood, gaussian)
        draws = smooth(laplace_ratios(data, problem.likelihood, gaussian, beyond.n_rows))
        separation = _separation(problem, gaussian)
        columns = find_collinearity(data)
    numbers = {
        **_errors(problem, gaussian, beyond.shift),
        "shift": beyond.shift_norm,
        "second_order": beyond.second_order,
        "evidence_left": 0.0,
        "k_hat": draws.k_hat,
        "effective_draws": draws.effective,
        "separation": _SEPARATION[separation.kind],
        "redundant_columns": float(columns.n_redundant),
        "jitter": gaussian.jitter,
        "condition": _condition(gaussian),
    }
    if converged and second_order_holds(numbers):
        numbers["evidence_left"] = _left(problem, gaussian, beyond)
    remedy = "refine the fit (blr.refine), or sample its posterior (blr.sample_posterior)"
    findings = [of_probabilities(numbers, remedy)]
    if not converged:
        findings.insert(0, ("red", f"the search for the mode did not converge: {status}"))
    findings += _of_separation(separation, problem)
    findings += _of_columns(columns.empty, columns.dependent, gaussian.jitter, problem)
    return Trust.of(findings, numbers)


def of_probabilities(numbers: Mapping[str, float], remedy: str) -> Finding:
    """Return what the errors of probabilities say of a fit; `remedy` is what to do where they are not small."""
    mean, largest = numbers["mean_error"], numbers["largest_error"]
    # Written so that NaN is red.
    level = "green" if mean < MEAN_ERROR[0] else "amber" if mean < MEAN_ERROR[1] else "red"
    said = f"probabilities of this fit err by {mean:.3f} on average, at most by {largest:.2f}"
    return level, said if level == "green" else f"{said}: {remedy}"


def second_order_holds(numbers: Mapping[str, float | None]) -> bool:
    """Say whether the numbers of a Laplace fit are those of a nearly Gaussian posterior; not where one is not known."""

    def within(name: str, most: float) -> bool:
        value = numbers.get(name)
        return value is not None and abs(value) < most

    effective = numbers.get("effective_draws") or 0.0
    gaussian = within("shift", _SHIFT) and within("second_order", _SECOND_ORDER) and within("jitter", 1e-300)
    return gaussian and within("k_hat", _K_HAT) and effective >= _EFFECTIVE and within("evidence_left", _LEFT)


def some_rows(data: Data) -> Matrix:
    """Return the design of some 256 training rows, evenly spread, (n, M)."""
    return evenly_spread(data, _ROWS)[1][:_ROWS]


def _errors(problem: Problem, gaussian: Gaussian, shift: Vector) -> dict[str, float]:
    """Return how far probabilities of training rows move, on average and at most, when the mean does."""
    Phi, likelihood = some_rows(problem.require_data()), problem.likelihood
    link = "logistic" if not problem.binary else likelihood.name
    found = [
        predicted(*problem.class_moments(*OutputMoments(q, likelihood.n_outputs)(Phi)), link=link).probability
        for q in (gaussian, Gaussian(gaussian.mean + shift, gaussian.precision))
    ]
    moved = np.abs(found[0] - found[1]).max(axis=1)
    return {"mean_error": float(moved.mean()), "largest_error": float(moved.max())}


def named_reasons(
    reasons: Sequence[str], functions: Sequence[str], classes: Sequence[str]
) -> tuple[str, ...]:
    """Return reasons with names of basis functions (M,) for columns, and of classes (K,) for their indices.

    For fits whose classes are 0 to K - 1; a reason that has names already stays.
    """
    return tuple(_named(reason, functions, classes) for reason in reasons)


def _named(reason: str, functions: Sequence[str], classes: Sequence[str]) -> str:
    if not _COLUMNS.search(reason):
        return reason
    of_classes = _CLASSES.sub(
        lambda m: f"tell {re.sub(r'[0-9]+', lambda k: classes[int(k[0])], m[1])} apart", reason
    )
    return _COLUMNS.sub(
        lambda m: (
            f"basis function{m[1] or ''} {', '.join(functions[int(column)] for column in m[2].split(', '))}"
        ),
        of_classes,
    )


def _left(problem: Problem, gaussian: Gaussian, beyond: Corrections) -> float:
    """Return what the evidence lacks beyond a second-order term that may be small only because its parts cancel."""
    largest = max(abs(beyond.second_order), 0.5 * beyond.shift_norm**2)
    if largest < _LOOK_CLOSER or beyond.n_rows > _CLOSER_ROWS:
        return 0.0
    with single_threaded_blas():
        left, _ = evidence_left(problem, gaussian, beyond.second_order, _LEFT, beyond.n_rows)
    return float(left)


def _separation(problem: Problem, gaussian: Gaussian) -> Separation:
    """Return whether the classes are separable: the recorded ones, where labels may be wrong."""
    data, start = problem.require_data(), _start(problem, gaussian)
    if problem.mislabelled:
        data = _Recorded(data)
    one_hot = problem.mislabelled or not problem.binary
    return find_separation(data, problem.n_classes, problem.n_functions, start, one_hot=one_hot)


@dataclass(frozen=True, eq=False)
class _Recorded:
    """Rows with their recorded classes, one-hot (N, K), in place of the likelihoods of these."""

    data: Data

    @property
    def n_functions(self) -> int:
        return self.data.n_functions

    def accumulate(self, function: ChunkFunction) -> Terms:
        return self.data.accumulate(lambda Phi, t, weight: function(Phi, most_likely_class(t), weight))


def _start(problem: Problem, gaussian: Gaussian) -> tuple[Vector, Vector, Matrix] | None:
    """Return where the search for a separation starts: the mode, whose gradient and Hessian follow from the prior."""
    in_contrasts = isinstance(problem.likelihood, Categorical) and problem.likelihood.contrasts
    if problem.mislabelled or (problem.likelihood.name != "logistic" and not in_contrasts):
        return None
    prior = problem.solver_prior
    gradient = prior.precision @ (gaussian.mean - prior.mean)
    return gaussian.mean, gradient, gaussian.precision - prior.precision


def _condition(gaussian: Gaussian) -> float:
    d = np.sqrt(np.diag(gaussian.precision))
    d[d == 0] = 1.0
    values = np.linalg.eigvalsh(gaussian.precision / d[:, None] / d)
    return float(values[-1] / max(values[0], np.finfo(float).eps))


def _of_separation(separation: Separation, problem: Problem) -> list[Finding]:
    if separation.kind == "none":
        return []
    if separation.kind == "unknown":
        return [("green", "it is unknown whether the classes are separable: the test would take too long")]
    level = "red" if problem.prior is None else "green"
    classes = ", ".join(
        f"{problem.classes[j]} and {problem.classes[k]}" for j, k in separation.pairs[:_NAMED]
    )
    how = "without error" if separation.kind == "complete" else "in part of the rows, without error there"
    columns = _listed(separation.columns)
    what = f"{separation.kind} separation: column(s) {columns} tell {classes or 'a class'} apart {how}"
    ending = (
        "there is no maximum likelihood"
        if problem.prior is None
        else "only the prior keeps the weights finite"
    )
    return [(level, f"{what}; {ending}")]


def _of_columns(
    empty: tuple[int, ...],
    dependent: tuple[tuple[int, tuple[int, ...]], ...],
    jitter: float,
    problem: Problem,
) -> list[Finding]:
    level = "red" if problem.prior is None else "green"
    findings = []
    if empty:
        findings.append((level, f"column(s) {_listed(empty)} hold zeros only"))
    for column, others in dependent[:_NAMED]:
        findings.append((level, f"column {column} is a linear combination of column(s) {_listed(others)}"))
    if len(dependent) > _NAMED:
        findings.append(
            (level, f"{len(dependent) - _NAMED} further columns are linear combinations of others")
        )
    if jitter > 0:
        findings.append(
            (
                "amber",
                f"the precision is singular within rounding errors; its diagonal was raised by {jitter:.0e}",
            )
        )
    return findings


def _listed(columns: tuple[int, ...]) -> str:
    shown = ", ".join(str(c) for c in columns[:_NAMED])
    return shown + (f" and {len(columns) - _NAMED} more" if len(columns) > _NAMED else "")
