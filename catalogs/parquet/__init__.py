"""Parquet files and folders: read, annotated and written.

- `dataset`: Parquet catalogues: a file, a folder, a pattern; `name=value` folders are columns; unlike files get
  common types.
- `file`: One Parquet file as a partition: read in batches of exactly so many rows, annotated by appending.
- `metadata`: What a Parquet file knows of its columns beyond names and types; and a new file from batches, which says
  the same.
- `writer`: Annotated copies of Parquet files: the old bytes, the new columns behind them, one footer of both.

For this folder alone:

- `_footer`: Parquet footers: read, checked and merged, so that columns are added without touching the old ones.
- `_pages`: Pages of a Parquet file: their headers, and the checksums (CRC-32) that writers may put there.
"""

__all__ = ["dataset", "file", "metadata", "writer"]
