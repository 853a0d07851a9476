"""Prefect: settings, the user's server, deployments, and the pages of runs.

- `automations`: Automations that alert a team: a scheduled run failed, is late, or released nothing for days;
  and two more.
- `deployments`: `prefect.yaml`: which flows Prefect runs, with which parameters, when; for `prefect deploy`
  and for `blr serve`.
- `events`: Events for Prefect's automations: a release is done, features have drifted, a file is
  quarantined, a model promoted.
- `home`: The user's Prefect server, one at a time on a database: who runs it, at which address, and who is at
  work there; killed runs marked as Crashed.
- `links`: Addresses of files on people's pages: a report lies on the worker's machine, its reader at another
  one.
- `messages`: What a run says of itself in one sentence: the message of its final state, and the name of the run.
- `results`: Result files of flow runs hold JSON; whatever else is put in their place is not loaded.
- `run_log`: Lines of a run in Prefect's log: what begins, how fast it went, what was left out and why, and
  what came of it.
- `run_page`: What a run leaves on Prefect's page: tables, a summary, a link to its report, events; and how
  far it is.
- `run_state`: What a run is called, and what its final state says: a list of runs is then read without opening
  any of them.
- `serve`: All deployments of a `prefect.yaml` served by one process: it waits for their times and runs them
  beside itself.
- `server`: The process of the user's Prefect server: `python -P server.py FD` serves the API on that
  socket.
- `settings`: Which Prefect server is used, where its database is, and the settings whose defaults are wrong
  for us.
- `signature`: The signature of a flow, built from the fields of a request; Prefect draws the form of the flow from
  it.
- `tables`: What a run shows to people who watch it: counts and flags against the last run, drift, differences,
  troubles.
"""

__all__ = [
    "automations",
    "deployments",
    "events",
    "home",
    "links",
    "messages",
    "results",
    "run_log",
    "run_page",
    "run_state",
    "serve",
    "server",
    "settings",
    "signature",
    "tables",
]
