"""Parquet files and folders: read, annotated and written.

- `dataset`: Parquet: one file or a folder of files, in batches of their row groups.
- `metadata`: What a Parquet file knows of its columns beyond names and types; and a new file from batches, which says
  the same.
- `writer`: Parquet files are written: annotated copies by copying bytes and appending columns, others anew.

For this folder alone:

- `_footer`: Parquet footers: read, checked and merged, so that columns are added without touching the old ones.
"""

__all__ = ["dataset", "metadata", "writer"]
