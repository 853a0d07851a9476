"""Parquet files and folders: read, annotated and written."""
