"""The check of a model's posteriors against the exact ones: which parts are checked, and what is said of it.

Where the Gaussian at the mode fails, the refined posterior may serve all the same, or chains take its place
(`blr.posterior.repair`).  The verdict on a model is of what it serves.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from blr.posterior.repair import Served

__all__ = ["LEVELS", "MOST_CHECKED", "checked_parts", "checked_words", "served_trust"]

MOST_CHECKED = 4
"""Parts of the largest shares that are checked: chains take seconds, and an error in a small share moves little."""

LEVELS = ("green", "amber", "red")


def checked_parts(
    members: Sequence[Sequence[Any]], rows: Sequence[Mapping[str, Any]]
) -> dict[int, list[int]]:
    """Return which parts of which candidates are checked, those of the largest shares in the model.

    `members` are pairs of a candidate's index and its share; `rows` the candidates' rows of the table.
    """
    shares = [
        (share * part["weight"], index, number)
        for index, share in members
        for number, part in enumerate(rows[index]["parts"])
    ]
    largest = sorted(shares, key=lambda found: (-found[0], found[1], found[2]))[:MOST_CHECKED]
    chosen: dict[int, list[int]] = {}
    for _, index, number in largest:
        chosen.setdefault(index, []).append(number)
    return chosen


def checked_words(found: Served) -> dict[str, Any]:
    """Return a check as JSON can hold it, with the evidence in nats and its error where chains gave one."""
    evidence, trust = found.evidence, found.posterior.trust
    numbers = (found.mean_difference, found.largest_difference, *(evidence or (math.nan, math.nan)))
    names = ("mean_difference", "largest_difference", "log_evidence", "log_evidence_error")
    return {
        "way": found.way,
        "reason": found.reason,
        "verdict": trust.verdict,
        "reasons": list(trust.reasons),
        **{name: float(x) if math.isfinite(x) else None for name, x in zip(names, numbers, strict=True)},
    }


def served_trust(
    row: Mapping[str, Any], shares: Sequence[float], checks: Sequence[Mapping[str, Any] | None]
) -> dict[str, Any]:
    """Return the verdict on a model of parts with these shares (P,) and checks (P,).

    `row` is the selected candidate's, whose verdict on its Gaussian at the mode stands where nothing was checked.
    """
    done = [(share, check) for share, check in zip(shares, checks, strict=True) if check is not None]
    if not done:
        return {key: row[key] for key in ("verdict", "reasons", "numbers")}
    verdict = max((check["verdict"] for _, check in done), key=LEVELS.index)
    worst = [(share, r) for share, check in done if check["verdict"] == verdict for r in check["reasons"]]
    worst += [(share, check["reason"]) for share, check in done if check["way"] != "unchanged"]
    reasons = [r if share > 1 - 1e-9 else f"{share:.0%} of the mixture: {r}" for share, r in worst]
    seen = sum(share for share, _ in done)
    if seen < 1 - 1e-9 and any(check["way"] != "unchanged" for _, check in done):
        reasons.append(
            f"parts with {1 - seen:.0%} of the mixture, all of them small, were not compared with the exact posterior"
        )
    return {"verdict": verdict, "reasons": list(dict.fromkeys(reasons)), "numbers": row["numbers"]}
