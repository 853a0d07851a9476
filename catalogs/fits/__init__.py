"""FITS tables: read, annotated and written.

- `astropy_meta`: An astropy table's `meta`, which Parquet holds as YAML, in a FITS header: as cards, where
  cards can say it.
- `columns`: Columns of a FITS binary table: from TFORMn and its companions to a place in the row and an
  Arrow type.
- `create`: A new FITS file of one binary table, from Arrow batches: streamed, with checksums, atomic.
- `header`: FITS headers: 80-byte cards kept as they are, their values, and the sizes of the HDUs that they
  describe.
- `healpix`: Maps of the sky as HEALPix FITS files: read at positions, and written.
- `rewrite`: The header and the rows of a FITS table's copy: old columns and cards as they were, new columns behind.
- `source`: The bytes of a FITS file at given places; a gzipped file is inflated to an unnamed temporary
  first.
- `table`: FITS tables: sniff, open, read in batches, write annotated.
- `values`: From Arrow columns to the cells of a FITS table: which form they take, and what is lost.

For this folder alone:

- `_annotate`: An annotated copy of a FITS file by copying bytes: unknown parts survive, since none is interpreted.
- `_ascii`: ASCII tables as binary ones: their cards, and their rows.
- `_checksum`: DATASUM and CHECKSUM: the ones'-complement sum of an HDU's 32-bit words, added up while it is
  written.
- `_compressed`: Tile-compressed tables, as `fpack` makes them: their cards and their rows as they were
  before.
- `_decode`: From the stored elements of a FITS column to an Arrow array, cells of variable length (the heap)
  included.
- `_left_behind`: The parts of a FITS file besides the columns of its table, and those that another format cannot hold.
- `_restored`: Tables that are no plain binary table, ASCII or tile-compressed: made one in an unnamed file.
"""

__all__ = ["astropy_meta", "columns", "create", "header", "healpix", "rewrite", "source", "table", "values"]
