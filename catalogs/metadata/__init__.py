"""What headers say: FITS cards, astropy's YAML, VOTable fields, pandas' JSON.

- `astropy_header`: What astropy writes about a table in YAML: types, units, masks, mixins; read and written without
  astropy.
- `fits_cards`: FITS cards of columns and of provenance: read into metadata, and written from it.
- `pandas_metadata`: What pandas writes about a frame into the metadata of Parquet: its index, its attributes, the
  types of its columns.
- `plain_yaml`: YAML of the few types that headers and model files hold: texts, numbers, truth values,
  lists, mappings, references.
- `votable_fields`: The FIELDs of a data-less VOTable, which VOParquet files carry as metadata: read,
  written, added to.
"""

__all__ = ["astropy_header", "fits_cards", "pandas_metadata", "plain_yaml", "votable_fields"]
