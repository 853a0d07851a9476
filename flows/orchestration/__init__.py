"""Prefect: settings, the user's server, deployments, and the pages of runs."""

__all__ = [
    "automations",
    "deployments",
    "messages",
    "results",
    "run_page",
    "run_state",
    "serve",
    "server",
    "settings",
    "tables",
]
