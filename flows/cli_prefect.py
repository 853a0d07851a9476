"""Prefect for one command: its settings first, then its server beside the import, for both are slow."""

from __future__ import annotations

from flows.progress import tell
from flows.runtime import prefect_environment, start_embedded_server
from flows.unended import HomeServer

__all__ = ["start_prefect"]


def start_prefect() -> HomeServer:
    """Prepare the environment that Prefect reads as it is imported, and start a server where none is configured."""
    # Prefect itself logs each failure with its traceback; the message is ours to show.
    tell().note(prefect_environment(console_level="CRITICAL"))
    return HomeServer(start_embedded_server())
