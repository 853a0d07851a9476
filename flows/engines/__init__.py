"""Where work is done: on threads of this machine, or on the workers of a Dask cluster.

- `choice`: Which engine a user has named: threads, processes of this machine, or a scheduler.
- `current`: The engine that sums are made on at the moment, which a run sets once for all of its steps.
- `engine`: What an engine does: `map` and `reduce`; and the tree in which `reduce` adds.
- `in_order`: Results of an engine in the order of the items, for those that need them so.

For this folder alone:

- `_batches`: Items in batches, a batch a task of Dask's.
- `_dask`: Work on the workers of a Dask scheduler; the only module that imports `distributed`.
- `_threads`: Work on threads of this process.
- `_versions`: Which versions of packages decide about the bytes of a result, here and on workers.
"""

__all__ = ["choice", "current", "engine", "in_order"]
