"""What the user named: found, fetched, opened, cut into pieces for workers, and checked for still being written.

- `catalogue`: A catalogue that is an input, resolved once: where it is, its files and their states, its table,
  its copies' format.
- `fetching`: Files at URLs, of any format, fetched into a hidden folder of the output's: everything after
  that sees files.
- `files`: The files of what the user named, opened as catalogues; damaged ones are set aside, not in the
  way of the others.
- `object_row`: One object of a catalogue by its identifier: where its row is.
- `opening`: Catalogues opened to be read, wherever they are: Parquet at a URL in its place, other formats
  fetched.
- `origins`: Inputs at URLs, as a plan sees them: fetched files, and what need not, could not or should not
  be fetched.
- `pieces`: Pieces of catalogues, each read by one worker: a file, or a part of a large one.
- `resolve`: Files and URLs named by the user: globs and relative paths resolved, and a clear error where there is
  nothing.
- `source`: What the user named, as it was found first: a file, a folder or a pattern of this machine, or a URL.
- `still_written`: Files that are still being written: waited for a while, then left for the next run.
"""

__all__ = [
    "catalogue",
    "fetching",
    "files",
    "object_row",
    "opening",
    "origins",
    "pieces",
    "resolve",
    "source",
    "still_written",
]
