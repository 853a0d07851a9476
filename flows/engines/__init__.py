"""Where work is done: on threads of this machine, or on the workers of a Dask cluster."""
