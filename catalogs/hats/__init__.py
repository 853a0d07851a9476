"""HATS catalogues: partitions of the sky in Parquet, with their properties.

- `catalog`: HATS: a sky-partitioned catalogue, a margin, or a collection of them, as Parquet files in
  pixels of the sky.
- `create`: A new HATS table from rows that each belong to one pixel: Parquet files by pixel, with properties
  and metadata.

For this folder alone:

- `_finish`: What belongs to a HATS catalogue as a whole, beyond its partitions: written when these have
  been annotated.
- `_properties`: HATS `properties` files: Java properties, of which a copy changes some lines and keeps all
  others as they are.
- `_table`: One table of HATS: a folder of properties, and Parquet files each of one pixel of the sky.
"""

__all__ = ["catalog", "create"]
