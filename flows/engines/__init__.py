"""Where work is done: on threads of this machine, or on the workers of a Dask cluster.

- `choice`: Which engine a user has named: threads, processes of this machine, or a scheduler.
- `engine`: Where work is done: what an engine is, the threads of this machine, and results in the order of their
  jobs.

For this folder alone:

- `_dask`: The workers of a Dask cluster: their versions, batches of jobs, and what becomes of jobs whose worker is
  lost.
"""

__all__ = ["choice", "engine"]
