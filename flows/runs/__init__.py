"""One run at a time: lock, interruption, progress, manifest, staging, allowed folders."""

__all__ = [
    "allowed_roots",
    "counts",
    "interrupt",
    "lock",
    "manifest",
    "model_reference",
    "object_names",
    "outputs",
    "parameters",
    "progress",
    "release_store",
    "results",
    "staging",
]
