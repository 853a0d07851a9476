"""An engine that does the work as processes elsewhere do, without starting any."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable
from dataclasses import dataclass
from typing import Any

import cloudpickle

from flows.engines.engine import LostError, ThreadEngine


@dataclass(frozen=True)
class Elsewhere(ThreadEngine):
    """Does the work on copies, and the last item first; the workers of the item of number `lost` are killed."""

    is_remote: bool = True
    lost: int | None = None

    def map(self, work: Callable[[Any], Any], items: Iterable[Any]) -> Generator[tuple[Any, Any]]:
        for item in reversed(list(items)):
            there, sent = cloudpickle.loads(cloudpickle.dumps((work, item)))
            if self.lost is not None and item.number == self.lost:
                yield item, LostError("2 workers were killed one after another")
            else:
                yield item, cloudpickle.loads(cloudpickle.dumps(there(sent)))
