"""The check of a model's posteriors against the exact ones: which parts are checked, and what the model says of it.

Where the Gaussian at the mode is a bad approximation, the refined posterior may still be a good one; otherwise draws
of Markov chains replace it (`blr.posterior.repair`).  The verdict on a model is on the posteriors that it uses.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from blr.posterior.repair import Served
from blr.trust.verdict import named_reasons
from flows.models.candidates import JudgedCandidate, PosteriorCheck
from flows.models.description import TrustSummary

__all__ = ["LEAST_CHECKED", "LEVELS", "checked_parts", "posterior_check", "served_trust"]

LEAST_CHECKED = 1 / 6
"""Smallest share of a part that is checked.

A refined posterior that needs another in its place errs by some 0.03 in probability.  Of a smaller part that moves the
served probabilities by less than 0.005.
"""

LEVELS = ("green", "amber", "red")


def checked_parts(
    members: Sequence[tuple[int, float]], candidates: Sequence[JudgedCandidate]
) -> dict[int, dict[int, float]]:
    """Return, by candidate and part, the share of each part that is checked: the large ones, the largest at least.

    `members` are pairs of a candidate's index and its share.
    """
    shares = {index: [share * part.weight for part in candidates[index].parts] for index, share in members}
    least = min(LEAST_CHECKED, max(max(of_parts) for of_parts in shares.values()))
    return {
        index: {number: share for number, share in enumerate(of_parts) if share >= least}
        for index, of_parts in shares.items()
    }


def posterior_check(result: Served, functions: Sequence[str], classes: Sequence[str]) -> PosteriorCheck:
    """Return a check as a model stores it, with the log evidence in nats and its error where sampling estimated it.

    `functions` (M,) and `classes` (K,) are the names in its reasons.
    """
    evidence, error = result.evidence or (math.nan, math.nan)
    trust = result.posterior.trust
    return PosteriorCheck(
        way=result.way,
        reason=result.reason,
        verdict=trust.verdict,
        reasons=named_reasons(trust.reasons, functions, classes),
        mean_difference=_finite(result.mean_difference),
        largest_difference=_finite(result.largest_difference),
        log_evidence=_finite(evidence),
        log_evidence_error=_finite(error),
    )


def _finite(x: float) -> float | None:
    return float(x) if math.isfinite(x) else None


def served_trust(
    laplace: TrustSummary, shares: Sequence[float], checks: Sequence[PosteriorCheck | None]
) -> TrustSummary:
    """Return the verdict on a model whose parts have these shares (P,) and checks (P,).

    Where nothing was checked, it is the verdict on the Gaussian at the mode of the selected candidate, `laplace`.
    """
    done = [(share, check) for share, check in zip(shares, checks, strict=True) if check is not None]
    if not done:
        return laplace
    verdict = max((check.verdict for _, check in done), key=LEVELS.index)
    worst = [(share, r) for share, check in done if check.verdict == verdict for r in check.reasons]
    worst += [(share, check.reason) for share, check in done if check.way != "unchanged"]
    reasons = [r if share > 1 - 1e-9 else f"{share:.0%} of the mixture: {r}" for share, r in worst]
    seen = sum(share for share, _ in done)
    if seen < 1 - 1e-9 and any(check.way != "unchanged" for _, check in done):
        reasons.append(
            f"small parts with {1 - seen:.0%} of the mixture in total were not compared with the exact posterior"
        )
    return TrustSummary(verdict=verdict, reasons=tuple(dict.fromkeys(reasons)), numbers=laplace.numbers)
