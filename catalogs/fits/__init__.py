"""FITS tables: read, annotated and written."""
