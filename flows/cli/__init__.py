"""The command line `blr`: options and one module for each group of commands.

- `app`: The command line: `blr train`, `blr classify`, and what goes with them.

For this folder alone:

- `_audit`: `blr audit`.
- `_classification`: `blr classify`, `reprocess`, `status`, `review`, `explain`, `map` and `census`.
- `_demo`: `blr demo`.
- `_inspect`: `blr inspect` and `blr init`.
- `_list`: `blr models list`: in a moment, for it opens no model file that has a description beside it.
- `_models`: `blr train`, `blr models show` and `blr models promote`.
- `_options`: From what is typed to requests and options, and the options that only the command line has.
- `_other_makers`: Packages of other projects with the names of ours: `flows` and `blr` are on the package index too.
- `_printing`: What people and programs read: results on standard output, progress and errors on standard error.
- `_release`: `blr release`: draft, check, sign, publish, rollback, patch, verify, replay.
- `_schemas`: `blr schema`: the JSON Schema of what commands print with `--json`, and of the files that they leave.
- `_serve`: `blr serve`, `blr ui`, `blr deployments`, `blr deployments automate`.
"""

__all__ = ["app"]
