"""One run at a time: lock, interruption, progress, manifest, staging, allowed folders.

- `allowed_roots`: The folders and URLs that a run may use: any by a user's own command, fewer by a server's
  form.
- `census`: The questions put to a census, and its result with its place; `blr.census.results` has the census
  itself.
- `counts`: The counts of an annotated file, as its staging record and `summary.json` keep them for later runs.
- `difference`: How many objects differ between an annotation and the one before it, for a file or a whole
  release.
- `interrupt`: Stopping a run: it finishes the current file or candidate, then says how to continue.
- `kept_counts`: The counts of files as later runs read them: rounded for many files, so that their table is
  small.
- `labelled`: The names of objects that have a label already, so that nobody is asked about them again.
- `lock`: One run at a time in a folder: a lock that ends with its process, and a file that names its owner.
- `manifest`: The manifest of an output folder, `manifest.json`: its files, their inputs, and what made them.
- `model_reference`: References to a model in texts: NAME means its champion, NAME@VERSION one of its versions.
- `object_names`: Which column of a catalogue names its objects.
- `outputs`: The states of input files and of their annotated copies: hashes of the bytes, and counts.
- `parameters`: The parameters of a command (`train`, `classify`, ...), each defined once, as a field of a
  request.
- `progress`: Messages on the progress of work, to a listener: the bar of a terminal, printed lines, or nobody.
- `release`: What a release has changed, as in the file `_releases/0007.json`, and the release that it is
  compared with.
- `release_store`: A release in an object store: made in a local folder, then published as a whole.
- `results`: The results of `classify` and `reprocess`: what was done, what would be done, or a trial on some rows.
- `staging`: The staging folder inside an output folder, for annotated files until all of them are finished.
- `status`: The state of an output folder: which of its files are current, stale, missing or quarantined, since when
  and why.
- `summary`: The summary of a classification, in `summary.json`, and its totals in `manifest.json`.

For this folder alone:

- `_early_sending`: Sending annotated copies to an object store while other files are being annotated.
- `_file_table`: The files of a large output folder as a Parquet table with a row for each file:
  `_files/HASH.parquet`.
- `_heartbeat`: Signs of life of the run that holds a lock file, for file systems without locks.
- `_listed`: The lists of inputs and outputs in the JSON of a manifest, for up to a hundred files.
"""

__all__ = [
    "allowed_roots",
    "census",
    "counts",
    "difference",
    "interrupt",
    "kept_counts",
    "labelled",
    "lock",
    "manifest",
    "model_reference",
    "object_names",
    "outputs",
    "parameters",
    "progress",
    "release",
    "release_store",
    "results",
    "staging",
    "status",
    "summary",
]
