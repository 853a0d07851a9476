"""One run at a time: lock, interruption, progress, manifest, staging, allowed folders.

- `allowed_roots`: Which folders and URLs a run may use: all, by a user's own command, but a server's form
  is open to others.
- `census`: How many objects of each class a catalogue has, with an interval that says what it rests on.
- `counts`: What is counted in an annotated file, as its record in the staging and `summary.json` keep it for
  later runs.
- `difference`: How many objects an annotation changes against the one before, of a file or of a whole
  release.
- `interrupt`: Stopping at a good moment: the file or candidate in hand is finished, then the run says how
  to go on.
- `kept_counts`: The counts of files as later runs read them: for many files with fewer digits, so that their table is
  small.
- `labelled`: Which objects of an output folder have a label already: nobody is asked about them again.
- `lock`: One run at a time in a folder: a lock that goes with its process, and says whose it is.
- `manifest`: What lies in an output folder and where it came from: `manifest.json`, the truth about what is
  done.
- `model_reference`: How texts name a model: NAME is its champion, NAME@VERSION one of its versions; only here are they
  taken apart.
- `object_names`: Which column of a catalogue names its objects.
- `outputs`: What is known of an input and of its annotated copy: bytes by their hash, and what was counted.
- `parameters`: The parameters of a verb (`train`, `classify`, ...), each written once, as a field of a request.
- `progress`: How far the work is, shown by a terminal's bar, to lines, or to nobody.
- `release`: What a release has changed, as `_releases/0007.json` keeps it, and the release that it is compared
  with.
- `release_store`: A release in an object store: made in a folder of this machine, then published as a whole.
- `results`: The results of `classify` and `reprocess`: what was done, what would be done, or a trial on some rows.
- `staging`: Where unfinished work waits inside an output folder, out of the way of what is finished.
- `summary`: What a classification adds up to, for people and programs: `summary.json`, and the totals in
  `manifest.json`.

For this folder alone:

- `_early_sending`: Annotated copies sent to an object store while others are annotated.
- `_file_table`: The files of a large output folder as a Parquet table, one row a file: `_files/HASH.parquet`.
- `_heartbeat`: Signs of life of a lock file, where the file system has no locks and nobody knows of processes on
  other hosts.
- `_listed`: How a manifest lists up to a hundred files in its JSON: inputs and outputs, one after another.
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
    "summary",
]
