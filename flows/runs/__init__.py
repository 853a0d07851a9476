"""One run at a time: lock, interruption, progress, manifest, staging, allowed folders.

- `allowed_roots`: The folders and URLs that a run may use: any by a user's own command, fewer by a server's form.
- `counts`: Counts of annotated files and of releases, as staging records, `summary.json` and `manifest.json` hold
  them.
- `interrupt`: Stopping a run: it finishes the current file or candidate, then says how to continue.
- `lock`: One run at a time in a folder: a lock with an owner, whose heartbeat says that it lives.
- `manifest`: The manifest of an output folder, `manifest.json`: its files, their inputs, and what made them.
- `model_reference`: References to a model in texts: NAME means its champion, NAME@VERSION one of its versions.
- `object_names`: The names of objects: the column that has them, and the names of those that have a label already.
- `outputs`: The states of input files and of their annotated copies; the table that lists more than a hundred of
  them.
- `parameters`: The parameters of a command (`train`, `classify`, ...), each defined once, as a field of a request.
- `progress`: Messages on the progress of work, to a listener: the bar of a terminal, printed lines, or nobody.
- `release_store`: A release in an object store: files are sent while others are made, and become visible in one step.
- `results`: The results of runs, the report of a release, and the state of an output folder.
- `staging`: The staging folder inside an output folder, for annotated files until all of them are finished.
"""

__all__ = [
    "allowed_roots",
    "counts",
    "interrupt",
    "lock",
    "manifest",
    "model_reference",
    "object_names",
    "outputs",
    "parameters",
    "progress",
    "release_store",
    "results",
    "staging",
]
