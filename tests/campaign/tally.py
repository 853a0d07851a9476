"""The trials and their damage, a line for each, and a table of all."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

from tests.campaign.harm import HARMS, Harm


@dataclass
class Line:
    """One kind of disturbance: how often it was tried, the harm of all, and what else was counted."""

    what: str
    tried: int = 0
    harm: Harm = field(default_factory=Counter)
    seen: Counter[str] = field(default_factory=Counter)
    why: list[str] = field(default_factory=list)
    skipped: str = ""

    def add(self, harm: Harm, seen: str, *, where: str = "") -> None:
        """Count one more; `where` leads to what it was, should it have done harm."""
        self.tried += 1
        self.harm += +harm
        self.seen[seen] += 1
        if +harm:
            self.why.append(f"{where or self.what}: {dict(+harm)}, {seen}")
            print(f"HARM {self.why[-1]}", flush=True)

    def __str__(self) -> str:
        """Return the line of the table."""
        if self.skipped:
            return f"{self.what:54} {'-':>6}   skipped: {self.skipped}"
        counts = "".join(f"{self.harm[kind]:>{len(kind) + 2}}" for kind in HARMS)
        seen = ", ".join(f"{n} {what}" for what, n in self.seen.most_common())
        return f"{self.what:54} {self.tried:6}{counts}   {seen}"


def table(lines: list[Line]) -> str:
    """Return all lines under a head, and their sum."""
    total = Line("all of it", sum(line.tried for line in lines))
    for line in lines:
        total.harm += line.harm
    head = f"{'what was done to a run':54} {'times':>6}  " + "  ".join(HARMS) + "   how far the runs came"
    return "\n".join([head, *map(str, lines), str(total), *(why for line in lines for why in line.why)])


def harmed(lines: list[Line]) -> bool:
    """Say whether anything did harm, or nothing was tried."""
    return any(+line.harm for line in lines) or not any(line.tried for line in lines)
