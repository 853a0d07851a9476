"""The table [run]: where the work is done."""

from __future__ import annotations

from pydantic import Field

from flows.specification._fields import SpecificationTable

__all__ = ["Run"]


class Run(SpecificationTable):
    """Where the work is done; no result depends on it."""

    engine: str | None = Field(
        default=None,
        pattern=r"^(threads|local:[1-9]\d{0,2}|(tcp|tls)://\S+:\d+|[^:]+\.json)$",
        description="Where the work is done: threads, local:N for N processes of this machine, tcp://HOST:PORT of a "
        "Dask scheduler, or the path of its scheduler file; default: threads",
    )
