"""The command line `blr`: options and one module for each group of commands.

- `app`: The command line: `blr train`, `blr classify`, and what goes with them.

For this folder alone:

- `_audit`: `blr audit`.
- `_census`: `blr census`.
- `_classify`: `blr classify`.
- `_demo`: `blr demo`.
- `_errors`: What the user reads when something is wrong, and the exit status: the message alone, no
  traceback.
- `_explain`: `blr explain`.
- `_flow_runs`: Whether a command runs as a Prefect flow run: where a Prefect API is configured or running, or
  as was asked for.
- `_inspect`: `blr inspect` and `blr init`.
- `_list`: `blr models list`: in a moment, for it opens no model file that has a description beside it.
- `_map`: `blr map`.
- `_models`: `blr models show` and `blr models promote`.
- `_options`: Options of the command line: those that several commands have, those that name what is
  written, and long ones.
- `_other_makers`: Packages of other projects with the names of ours: `flows` and `blr` are on the package index too.
- `_printing`: Results on standard output: JSON for programs, tables and lines for people.
- `_progress`: How far the work is: a bar with rows, rows/s and time left on a terminal, lines elsewhere; on
  standard error.
- `_release`: `blr release`: draft, check, sign, publish, rollback, patch, verify, replay.
- `_reprocess`: `blr reprocess`.
- `_review`: `blr review`.
- `_schemas`: `blr schema`: the JSON Schema of what commands print with `--json`, and of the files that they leave.
- `_serve`: `blr serve`, `blr ui`, `blr deployments`, `blr deployments automate`.
- `_show`: What a person reads of a result, on standard output.
- `_train`: `blr train`.
- `_verbs`: Commands built from requests: each field becomes an option of Typer, and its description becomes the
  help.
"""

__all__ = ["app"]
