"""Prefect: settings, the user's server, deployments, and the pages of runs.

- `automations`: Automations that alert a team: a scheduled run failed, is late, or released nothing for days; and two
  more.
- `deployments`: `prefect.yaml`: which flows Prefect runs, with which parameters, when; for `prefect deploy` and for
  `blr serve`.
- `messages`: What a run says of itself in one sentence: the message of its final state, and the name of the run.
- `results`: Result files of flow runs hold JSON, and give the typed value back; whatever else is put there is not
  loaded.
- `run_page`: What a run leaves on Prefect's page and in its log: how far it is, tables, a link to its report, events.
- `run_state`: The signature of a flow, the name of its run, and what the run's final state says.
- `serve`: All deployments of a `prefect.yaml` served by one process: it waits for their times and runs them beside
  itself.
- `server`: The process of the user's Prefect server: `python -P server.py FD` serves the API on that socket.
- `settings`: Which Prefect server is used, where its database is, who is at work there, and the settings that we
  change.
- `tables`: What a run shows to people who watch it: counts and flags against the last run, drift, differences,
  troubles.
"""

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
