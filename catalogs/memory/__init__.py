"""Tables in memory: astropy, pandas and Arrow, annotated as what they are.

- `astropy_table`: An astropy table in memory: to Arrow with all that it says of itself, and a copy of it
  with new columns.
- `map_partitions`: The computation of an annotation on pandas frames, as LSDB's and Dask's `map_partitions`
  hand them out.
- `tables`: Tables in memory as catalogues: opened, and annotated.

For this folder alone:

- `_pandas_frame`: A pandas frame in memory: to Arrow with its index and attributes, and a copy of it with
  new columns.
- `_stored`: A table in memory as it is written: as Arrow, with notes on what Arrow cannot hold.
"""

__all__ = ["astropy_table", "map_partitions", "tables"]
