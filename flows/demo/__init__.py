"""The demonstration: OpenNGC's galaxies classified.

- `openngc`: The OpenNGC catalogue of galaxies: fetched or embedded, with its columns as the demonstration needs them.
- `steps`: The demonstration: OpenNGC's galaxies, classified twice, from nothing to annotated catalogues and reports.
"""

__all__ = ["openngc", "steps"]
