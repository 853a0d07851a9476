"""Parquet files and folders: read, annotated and written.

- `create`: A new Parquet file from Arrow batches, with all that is known of the columns: streamed, atomic.
- `dataset`: Parquet: a file, a folder of files, or a pattern; `name=value` folders are columns of their
  files.
- `file`: One Parquet file as a partition: read in batches of exactly so many rows, annotated by appending.
- `folders`: Which files of a folder are Parquet, and which folders are no catalogue though they hold such
  files.
- `metadata`: What a Parquet file knows of its columns beyond names and types, and the same for an annotated
  copy.
- `union`: Parquet files that are unlike, as one catalogue: its columns, their types, and what a file lacks
  of them.
- `writer`: Annotated copies of Parquet files: the old bytes, the new columns behind them, one footer of
  both.

For this folder alone:

- `_chunks`: Column chunks of new columns, encoded in memory by pyarrow: each as a file of its own, less its
  footer.
- `_fields`: The numbers of a Parquet footer's fields, of those that copies have to do with, by their structures.
- `_footer`: Parquet footers: read, checked, and merged, so that columns are added without touching the old
  ones.
- `_pages`: Pages of a Parquet file: their headers, and the checksums (CRC-32) that writers may put there.
- `_selection`: Some columns of a Parquet file, copied without decoding them: pages, indexes and Bloom
  filters as they are.
- `_thrift`: Thrift's compact protocol, as much as a Parquet footer needs: bytes to plain values and back.
"""

__all__ = ["create", "dataset", "file", "folders", "metadata", "union", "writer"]
