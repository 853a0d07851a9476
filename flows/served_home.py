"""One server with services at a time on a database: who has it, and at which address.

Two schedulers on one SQLite file plan runs twice and lock each other out.  The lock is the system's, so that a
server that was killed leaves none behind.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from flows.errors import UsageError
from flows.runtime import EmbeddedServer

__all__ = ["ServedHome"]


@dataclass(frozen=True)
class ServedHome:
    """The file in a Prefect home that is locked while a server with services runs, and holds its address."""

    path: Path

    @classmethod
    def here(cls) -> ServedHome:
        """Return that of the home of this process, which `prefect_environment` has set."""
        return cls(Path(os.environ["PREFECT_HOME"]) / "served-at")

    @contextmanager
    def ours(self) -> Iterator[ServedHome]:
        """Hold the home; UsageError where another server has it."""
        with self.path.open("a+", encoding="utf-8") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise UsageError(
                    f"{self.path.parent}: got a database that a server has already ({self.address() or 'starting'}), "
                    "expected none: `blr ui` or `blr serve` runs in another terminal; stop that one first, or give "
                    "this one a database of its own by PREFECT_HOME"
                ) from None
            try:
                yield self
            finally:
                with suppress(OSError):
                    self.path.write_text("", encoding="utf-8")

    def announce(self, server: EmbeddedServer) -> None:
        """Write down the address, for others who ask."""
        self.path.write_text(str(server.url), encoding="utf-8")

    def address(self) -> str | None:
        """Return the address of the server that runs on this database; None where none does."""
        try:
            with self.path.open(encoding="utf-8") as file:
                try:
                    fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
                except BlockingIOError:
                    return file.read() or None
        except FileNotFoundError:
            pass
        return None
