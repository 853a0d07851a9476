"""HATS catalogues: partitions of the sky in Parquet, with their properties."""
