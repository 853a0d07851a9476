"""Tables in memory: astropy, pandas and Arrow, annotated as what they are.

- `astropy_table`: Astropy tables as Arrow tables, and back with new columns; what changes on the way is said.
- `map_partitions`: The computation of an annotation on pandas frames, as LSDB's and Dask's `map_partitions`
  hand them out.
- `tables`: Tables in memory as catalogues: opened, and annotated.

For this folder alone:

- `_pandas_frame`: A pandas frame in memory: to Arrow with its index and attributes, and a copy of it with
  new columns.
"""

__all__ = ["astropy_table", "map_partitions", "tables"]
