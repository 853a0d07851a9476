"""One run at a time: lock, interruption, progress, manifest, staging, allowed folders."""
