"""FITS tables: read, annotated and written.

- `columns`: Columns of a FITS binary table: from TFORMn to a place in the row, and from stored elements to an Arrow
  array.
- `create`: A new FITS file of one binary table, from Arrow batches: streamed, with checksums, whole or not at all.
- `header`: The bytes of a FITS file: its HDUs, their cards as they are, and their checksums.
- `healpix`: Maps of the sky as HEALPix FITS files: read at positions, and written.
- `rewrite`: An annotated copy of a FITS table: old columns, cards and bytes as they were, new columns behind.
- `table`: FITS tables: sniff, open, read in batches, write annotated.

For this folder alone:

- `_restored`: Tables that are no plain binary table, ASCII or tile-compressed: made one in an unnamed file.
"""

__all__ = ["columns", "create", "header", "healpix", "rewrite", "table"]
