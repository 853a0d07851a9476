"""Tables in memory: astropy, pandas and Arrow, annotated as what they are.

- `annotate_table`: Add columns to a table in memory: a copy of it, of its own kind, with them behind its
  own columns.
- `astropy_table`: An astropy table in memory: to Arrow with all that it says of itself, and a copy of it
  with new columns.
- `map_partitions`: The computation of an annotation on pandas frames, as LSDB's and Dask's `map_partitions`
  hand them out.
- `tables`: Tables in memory, pandas', astropy's and Arrow's, as catalogues: written to a temporary Parquet
  file once.

For this folder alone:

- `_arrow_table`: A table of Arrow's in memory, or of a library that hands over Arrow (Polars, DuckDB): with
  new columns, Arrow's.
- `_pandas_frame`: A pandas frame in memory: to Arrow with its index and attributes, and a copy of it with
  new columns.
- `_stored`: A table in memory as it is written: as Arrow, with notes on what Arrow cannot hold.
"""

__all__ = ["annotate_table", "astropy_table", "map_partitions", "tables"]
