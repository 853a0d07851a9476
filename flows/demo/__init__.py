"""The demonstration: OpenNGC's galaxies classified.

- `openngc`: The OpenNGC catalogue of galaxies: fetched or embedded, with its columns as the demonstration needs them.
- `steps`: The demonstration: OpenNGC's galaxies, classified twice, from nothing to annotated catalogues and
  reports.
- `summary`: The numbers of the demonstration, for programs: of each task in its `summary.json`, and of all as
  `--json` prints.
"""

__all__ = ["openngc", "steps", "summary"]
