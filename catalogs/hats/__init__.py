"""HATS catalogues: partitions of the sky in Parquet, with their properties.

- `catalog`: HATS catalogues: Parquet by partitions of the sky, read, annotated and created.
"""

__all__ = ["catalog"]
