"""Estimates of an audit: classes, bins and selections, from the answers and the design.

Shapes: n objects with an answer, H strata of the design, J groups of them, K classes.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from blr.census.audit import Possible, Strata, audited_share, joined_strata
from blr.census.prediction_sets import learn_sets
from flows.reviews._answers import UNDECIDED, Answers
from flows.reviews.audits import (
    AuditDesign,
    AuditedBin,
    AuditedClass,
    AuditedInterval,
    AuditedSelection,
    AuditedSetRule,
    AuditedSets,
    Selection,
)

__all__ = ["LEVEL", "Sample"]

Bools = NDArray[np.bool_]
Places = NDArray[np.intp]

LEVEL = 0.95
SINGLE = 1 - 1e-6
"""The probabilities of copies are in single precision: one that is as large as a threshold must not fall below it."""


@dataclass(frozen=True, eq=False)
class Sample:
    """The drawn objects with an answer: stratum (n,), class (n,) with -1 for other, probabilities (n, K).

    `group` (H,) is the group of each stratum: those of too few answers are joined.
    """

    design: AuditDesign
    stratum: Places
    answer: Places
    probability: NDArray[np.float64]
    group: Places

    @classmethod
    def of(cls, design: AuditDesign, answers: Answers) -> Sample:
        """Return the sample of a design with these answers; those that could not tell are left out."""
        known = [o for o in design.objects if answers.places.get(o.id, UNDECIDED) != UNDECIDED]
        stratum = np.array([o.stratum for o in known], dtype=np.intp)
        kinds = {key: i for i, key in enumerate(dict.fromkeys((s.class_given, s.bin) for s in design.strata))}
        return cls(
            design,
            stratum,
            np.array([answers.places[o.id] for o in known], dtype=np.intp),
            np.array([o.probabilities for o in known], dtype=np.float64).reshape(-1, len(design.classes)),
            joined_strata(
                np.array([s.n_rows for s in design.strata]),
                np.bincount(stratum, minlength=len(design.strata)),
                np.array([kinds[s.class_given, s.bin] for s in design.strata]),
            ),
        )

    @property
    def n_joined(self) -> int:
        """How many strata were joined with another."""
        return len(self.group) - len(np.unique(self.group))

    @cached_property
    def strata(self) -> Strata:
        """The groups of strata: rows and answers (J,)."""
        return Strata(
            np.bincount(self.group, weights=[s.n_rows for s in self.design.strata]).astype(np.int64),
            np.bincount(self.group[self.stratum], minlength=int(self.group.max()) + 1),
        )

    @cached_property
    def given(self) -> Places:
        """The class (H,) that the objects of each stratum were given."""
        return np.array([self.design.classes.index(s.class_given) for s in self.design.strata], dtype=np.intp)

    def share(self, hits: Bools, misses: Bools, possible: Possible, level: float = LEVEL) -> AuditedInterval:
        """Return the share of hits (n,) among hits and misses (n,); `possible` is by the design's strata (H,)."""
        J = len(self.strata.n_rows)
        place = self.group[self.stratum]
        counts = [np.bincount(place[rows], minlength=J) for rows in (hits, misses)]
        grouped = Possible(*(self._any(rows) for rows in (possible.hit, possible.miss, possible.neither)))
        result = audited_share(counts[0], counts[1], self.strata, possible=grouped, level=level)
        share = float(result.share)
        return AuditedInterval(
            value=share if np.isfinite(share) else None, low=float(result.low), high=float(result.high)
        )

    def _any(self, strata: Bools) -> Bools:
        return np.bincount(self.group, weights=strata) > 0

    def count(self, k: int, domain: Bools, level: float = LEVEL) -> AuditedInterval:
        """Return the number of objects of a class in the strata (H,) of a domain."""
        inside, rows = (
            domain[self.stratum],
            sum(s.n_rows for s, d in zip(self.design.strata, domain, strict=True) if d),
        )
        is_class = self.answer == k
        share = self.share(inside & is_class, inside & ~is_class, Possible(domain, domain, ~domain), level)
        return AuditedInterval(
            value=None if share.value is None else share.value * rows,
            low=share.low * rows,
            high=share.high * rows,
        )

    def judged(self, k: int, domain: Bools) -> AuditedClass:
        """Return the count of a class in the strata (H,) of a domain, and how well it was assigned there."""
        inside, selected = domain[self.stratum], self.given[self.stratum] == k
        chosen, others = domain & (self.given == k), domain & (self.given != k)
        of_class = self.answer == k
        purity = self.share(
            inside & selected & of_class, inside & selected & ~of_class, Possible(chosen, chosen, ~chosen)
        )
        completeness = self.share(
            inside & selected & of_class,
            inside & ~selected & of_class,
            Possible(chosen, others, np.ones_like(chosen)),
        )
        return AuditedClass(
            assigned=sum(s.n_rows for s, c in zip(self.design.strata, chosen, strict=True) if c),
            count=self.count(k, domain),
            purity=purity,
            completeness=completeness,
        )

    def bin(self, name: str) -> AuditedBin:
        """Return the classes in a bin."""
        domain = np.array([s.bin == name for s in self.design.strata])
        return AuditedBin(
            n_rows=sum(s.n_rows for s in self.design.strata if s.bin == name),
            n_answered=int(np.count_nonzero(domain[self.stratum])),
            classes={c: self.judged(k, domain) for k, c in enumerate(self.design.classes)},
        )

    def selection(self, chosen: Selection) -> AuditedSelection:
        """Return the purity and the completeness of a selection by probability."""
        k, t = self.design.classes.index(chosen.class_name), chosen.threshold
        selected, of_class = self.probability[:, k] >= t, self.answer == k
        low, high = (np.array([getattr(s, end) for s in self.design.strata]) for end in ("low", "high"))
        own = self.given == k
        # An object's second probability is at most as large as its first, and as what that leaves.
        may_be = np.where(own, high > t, (t <= high) & (t <= 1 - low))
        may_not = np.where(own, low < t, True)  # noqa: FBT003
        purity = self.share(selected & of_class, selected & ~of_class, Possible(may_be, may_be, may_not))
        completeness = self.share(
            selected & of_class, ~selected & of_class, Possible(may_be, may_not, np.ones_like(own))
        )
        return AuditedSelection(**vars(chosen), purity=purity, completeness=completeness)

    def sets(self, level: float) -> AuditedSets:
        """Return prediction sets learnt from the answers; an object stands for its part of its stratum."""
        known = self.answer >= 0
        place = self.group[self.stratum]
        weight = (self.strata.n_rows / np.maximum(self.strata.n_seen, 1))[place]
        rule = learn_sets(self.probability[known], self.answer[known], level=level, weight=weight[known])
        return AuditedSets(
            level=level,
            classes={
                name: AuditedSetRule(
                    least=float(rule.least[k]) * SINGLE,
                    rows=int(rule.rows[k]),
                    effective=float(rule.effective[k]),
                    spread=float(rule.spread[k]),
                )
                for k, name in enumerate(self.design.classes)
            },
        )

    def filled(self, answers: Answers, place: int) -> Sample:
        """Return the sample as if all objects without an answer had this one."""
        every = {o.id: place for o in self.design.objects}
        known = {name: at for name, at in answers.places.items() if at != UNDECIDED}
        return Sample.of(self.design, replace(answers, places=every | known))
