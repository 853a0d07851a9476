"""What headers say: FITS cards, astropy's YAML, VOTable fields, pandas' JSON.

- `astropy_header`: The YAML of astropy's tables, which ECSV and Parquet hold: read without making objects, and
  written.
- `fits_cards`: FITS cards of columns and of provenance: read into metadata, and written from it.
- `pandas_metadata`: What pandas writes about a frame into the metadata of Parquet: its index, its attributes, the
  types of its columns.
- `votable_fields`: The FIELDs of a data-less VOTable, which VOParquet files carry as metadata: read,
  written, added to.
"""

__all__ = ["astropy_header", "fits_cards", "pandas_metadata", "votable_fields"]
