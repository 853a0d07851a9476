"""Sides of a comparison in turns, each in a process of its own: neither warms the other's caches or owns its memory.

On a machine that others use at the same time a round is unfair to all sides alike, so ratios are of one round, and
their median counts.  The processor's seconds are printed beside the clock's.
"""

from __future__ import annotations

import json
import resource
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass

__all__ = ["Cost", "cost_of", "in_turns", "tell"]

RSS_UNIT = 1 if sys.platform == "darwin" else 1024


@dataclass(frozen=True)
class Cost:
    """What a side took: clock and processor, in seconds, and the most memory that was resident, in MB."""

    seconds: float
    processor: float
    megabytes: float

    def __str__(self) -> str:
        return (
            f"{self.seconds:6.1f} s, processor {self.processor:5.1f} s, peak memory {self.megabytes:4.0f} MB"
        )


def cost_of(work: Callable[[], object]) -> None:
    """Print what the work takes, imports left out: the last thing that a side does."""
    start, used = time.perf_counter(), time.process_time()
    work()
    cost = Cost(time.perf_counter() - start, time.process_time() - used, peak_bytes() / 1e6)
    print(json.dumps(asdict(cost)))


def peak_bytes() -> int:
    """Return the most memory that was resident so far."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * RSS_UNIT


def in_turns(sides: Mapping[str, Sequence[str]], rounds: int) -> dict[str, list[Cost]]:
    """Run each side's script and arguments once a round, and once before; return what each took.

    What comes first pays for memory that a virtual machine has to ask for; nothing is learnt from that.
    """
    costs: dict[str, list[Cost]] = {name: [] for name in sides}
    for _ in range(1 + rounds):
        for name, arguments in sides.items():
            done = subprocess.run([sys.executable, *arguments], check=True, stdout=subprocess.PIPE, text=True)  # noqa: S603
            costs[name].append(Cost(**json.loads(done.stdout.splitlines()[-1])))
    return {name: taken[1:] for name, taken in costs.items()}


def tell(costs: Mapping[str, Sequence[Cost]]) -> None:
    """Print what each side took, in the middle of its rounds, and the medians of the first one's ratios to it."""
    (first, ours), *others = costs.items()
    print(f"  {first:6} {middle(ours)}")
    for name, taken in others:
        pairs = list(zip(ours, taken, strict=True))
        clock = statistics.median(a.seconds / b.seconds for a, b in pairs)
        processor = statistics.median(a.processor / b.processor for a, b in pairs)
        print(f"  {name:6} {middle(taken)}; {first} / {name}: {clock:.2f}, processor {processor:.2f}")


def middle(costs: Sequence[Cost]) -> Cost:
    """Return the one of median time."""
    return sorted(costs, key=lambda cost: cost.seconds)[len(costs) // 2]
