"""Prefect: settings, the embedded server, deployments, and the pages of runs.

- `deployments`: `prefect.yaml`: which flows Prefect runs, with which parameters, when; for `prefect deploy`
  and for `blr serve`.
- `events`: Events for Prefect's automations: a release is done, features have drifted, a file is
  quarantined, a model promoted.
- `home`: The lock on a database of Prefect: who serves it; and killed runs marked as Crashed.
- `results`: Result files of flow runs hold JSON; whatever else is put in their place is not loaded.
- `run_page`: What a classification leaves on Prefect's page: tables, a summary, events; how far it is; and
  whom it found dead.
- `serve`: All deployments of a `prefect.yaml` served by one process: it waits for their times and runs them
  beside itself.
- `server`: The process of the embedded Prefect server: `python -P server.py FD` serves the API on that
  socket.
- `settings`: Which Prefect server is used, where its database is, and the settings whose defaults are wrong
  for us.
- `signature`: The signature of a flow, built from the fields of a request; Prefect draws the form of the flow from
  it.
- `tables`: Tables for who watches a run: counts, flags, drift, differences, troubles.
"""

__all__ = [
    "deployments",
    "events",
    "home",
    "results",
    "run_page",
    "serve",
    "server",
    "settings",
    "signature",
    "tables",
]
