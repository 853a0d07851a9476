"""VOTables in every serialisation: read, annotated and written.

- `table`: VOTables: sniff, open, read in batches, write annotated.

For this folder alone:

- `_document`: The document of a VOTable: parsed without the rows of its tables, changed, and given back its own
  elements.
- `_rows`: The rows of a VOTable in BINARY, BINARY2 or FITS: their cells, read and written.
- `_tabledata`: The rows of TABLEDATA: read a piece at a time by astropy's parser of XML, and written.
"""

__all__ = ["table"]
