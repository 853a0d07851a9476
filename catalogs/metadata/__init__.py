"""What headers say: FITS cards, astropy's YAML, VOTable fields, pandas' JSON.

- `astropy_arrow`: From the arrays of astropy's tables to Arrow: masks become nulls, vectors lists of one
  length.
- `astropy_header`: The YAML header that astropy gives ECSV files, and Parquet files as `table_meta_yaml`.
- `astropy_masks`: Masks that astropy writes to Parquet: not as nulls, but as columns of truth values beside
  those that they mask.
- `fits_cards`: FITS cards as bytes: values in fixed format, long texts by CONTINUE, prose as HISTORY.
- `fits_history`: Our provenance in a FITS header: HISTORY cards, one block an annotation, the latest last.
- `pandas_metadata`: What pandas writes about a frame into the metadata of Parquet: its index, its attributes, the
  types of its columns.
- `plain_yaml`: YAML of the few types that headers and model files hold: texts, numbers, truth values,
  lists, mappings, references.
- `votable_fields`: The FIELDs of a data-less VOTable, which VOParquet files carry as metadata: read,
  written, added to.
"""

__all__ = [
    "astropy_arrow",
    "astropy_header",
    "astropy_masks",
    "fits_cards",
    "fits_history",
    "pandas_metadata",
    "plain_yaml",
    "votable_fields",
]
