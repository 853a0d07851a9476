"""The demonstration: OpenNGC's galaxies classified.

- `steps`: The demonstration: OpenNGC's galaxies, classified twice, from nothing to annotated catalogues and
  reports.

For this folder alone:

- `_catalogue`: The demo's catalogue: the galaxies of OpenNGC, from the database that the PyPI package
  `pyongc` carries.
- `_columns`: The columns of OpenNGC's galaxies: types, units and UCDs, after its guide and PyOngc's
  documentation.
"""

__all__ = ["steps"]
