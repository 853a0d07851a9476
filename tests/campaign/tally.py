"""The trials and their damage, a line for each, and a table of all."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

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
    seeds: str = ""

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


COLUMNS = ("what was done", "seeds", "tried", "held", "how it ended", "what did not hold")


def write_ledger(path: Path, lines: list[Line], seed: int) -> None:
    """Put a row for each line into a page's table, in the place of the row that said the same; sum up all rows."""
    text, _, table = path.read_text().partition(f"| {COLUMNS[0]} |")
    rows = {row.split(" | ")[0].removeprefix("| "): row for row in table.splitlines()[2:] if row[:2] == "| "}
    for line in lines:
        if line.tried:
            ended = ", ".join(f"{n:,} {what}" for what, n in line.seen.most_common())
            failed = "; ".join(why.replace("|", " ").replace("\n", " ")[:160] for why in line.why)
            held = f"{line.tried:,} | {line.tried - len(line.why):,}"
            rows[line.what] = f"| {line.what} | {line.seeds or seed} | {held} | {ended} | {failed} |"
    rows.pop("all", None)
    tried, held = (
        sum(int(row.split(" | ")[column].replace(",", "")) for row in rows.values()) for column in (2, 3)
    )
    rows["all"] = f"| all |  | {tried:,} | {held:,} |  |  |"
    head = f"| {' | '.join(COLUMNS)} |\n| --- | --- | ---: | ---: | --- | --- |"
    path.write_text("\n".join([text + head, *rows.values()]) + "\n")


def harmed(lines: list[Line]) -> bool:
    """Say whether anything did harm, or nothing was tried."""
    return any(+line.harm for line in lines) or not any(line.tried for line in lines)
