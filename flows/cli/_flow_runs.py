"""Whether a command runs as a Prefect flow run: where a Prefect API is configured or running, or as was asked for."""

from __future__ import annotations

import os

from flows.errors import UsageError
from flows.orchestration.home import connect, start_home_server
from flows.runs.progress import tell

__all__ = ["connect_or_start", "runs_as_flow"]


def runs_as_flow(prefect: bool | None) -> bool:  # noqa: FBT001  the switch --prefect/--direct, None where neither
    """Return whether to run as a flow; if so, Prefect has its environment and may be imported."""
    if prefect is False:
        return False
    # Prefect itself logs each failure with its traceback; the message is ours to show.
    line = connect(console_level="CRITICAL")
    if line is not None:
        tell().note(line)
        return True
    if prefect:
        raise UsageError(
            "got --prefect, but no Prefect server is configured or running; start `blr ui` in another terminal, or "
            "set PREFECT_API_URL"
        )
    tell().note("running without Prefect; to see runs in its UI, start `blr ui` in another terminal first")
    return False


def connect_or_start() -> None:
    """Give Prefect its environment, with the server that is configured or running, or with one for this process."""
    line = connect(console_level="CRITICAL")
    if line is None:
        tell().note("starting Prefect's server; --direct works without it")
        os.environ.setdefault("PREFECT_API_BLOCKS_REGISTER_ON_START", "false")  # a third of the time to start
        line, server = start_home_server(0, console_level="CRITICAL")
        server.wait()
    tell().note(line)
