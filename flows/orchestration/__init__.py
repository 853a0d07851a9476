"""Prefect: settings, the user's server, deployments, and the pages of runs."""
