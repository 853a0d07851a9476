"""One run at a time: lock, interruption, progress, manifest, staging, allowed folders.

- `allowed_roots`: Which folders and URLs a run may use: all, by a user's own command, but a server's form
  is open to others.
- `interrupt`: Stopping at a good moment: the file or candidate in hand is finished, then the run says how
  to go on.
- `lock`: One run at a time in a folder: a lock that goes with its process, and says whose it is.
- `manifest`: What lies in an output folder and where it came from: `manifest.json`, the truth about what is
  done.
- `model_reference`: How texts name a model: NAME is its champion, NAME@VERSION one of its versions; only here are they
  taken apart.
- `progress`: How far the work is, shown by a terminal's bar, to lines, or to nobody.
- `staging`: Where unfinished work waits inside an output folder, out of the way of what is finished.
"""

__all__ = ["allowed_roots", "interrupt", "lock", "manifest", "model_reference", "progress", "staging"]
