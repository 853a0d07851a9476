"""The demonstration: OpenNGC's galaxies classified.

- `openngc`: The demo's catalogue: the galaxies of OpenNGC, from the database that the PyPI package
  `pyongc` carries.
- `steps`: The demonstration: OpenNGC's galaxies, classified twice, from nothing to annotated catalogues and
  reports.
- `summary`: The numbers of the demonstration, for programs: of each task in its `summary.json`, and of all as
  `--json` prints.

For this folder alone:

- `_columns`: The columns of OpenNGC's galaxies: types, units and UCDs, after its guide and PyOngc's
  documentation.
"""

__all__ = ["openngc", "steps", "summary"]
