"""What the user named: found, fetched, opened, cut into pieces for workers, and checked for still being written.

- `fetching`: Files at URLs, of any format, fetched into a hidden folder of the output's: everything after that sees
  files.
- `opening`: Catalogues that are opened: files one by one, damaged ones set aside; whole; one object's row; in pieces
  for workers.
- `source`: What the user named, resolved: a file, a folder, a pattern or a URL, and the catalogue that it is.
- `still_written`: Files that are still being written: waited for a while, then left for the next run.
"""

__all__ = [
    "fetching",
    "opening",
    "source",
    "still_written",
]
