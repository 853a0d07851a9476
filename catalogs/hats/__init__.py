"""HATS catalogues: partitions of the sky in Parquet, with their properties.

- `catalog`: HATS catalogues: their `properties`, their partitions of the sky, and collections with margins.
- `create`: A new HATS table from rows that each belong to one pixel: Parquet files by pixel, with properties
  and metadata.
"""

__all__ = ["catalog", "create"]
