"""Where work is done: on threads of this machine, or on the workers of a Dask cluster.

- `engine`: Where work is done: which engine a user has named, what an engine is, and the threads of this machine.

For this folder alone:

- `_dask`: The workers of a Dask cluster: their versions, batches of jobs, and what becomes of jobs whose worker is
  lost.
"""

__all__ = [
    "engine",
]
