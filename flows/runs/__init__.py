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
- `results`: The results of `classify` and `reprocess`: what was done, what would be done, or a trial on some rows.
- `staging`: Where unfinished work waits inside an output folder, out of the way of what is finished.
- `summary`: What a classification adds up to, for people and programs: `summary.json`, and the totals in
  `manifest.json`.
"""

__all__ = [
    "allowed_roots",
    "census",
    "counts",
    "difference",
    "interrupt",
    "labelled",
    "lock",
    "manifest",
    "model_reference",
    "object_names",
    "outputs",
    "parameters",
    "progress",
    "release",
    "results",
    "staging",
    "summary",
]
