"""Which engine a user has named: threads, processes of this machine, or a scheduler."""

# ruff: noqa: PLC0415 -- distributed is an extra, and takes a second to import: most runs use threads

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from flows.engines.engine import Engine, ThreadEngine
from flows.errors import EngineError, UsageError

__all__ = ["THREADS_HERE", "EngineChoice"]

ADDRESS = re.compile(r"(tcp|tls)://(\[[0-9A-Fa-f:.]+\]|[\w.-]+):\d+")


@dataclass(frozen=True)
class EngineChoice:
    """So many `processes` of this machine; or a scheduler, by its `address` or its `file`; or else threads.

    Examples
    --------
    >>> EngineChoice.parse("local:4", key="--engine").processes
    4
    """

    processes: int = 0
    address: str = ""
    file: Path | None = None

    @classmethod
    def parse(cls, text: str, *, key: str, base: Path = Path()) -> EngineChoice:
        """Return the engine that a text names; a scheduler file may be relative to `base`.

        Raises
        ------
        UsageError
            If the text names none; `key` says where the text stands.
        """
        if text == "threads":
            return THREADS_HERE
        if re.fullmatch(r"local:[1-9]\d{0,2}", text):
            return cls(processes=int(text.removeprefix("local:")))
        if ADDRESS.fullmatch(text):
            return cls(address=text)
        if text.endswith(".json") and "://" not in text:
            return cls(file=base / text)
        raise UsageError(
            f"{key}: got '{text}', expected threads, local:N for N processes of this machine, tcp://HOST:PORT of a "
            "Dask scheduler, or the path of its scheduler file (*.json)"
        )

    @classmethod
    def chosen(cls, asked: str | None, stated: str | None, *, base: Path) -> tuple[EngineChoice, str]:
        """Return the engine that is `asked` for, else the one `stated` in a specification; and which key names it.

        Paths in a specification start at the folder `base`.  UsageError as of `parse`.
        """
        if asked is not None:
            return cls.parse(asked, key="engine"), "engine"
        if stated is not None:
            return cls.parse(stated, key="run.engine", base=base), "run.engine"
        return THREADS_HERE, "engine"

    @property
    def is_here(self) -> bool:
        """Whether the work is done on threads of this process."""
        return self == THREADS_HERE

    def __str__(self) -> str:
        if self.processes:
            return f"local:{self.processes}"
        return self.address or str(self.file or "threads")

    @contextmanager
    def opened(self, threads: int) -> Iterator[Engine]:
        """Give the engine, as long as the block lasts; workers are asked for when there is work for them.

        `threads` is for the threads of this process.

        Raises
        ------
        EngineError
            If workers are asked for, and the package `distributed` is not installed.
        """
        if self.is_here:
            yield ThreadEngine(threads)
            return
        try:
            from flows.engines._dask import DaskEngine
        except ImportError as error:
            raise EngineError(
                f"got the engine {self}, which needs Dask, but {error.name} is not installed; install it: "
                "pip install 'galaxyblr[dask]'"
            ) from error
        engine = DaskEngine(str(self), processes=self.processes, address=self.address, file=self.file)
        try:
            yield engine
        finally:
            engine.close()


THREADS_HERE = EngineChoice()
"""Threads of this process: the default."""
