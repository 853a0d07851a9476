"""`make campaign`: whatever can happen to a run, done to it, and what harm came of it; exit status 1 where any did.

    python -m tests.campaign [--kills 100] [--faults 10000] [--seed 1] [--ledger benchmarks/HARM.md]
                             [--only kills faults mutations]

Each kill of `--kills` is done at a random time and, another run, at a random step.  What becomes of runs whose workers
are killed: `tests/flows/test_cluster.py`.
`mutations` damages small files by seed; a kind of damage, as `--only parquet-flip --seed 17`, is tried with that seed
alone, or with `--faults` seeds from it on.  The ledger keeps the lines of parts that were not tried this time.
"""

from __future__ import annotations

import argparse
import random
import signal
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from tests.campaign.faults import full_disk, read_only, told_to_stop, two_at_once
from tests.campaign.kills import Bench, at_steps, at_times, whole_programs
from tests.campaign.material import Scenario, make_scenarios
from tests.campaign.mutations import FAULTS, KINDS, trials
from tests.campaign.tally import Line, harmed, table, write_ledger
from tests.campaign.zygote import zygote

PARTS = ("kills", "faults", "mutations")


def kills(bench: Bench, scenarios: list[Scenario], times: int, rng: random.Random) -> list[Line]:
    """Kill runs of the command line."""
    lines = []
    for scenario in scenarios:
        each = -(-times // len(scenarios))
        lines.append(_shown(at_times(bench, scenario, each, rng)))
        last = bench.length(scenario)[1]
        lines.append(
            _shown(at_steps(bench, scenario, sorted(rng.sample(range(1, last + 1), min(each, last)))))
        )
    home = bench.logs / "prefect"
    few = -(-times // 20)
    for scenario in (scenarios[0], scenarios[3]):
        lines.append(_shown(whole_programs(bench, scenario, few, rng)))
        lines.append(_shown(whole_programs(bench, scenario, few, rng, home=home)))
    return lines


def faults(bench: Bench, scenarios: list[Scenario], times: int, rng: random.Random) -> list[Line]:
    """Do to runs whatever else a machine does."""
    few = -(-times // 10)
    lines = []
    (bench.logs / "other").mkdir()
    with zygote() as second:
        other = Bench(second, bench.logs / "other")
        for scenario in (scenarios[0], scenarios[3]):
            steps = sorted(rng.sample(range(1, bench.length(scenario)[1] + 1), few))
            for number in (signal.SIGTERM, signal.SIGINT):
                lines.append(_shown(told_to_stop(bench, scenario, number, few, rng)))
                lines.append(_shown(at_steps(bench, scenario, steps, number)))
            lines.append(_shown(full_disk(bench, scenario, few, rng)))
            lines.append(_shown(read_only(bench, scenario, few, rng)))
            lines.append(_shown(two_at_once(bench, other, scenario, few, rng)))
    return lines


def _shown(line: Line) -> Line:
    print(f"{time.strftime('%H:%M:%S')} {line}", flush=True)
    return line


def main() -> int:
    """Do what is asked for; print counts, and one table of all at the end."""
    asked = argparse.ArgumentParser(prog="python -m tests.campaign", description=__doc__)
    asked.add_argument("--kills", type=int, default=100)
    asked.add_argument("--faults", type=int)
    asked.add_argument("--only", nargs="+", choices=(*PARTS, *KINDS), default=PARTS)
    asked.add_argument("--seed", type=int, default=1)
    asked.add_argument("--ledger", type=Path)
    told = asked.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # what was started ends too
    lines: list[Line] = []
    with tempfile.TemporaryDirectory(prefix="blr-campaign-") as name:
        folder, rng = Path(name), random.Random(told.seed)  # noqa: S311 - of moments, not of secrets
        if {"kills", "faults"} & {*told.only}:
            scenarios = make_scenarios(folder / "survey")
            (folder / "logs").mkdir()
            with zygote() as forks:
                bench = Bench(forks, folder / "logs")
                parts: dict[str, Callable[[], list[Line]]] = {
                    "kills": lambda: kills(bench, scenarios, told.kills, rng),
                    "faults": lambda: faults(bench, scenarios, told.kills, rng),
                }
                for part in (part for part in parts if part in told.only):
                    lines += parts[part]()
        kinds = [*KINDS] if "mutations" in told.only else [kind for kind in told.only if kind in KINDS]
        if kinds:
            times = told.faults or (FAULTS if "mutations" in told.only else len(kinds))
            each = -(-times // len(kinds))
            lines += [_shown(line) for line in trials(kinds, told.seed, each, folder / "mutations")]
    if lines:
        print(table(lines))
    if told.ledger:
        write_ledger(told.ledger, lines, told.seed)
    good = not (lines and harmed(lines))
    print("no harm" if good else "HARM WAS DONE")
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
