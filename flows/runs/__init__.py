"""One run at a time: lock, interruption, progress, manifest, staging, allowed folders.

- `allowed_roots`: The folders and URLs that a run may use: any by a user's own command, fewer by a server's
  form.
- `census`: The questions put to a census, and its result with its place; `blr.census.results` has the census
  itself.
- `counts`: The counts of an annotated file, as its staging record and `summary.json` keep them for later runs.
- `difference`: How many objects differ between an annotation and the one before it, for a file or a whole
  release.
- `file_table`: The table of more than a hundred files, in Parquet: their states and counts, the counts rounded.
- `interrupt`: Stopping a run: it finishes the current file or candidate, then says how to continue.
- `labelled`: The names of objects that have a label already, so that nobody is asked about them again.
- `lock`: One run at a time in a folder: a lock with an owner, whose heartbeat says that it lives.
- `manifest`: The manifest of an output folder, `manifest.json`: its files, their inputs, and what made them.
- `model_reference`: References to a model in texts: NAME means its champion, NAME@VERSION one of its versions.
- `object_names`: Which column of a catalogue names its objects.
- `outputs`: The states of input files and of their annotated copies: hashes of the bytes, and counts.
- `parameters`: The parameters of a command (`train`, `classify`, ...), each defined once, as a field of a
  request.
- `progress`: Messages on the progress of work, to a listener: the bar of a terminal, printed lines, or nobody.
- `release_store`: A release in an object store: files are sent while others are made, and become visible in one step.
- `results`: The results of runs, and the report of a release.
- `staging`: The staging folder inside an output folder, for annotated files until all of them are finished.
- `status`: The state of an output folder: which of its files are current, stale, missing or quarantined, since when
  and why.
- `summary`: The summary of a classification, in `summary.json`, and its totals in `manifest.json`.

For this folder alone:

"""

__all__ = [
    "allowed_roots",
    "census",
    "counts",
    "difference",
    "file_table",
    "interrupt",
    "labelled",
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
    "status",
    "summary",
]
