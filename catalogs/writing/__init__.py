"""Annotated copies: where they go, in which format, and how they are written.

- `annotate`: Add columns to a catalogue: every partition is copied with them to an output folder, streamed
  and atomic.
- `conversion`: Annotated copies in another format: Parquet or FITS of anything that can be read, streamed.
- `destination`: Where annotated copies go: whether they may, whether they fit, and under which names they
  are written first.
"""

__all__ = ["annotate", "conversion", "destination"]
