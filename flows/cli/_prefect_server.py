"""Prefect for one command: its settings first, then its server beside the import, for both are slow."""

from __future__ import annotations

from flows.orchestration.home import HomeServer
from flows.orchestration.settings import prefect_environment, start_embedded_server
from flows.runs.progress import tell

__all__ = ["start_prefect"]


def start_prefect() -> HomeServer:
    """Prepare the environment that Prefect reads as it is imported, and start a server where none is configured."""
    # Prefect itself logs each failure with its traceback; the message is ours to show.
    tell().note(prefect_environment(console_level="CRITICAL"))
    server = start_embedded_server()
    own = "starting Prefect's server and " if server.process else ""
    tell().note(
        f"{own}loading Prefect, which takes some time on a busy machine; --direct works without Prefect"
    )
    return HomeServer(server)
