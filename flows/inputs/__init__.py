"""What the user named: found, fetched, opened, cut into pieces for workers, and checked for still being written.

- `fetching`: Files at URLs, of any format, fetched into a hidden folder of the output's: everything after
  that sees files.
- `files`: The files of a source: their states, and the catalogue that they are.
- `opening`: Catalogues that are opened: whole, one object's row, or in pieces for workers.
- `resolve`: Files and URLs named by the user: globs and relative paths resolved, and a clear error where there is
  nothing.
- `source`: What the user named: a file, a folder, a pattern or a URL, and the catalogue that it is.
- `still_written`: Files that are still being written: waited for a while, then left for the next run.
"""

__all__ = ["fetching", "files", "opening", "resolve", "source", "still_written"]
