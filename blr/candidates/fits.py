"""How a candidate is fitted to the training rows, judged on rows that its fits have not seen, and refined.

A candidate is a mixture of parts: the widths of its basis and the scales of its prior that matter, each with its
share in proportion to the evidence.  Left-out probabilities come from the posterior that the model will use, so that
candidates are compared by it.
Shapes: N training rows, n of them, F features, M basis functions, K classes.
"""

from __future__ import annotations

import hashlib
import inspect
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import Any, Protocol, TypedDict

import numpy as np
from numpy.typing import NDArray
from scipy.special import logsumexp

from blr.arrays import Matrix, Vector, slices
from blr.basis.base import Basis
from blr.basis.kinds import fit_basis, known_kind
from blr.candidates.candidate import Candidate, CandidatePart, CandidateRow, Selection
from blr.candidates.choice import LeftOut
from blr.candidates.rows import TrainingSet
from blr.classifier import Classifier
from blr.gaussian import Gaussian, GaussianPrior
from blr.likelihood.targets import label_likelihood, resolve_targets
from blr.member import Member
from blr.missing.moments import Domain, excess_spread
from blr.posterior.kinds import LaplacePosterior, Posterior, RefinedPosterior, SampledPosterior, averaged
from blr.posterior.laplace import fit
from blr.posterior.sampling import sample_posterior
from blr.posterior.variational import refine
from blr.selection.compare import leave_one_out_probability, recorded_shares, without_each_row
from blr.selection.evidence import fit_evidence, fit_scales
from blr.sums import Rows
from blr.trust.verdict import Trust

MOST_PARTS = 2
LEAST_PART = 0.1
"""Smallest share of a part, relative to the best one: every part costs the same time in each prediction."""
SAMPLED_AT_ONCE = 16_384
"""Rows of a sample whose design matrix is held in memory at once."""
MOST_INCOMPLETE, FEWEST_INCOMPLETE, INCOMPLETE_WORK = 5000, 1000, 15_000
"""Rows that are predicted with missing features integrated out, evenly spaced: at most, at least, and times classes.

Each takes tens of predictions.
"""
FEW_OF_CLASS, MOST_FEW, FOLDS = 25, 500, 5
"""Rows for each class below which they are few, at most how many, and folds.

Few rows of a stack are left out of refits by folds: these take as long as the fits again and again, and gain nothing of
more rows for each class.
"""
MOST_INFLUENTIAL, MOST_OF_FIXED, MOST_REFITTED = 0.1, 0.03, 1000
"""Share of a part's rows that carry more than half of their own curvature, above which one step is not enough for any.

All are then left out of refits by folds, if the rows are so many at most.  The second is of functions that hardly
depend on single rows: one step is too kind to these, and their refits are quick.
"""
FIXED = ("linear", "polynomial", "sigmoid")
"""Bases of functions that hardly depend on single rows."""
HEAVY = 2.0
"""Mean weight of rows above which one step says too small a loss.

A fit follows such rows so closely that nothing is left of their curvature: with weights of a million one step said 0.00
nats where new rows had 27.
"""
FOLD_STEPS, MORE_STEPS, SEVERAL = 6, 15, 7
"""Steps of the refinement of a refit, of a dozen or more that it may take: the others change the shares by chance.

With more than `SEVERAL` classes it takes more steps.  After six, rows of classes that have few rows are left out with
probabilities of 1e-10 and less, which further steps take back.
"""
COMPARED_NODES = 2048
"""Sobol points of a probability that is compared with the exact one: they err by some 0.0005."""
MOST_NUMBERS = 2**24
"""Most numbers of a design matrix that is kept between the steps of a training; larger ones are computed again."""
SIZES = ("degree", "centres", "knots", "frequencies", "trees")
"""Options that say how large a basis is."""

Step = Callable[[], None]


class Progress(Protocol):
    """Receives what a training is doing."""

    def start(self, what: str, total: int, unit: str) -> None:
        """Receive that a piece of work begins, with `total` of a `unit` (rows, parts) to do, 0 if unknown."""
        ...

    def advance(self, n: int) -> None:
        """Receive that n more units are done."""
        ...


class _Silent:
    def start(self, what: str, total: int, unit: str) -> None:
        """Do nothing."""

    def advance(self, n: int) -> None:
        """Do nothing."""


SILENT: Progress = _Silent()
"""Receives what a training is doing, and says nothing."""


class Response(TypedDict):
    """Targets and likelihood: the keywords, besides the design matrix, of every fit in `blr`."""

    t: Any  # (N,) class indices, or (N, K) votes; None where the design matrix holds them
    likelihood: str
    sample_weight: Vector | None  # (N,)
    classes: Sequence[int]
    confusion: Matrix | None  # (K, K) or (N, K, K); None where labels are right


def fit_targets(
    t: NDArray[Any], weight: Vector | None, K: int, *, binary: bool, confusion: Matrix | None = None
) -> tuple[Matrix, Vector | None]:
    """Return the targets of a fit, (n,) or (n, K), and the weights (n,) or None of rows with labels or votes t.

    With a confusion (K, K), or one of each row (n, K, K), targets are likelihoods of what was recorded.
    """
    (share, weights, _), _ = resolve_targets(t, binary=binary, sample_weight=weight, classes=range(K))
    if confusion is None:
        return share, weights
    recorded = np.stack([1 - share, share], axis=1) if binary else share
    return label_likelihood(recorded, confusion), weights


@dataclass(frozen=True, eq=False)
class Problem:
    """The inputs of every fit of a candidate to the training rows of `data`; `seed` is that of the training."""

    candidate: Candidate
    data: TrainingSet
    seed: int = 0
    threads: int | None = None

    @cached_property
    def columns(self) -> tuple[int, ...]:
        """The positions, among all features, of those that the candidate uses."""
        return self.candidate.columns(self.data.features)

    @cached_property
    def names(self) -> tuple[str, ...]:
        """The features that the candidate uses."""
        return tuple(self.data.features[column] for column in self.columns)

    @cached_property
    def X(self) -> Matrix:
        """The features (N, F) that the candidate uses, of the rows in memory."""
        return np.asarray(self.data.filled[self.data.rows.training][:, self.columns])

    @cached_property
    def group(self) -> NDArray[Any] | None:
        """Equal numbers (N,) for rows that belong together, in order of their first rows; None where each is alone."""
        if self.data.rows.group is None:
            return None
        group = self.data.rows.group[self.data.rows.training]
        _, first, of_row = np.unique(group, return_index=True, return_inverse=True)
        return np.asarray(np.argsort(np.argsort(first))[of_row])  # so that names of groups change nothing

    @cached_property
    def fold(self) -> NDArray[np.intp]:
        """The fold (N,) of each row in memory: each class is spread over all folds, and groups stay together.

        It is the same for all candidates.
        """
        rows = self.data.rows
        group = np.arange(len(self.X)) if self.group is None else self.group
        _, first, of_row = np.unique(group, return_index=True, return_inverse=True)
        drawn = np.random.default_rng([self.seed, 0x666F6C64]).permutation(len(first))
        by_class = drawn[np.argsort(rows.target[rows.training][first[drawn]], kind="stable")]
        fold = np.empty(len(first), dtype=np.intp)
        fold[by_class] = np.arange(len(first)) % FOLDS
        return fold[of_row]

    @property
    def few(self) -> bool:
        """Whether the rows in memory are few for so many classes."""
        return len(self.X) < min(FEW_OF_CLASS * len(self.data.classes), MOST_FEW)

    @property
    def heavy(self) -> bool:
        """Whether the rows in memory, which are no votes, count as many more rows than they are."""
        weight = self.data.weight if self.data.rows.votes is None else None
        return weight is not None and len(weight) <= MOST_REFITTED and float(weight.mean()) > HEAVY

    def without(self, chosen: NDArray[np.bool_]) -> Problem:
        """Return the same problem without some of the rows in memory (N,)."""
        rows = self.data.rows
        held_out = rows.held_out.copy()
        held_out[np.flatnonzero(rows.training)[chosen]] = True
        return replace(self, data=replace(self.data, rows=replace(rows, held_out=held_out)))

    def keeps(self, row: CandidateRow) -> bool:
        """Say whether the fits of a candidate's row stay in memory between the steps of a training."""
        return self.data.streamed is None and len(self.X) * row.n_functions <= MOST_NUMBERS

    @cached_property
    def response(self) -> Response:
        """Targets of the rows in memory, and the likelihood."""
        rows, K = self.data.rows, len(self.data.classes)
        return {
            "t": rows.response[rows.training],
            "likelihood": self.candidate.likelihood if K == 2 else "softmax",
            "sample_weight": self.data.weight,
            "classes": range(K),
            "confusion": rows.confused(rows.training),
        }

    def generator(self) -> np.random.Generator:
        """Return a generator for this candidate alone, so that another candidate in the list changes nothing for it."""
        own, known = self.candidate, inspect.signature(known_kind(self.candidate.kind).fit).parameters
        stated = sorted((n, x) for n, x in own.options.items() if n not in known or x != known[n].default)
        text = repr((own.kind, stated, own.features, own.soften, own.likelihood))
        words = np.frombuffer(hashlib.sha256(text.encode()).digest(), dtype="<u4")
        return np.random.default_rng([self.seed, *words.tolist()])

    @property
    def words(self) -> str:
        """The basis in words, such as 'rbf, centres 40, linear': its size, and options that are not the default."""
        known = inspect.signature(known_kind(self.candidate.kind).fit).parameters
        sizes = {name: known[name].default for name in SIZES if name in known}
        options = sizes | dict(self.candidate.options)
        words = {n: "/".join(f"{w:g}" for w in x) if isinstance(x, tuple) else x for n, x in options.items()}
        shown = (name if x is True else f"{name} {x}" for name, x in words.items())
        return ", ".join([self.candidate.kind, *shown, *(["arcsinh"] if self.candidate.soften else [])])

    def basis(self, width: int) -> Basis:
        """Return the basis with one of the widths."""
        keywords = self.candidate.choices[width]
        if self.candidate.kind == "forest":
            keywords |= {"labels": self.response["t"], "group": self.group}
        basis = fit_basis(
            self.candidate.kind,
            self.X,
            weight=self.data.weight,
            rng=self.generator(),
            soften=self.candidate.soften,
            **keywords,
        )
        if self.data.streamed is None:
            return basis
        standardisation = self.data.streamed.standardised(basis, self.columns, self.X)
        return replace(basis, standardisation=standardisation)

    def posed(self, basis: Basis) -> dict[str, Any]:
        """Return the keywords of a fit; a design of streamed rows, which is computed part by part, holds the others."""
        own: dict[str, Any] = {**self.response, "threads": self.threads}
        streamed, confusion = self.data.streamed, None
        if streamed is None:
            return own | {"Phi": basis.training_design(self.X)}
        if streamed.confusion is not None:
            confusion = own["confusion"]
            own["confusion"] = None
        rows = self.X, own["t"], self.data.weight, confusion
        design = streamed.design(basis, self.columns, *rows)
        return own | {"Phi": design, "t": None, "sample_weight": None}

    def at_scale(self, basis: Basis, scale: float | None) -> LaplacePosterior:
        """Return the Laplace fit with a standard deviation of the prior; None for that of the highest evidence."""
        if scale is None:
            return fit_evidence(**self.posed(basis))
        prior = GaussianPrior.isotropic(basis.n_functions, precision=scale**-2, intercept=0)
        return fit(prior=prior, **self.posed(basis))

    def sampled(self, q: Posterior, basis: Basis, some: slice) -> Posterior:
        """Return a posterior whose data are some of the rows in memory, so that it is judged on these."""
        weight, confusion = self.response["sample_weight"], self.response["confusion"]
        if confusion is not None and confusion.ndim > 2:
            confusion = confusion[some]
        t, own_weight = fit_targets(
            self.response["t"][some],
            None if weight is None else weight[some],
            q.problem.n_classes,
            binary=q.problem.binary,
            confusion=confusion if q.problem.mislabelled else None,
        )
        data = Rows(basis(self.X[some]), t, own_weight, threads=1)
        own: Any = q  # a dataclass, whatever its kind
        judged: Posterior = replace(own, problem=replace(q.problem, data=data))
        return judged


@dataclass(frozen=True, eq=False)
class Part:
    """A width of the basis and a scale of the prior, with the fit and its share in the candidate.

    `width` is the index of the width.  `scale` is the standard deviation of the prior, None for that of the highest
    evidence.  `laplace` is the Laplace fit, and `served` the posterior that the candidate is judged by.
    """

    width: int
    scale: float | None
    basis: Basis
    laplace: LaplacePosterior
    served: Posterior
    log_weight: float
    weight: float = 1.0


@dataclass(frozen=True, eq=False)
class FittedCandidate:
    """The candidate as it was judged, and what later steps need of its fits.

    `left_out` are the left-out probabilities of the training rows.  `drafts` are the refined posteriors of the parts,
    from which a later refinement starts; none if nothing was refined.  `parts` are the fits themselves, as long as
    they are in memory.
    """

    row: CandidateRow
    left_out: LeftOut
    drafts: tuple[Gaussian, ...] = ()
    parts: tuple[Part, ...] = ()


@dataclass(frozen=True, eq=False)
class FinalMember:
    """A member of the model, and its probabilities (P, K) at the rows where they are compared with exact ones.

    `off` (P, K) are these less the exact ones, as far as that is known, and `error` (P,) is the standard error of it
    where chains tell it, else the typical difference.
    """

    member: Member
    probability: Matrix
    off: Matrix
    error: Vector

    @property
    def sampled(self) -> bool:
        """Whether `error` is what chance leaves of draws, and nothing typical."""
        return self.member.posterior.kind == "sampled"


def fit_candidate(
    problem: Problem, selection: Selection, *, what: str = "the candidate", progress: Progress = SILENT
) -> FittedCandidate:
    """Fit one candidate to the training rows, and judge it on each row left out; `what` is its name for `progress`."""
    progress.start(f"fitting {what}", 0, "steps")
    data, step = problem.data, partial(progress.advance, 1)
    parts, log_evidence, trust = fitted_parts(problem, selection, step)
    if data.streamed is None:
        progress.start(f"left-out rows of {what}", len(parts), "parts")
        integral = integral_of_missing(data, problem.columns)
        unseen = left_out(problem, parts, integral, stacked=selection.by == "stack", on_part=step)
    else:
        progress.start(f"left-out rows of {what}", len(problem.X), "rows")
        unseen = left_out_of_sample(problem, parts, on_rows=progress.advance)
    unseen = unseen.recorded(problem.response["confusion"])
    row = _row(problem, parts, log_evidence, unseen, trust)
    drafts = tuple(part.served.gaussian for part in parts if part.served is not part.laplace)
    return FittedCandidate(row, unseen, drafts, tuple(parts) if problem.keeps(row) else ())


def fitted_parts(
    problem: Problem, selection: Selection, on_step: Step
) -> tuple[list[Part], float, Trust | None]:
    """Return the parts that matter, the best first, the log evidence of all together, and the best one's verdict.

    There may be several scales of the prior, weighted by evidence, or one, of the highest.  The verdict takes longer
    than the fit: it is there where the evidence ranks.
    """
    parts: list[Part] = []
    for width in range(len(problem.candidate.choices)):
        basis = problem.basis(width)
        if selection.scale != "integrated":
            q = problem.at_scale(basis, None)
            parts.append(Part(width, None, basis, q, q, q.log_evidence))
            continue
        scales = fit_scales(**problem.posed(basis))
        parts += [Part(width, scale, basis, q, q, log_weight) for scale, log_weight, q in scales]
    log_evidence = float(
        logsumexp([part.log_weight for part in parts]) - np.log(len(problem.candidate.choices))
    )
    kept = sorted(_shared(parts), key=lambda part: -part.weight)[:MOST_PARTS]
    final = _shared(kept) if selection.posterior == "laplace" else _refined(kept, on_step)
    return final, log_evidence, final[0].laplace.trust if selection.by in {"evidence", "average"} else None


def _shared(parts: Sequence[Part]) -> list[Part]:
    """Return the parts with their shares, the best first; parts that are too small to matter are left out."""
    log_weight = np.array([part.log_weight for part in parts])
    kept = np.flatnonzero(log_weight > log_weight.max() + np.log(LEAST_PART))
    share = np.exp(log_weight[kept] - logsumexp(log_weight[kept]))
    shared = [replace(parts[i], weight=float(w)) for i, w in zip(kept.tolist(), share, strict=True)]
    return sorted(shared, key=lambda part: -part.weight)


def _refined(parts: Sequence[Part], on_step: Step) -> list[Part]:
    """Return the parts with their refined posteriors.

    Their shares are computed from the variational lower bounds: Laplace's evidence is far off where classes are
    separable.  All parts have bounds, so that a bound is never compared with an evidence.
    """
    refined, ended = [], dict[int, Posterior]()
    for part in parts:
        # The refined posterior of another scale and the same width is a better start than the Laplace fit.
        served = refine(part.laplace, start=ended.get(part.width), draft=True, on_step=on_step)
        ended[part.width] = served
        bound = part.log_weight + served.elbo - part.laplace.log_evidence
        refined.append(replace(part, served=served, log_weight=bound))
    return _shared(refined)


Integrated = Callable[[Basis, Posterior, Matrix], Matrix]
"""Probabilities (N, K) at conditional means, changed as the integral over missing features changes a posterior's."""


def integral_of_missing(data: TrainingSet, columns: tuple[int, ...]) -> Integrated | None:
    """Return how training rows that lack features are integrated out; None where none lacks one of the `columns`."""
    rows, training = data.rows, data.rows.training
    X, missing = rows.X[training], rows.missing[training]
    lacking = np.flatnonzero(missing[:, columns].any(axis=1) & ~missing.all(axis=1))
    if not len(lacking):
        return None
    moments = replace(data.moments, spread=excess_spread(data.moments, X, missing, data.weight))
    frame = Classifier(data.features, data.classes, (), moments, Domain(moments, np.inf))
    most = int(np.clip(INCOMPLETE_WORK // len(data.classes), FEWEST_INCOMPLETE, MOST_INCOMPLETE))
    lacking = lacking[:: -(-len(lacking) // most)]
    X, missing, at_means = X[lacking], missing[lacking], data.filled[training][lacking][:, columns]

    def integrated(basis: Basis, q: Posterior, unseen: Matrix) -> Matrix:
        classifier = replace(frame, members=(Member(basis, q, columns),))
        whole = classifier.score(X, missing).probability
        filled = q.prediction(basis(at_means)).probability
        p = unseen.copy()
        p[lacking] *= whole / np.maximum(filled, np.finfo(float).tiny)
        return np.asarray(p / p.sum(axis=1, keepdims=True))

    return integrated


def left_out(
    problem: Problem,
    parts: Sequence[Part],
    integral: Integrated | None,
    *,
    stacked: bool,
    on_part: Callable[[], None],
) -> LeftOut:
    """Return the rows' left-out probabilities, of each part by one Newton step from its fit to all rows.

    Those of a stack by a refit without each fold, where rows are few or heavy, or many of them are influential.  Rows
    of a group are left out together.
    """
    share, weight = recorded_shares(parts[0].laplace)
    folds = stacked and bool(problem.fold.any())  # more than one group
    filled: Matrix | float = 0.0
    integrated: Matrix | float = 0.0
    for part in parts:
        rough = folds and (problem.few or problem.heavy)
        if not rough:
            unseen, influential = without_each_row(part.served, problem.group)
            most = MOST_OF_FIXED if problem.candidate.kind in FIXED else MOST_INFLUENTIAL
            rough = folds and len(unseen) <= MOST_REFITTED and influential.mean() > most
        if rough:
            unseen = _without_folds(problem, part)
        filled = filled + part.weight * unseen
        if integral is not None:
            integrated = integrated + part.weight * integral(part.basis, part.served, unseen)
        on_part()
    whole = None if integral is None else np.asarray(integrated)
    return LeftOut(np.asarray(filled), weight[:, None] * share, whole)


def _without_folds(problem: Problem, part: Part) -> Matrix:
    """Return the probabilities (N, K) of the rows of each fold by the part's fit without them.

    Of few rows one step is far off where a row has much weight in the fit: too kind to linear models of nearly
    separable classes, and too strict with Gaussian processes of several classes.
    """
    p = np.empty((len(problem.X), len(problem.data.classes)))
    fixed = part.served.kind == "refined" and problem.candidate.kind in FIXED and not problem.few
    for k in np.unique(problem.fold):
        own = problem.fold == k
        q, Phi = _refined_without(part, own) if fixed else _fitted_without(problem, part, own)
        p[own] = q.prediction(Phi).probability
    return p


def _fold_steps(n_classes: int) -> int:
    return FOLD_STEPS if n_classes <= SEVERAL else MORE_STEPS


def _refined_without(part: Part, own: NDArray[np.bool_]) -> tuple[Posterior, Matrix]:
    """Return the part refined again without its `own` rows (N,), from where all led, and these rows' design (n, M)."""
    data = part.served.problem.require_rows()
    rest = data.chosen(~own)
    kept = float(len(rest.t) if rest.weight is None else rest.weight.sum())
    posed = replace(part.laplace.problem, data=rest, n_effective=kept)
    most = _fold_steps(posed.n_classes)
    q = refine(replace(part.laplace, problem=posed), start=part.served, draft=True, most_steps=most)
    return q, data.Phi[own]


def _fitted_without(problem: Problem, part: Part, own: NDArray[np.bool_]) -> tuple[Posterior, Matrix]:
    """Return the part fitted anew, basis and all, without its `own` rows (N,), and these rows' design matrix (n, M)."""
    rest = problem.without(own)
    basis = rest.basis(part.width)
    q: Posterior = rest.at_scale(basis, part.scale)
    if part.served.kind == "refined":
        q = refine(q, draft=True, most_steps=_fold_steps(len(problem.data.classes)))
    return q, basis(problem.X[own])


def left_out_of_sample(problem: Problem, parts: Sequence[Part], *, on_rows: Callable[[int], None]) -> LeftOut:
    """Return what `left_out` returns, for the rows in memory: by one step from the fits to all rows.

    `on_rows` is called with the number of rows that are done since the last call.
    """
    found = []
    for some in slices(len(problem.X), SAMPLED_AT_ONCE):
        p: Matrix | float = 0.0
        for part in parts:
            q = problem.sampled(part.served, part.basis, some)
            unseen, share, weight = leave_one_out_probability(q, records=False)
            p = p + part.weight * unseen
        found.append(np.stack([p, weight[:, None] * share]))
        on_rows(len(share))
    filled, share = np.concatenate(found, axis=1)
    return LeftOut(filled, share)


def refit_candidate(
    problem: Problem,
    fitted: FittedCandidate,
    selection: Selection,
    *,
    same_rows: bool,
    compared: Matrix | None = None,
    what: str = "the candidate",
    progress: Progress = SILENT,
) -> list[FinalMember]:
    """Return the members of a candidate, with the posterior that the selection asks for.

    With the `same_rows` as before, refined posteriors are those that were judged.  Fits that a killed run had in memory
    are made again, in the same way.  A refinement of other rows starts at the judged one.
    At rows `compared` (P, F), where there are any, the members have probabilities and what these typically err by.
    """
    kind, step = selection.posterior, partial(progress.advance, 1)
    done = "refining" if kind == "refined" else "sampling the posterior of"
    progress.start(f"{done} {what}", 0, "steps" if kind == "refined" else "blocks of draws")
    members, in_memory = [], fitted.parts if same_rows else ()
    if same_rows and not in_memory and problem.keeps(fitted.row):
        in_memory = tuple(fitted_parts(problem, selection, step)[0])
    for number, part in enumerate(fitted.row.parts):
        if in_memory:
            basis, laplace, q = in_memory[number].basis, in_memory[number].laplace, in_memory[number].served
        else:
            basis = problem.basis(part.width)
            laplace = q = problem.at_scale(basis, part.scale)
        (rng,) = problem.generator().spawn(1)
        if q.kind != kind:
            q = _final(kind, laplace, fitted.drafts[number : number + 1], rng, step)
        q = q.widened() if isinstance(q, RefinedPosterior) else q
        p = off = np.zeros((0, len(problem.data.classes)))
        error = np.zeros(0)
        if compared is not None:
            Phi = basis(compared[:, problem.columns])
            off, error = _typical_difference(q, Phi)
            p = q.prediction(Phi, most_nodes=COMPARED_NODES).probability
        members.append(FinalMember(Member(basis, q, problem.columns, part.weight), p, off, error))
    return members


def _final(
    kind: str, laplace: LaplacePosterior, draft: Sequence[Gaussian], rng: np.random.Generator, step: Step
) -> Posterior:
    """Return the posterior of a kind; a refinement starts from the draft, where there is one."""
    if kind == "laplace":
        return laplace
    if kind == "sampled":
        return sample_posterior(laplace, rng=rng, on_step=step)
    # Of other rows a basis may have other functions: steps lie at the different values of a feature.
    known = draft and draft[0].mean.size == laplace.gaussian.mean.size
    start = replace(laplace, gaussian=draft[0]) if known else None
    return refine(laplace, start=start, draft=True, on_step=step)


def _typical_difference(q: Posterior, Phi: Matrix) -> tuple[Matrix, Vector]:
    """Return what is known of the difference of probabilities from exact ones (P, K), and a typical rest (P,).

    Of a Laplace posterior the refined one tells the difference, but for its own typical error.
    """
    if isinstance(q, RefinedPosterior):
        return np.zeros((len(Phi), q.problem.n_classes)), q.typical_error(Phi)
    p = q.prediction(Phi, most_nodes=COMPARED_NODES).probability
    if isinstance(q, SampledPosterior):
        if q.trust.verdict == "red":
            return np.zeros_like(p), np.abs(p - q.laplace.prediction(Phi).probability).max(axis=1)
        return np.zeros_like(p), averaged(q.problem, Phi, q.draws)[1].max(axis=1)
    refined = refine(q).widened()
    return p - refined.prediction(Phi, most_nodes=COMPARED_NODES).probability, refined.typical_error(Phi)


def _row(
    problem: Problem, parts: Sequence[Part], log_evidence: float, unseen: LeftOut, trust: Trust | None
) -> CandidateRow:
    """Return the candidate's row in the table; a number that could not be computed is None, since JSON has no NaN.

    The evidence is that of all parts together.  The log of the Occam factor is this log evidence minus the log
    likelihood at the mode of the best part.  BIC, effective parameters and verdict are those of the best part.  The
    second-order term takes longer than the fit: it is there where the verdict is, that is where the evidence ranks.
    Weight and share are zero until all candidates are compared.
    """
    best = parts[0].laplace
    density, error = unseen.log_density(best.problem.n_effective)
    loss = -density / best.problem.n_effective
    if not np.isfinite([log_evidence, best.bic, loss]).all():
        raise ValueError(f"evidence {log_evidence}, BIC {best.bic}, log loss {loss}")
    return CandidateRow(
        features=problem.names,
        basis=problem.words,
        n_functions=int(best.problem.n_functions),
        log_evidence=float(log_evidence),
        second_order=None if trust is None else _finite(best.second_order),
        log_likelihood=_finite(best.log_likelihood),
        log_occam_factor=_finite(log_evidence - best.log_likelihood),
        bic=float(best.bic),
        loo=density,
        loo_standard_error=_finite(error),
        effective_parameters=_finite(best.effective_parameters),
        log_loss=float(loss),
        parts=tuple(CandidatePart(scale=p.scale, weight=p.weight, width=p.width) for p in parts),
        verdict=None if trust is None else trust.verdict,
        reasons=() if trust is None else trust.reasons,
        numbers={} if trust is None else {name: _finite(x) for name, x in trust.numbers.items()},
        converged=bool(best.converged),
        n_iter=int(best.n_iter),
        prior_probability=problem.candidate.prior_probability,
        weight=0.0,
        share=0.0,
    )


def _finite(x: float | None) -> float | None:
    return None if x is None or not np.isfinite(x) else float(x)
