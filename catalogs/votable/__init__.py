"""VOTables in every serialisation: read, annotated and written.

- `table`: VOTable: any serialisation in, BINARY2 out (TABLEDATA where a field is one bit, which STILTS
  reads there only).

For this folder alone:

- `_binary`: The rows of BINARY and BINARY2: fields as they are stored, whole columns at once, from and to arrays.
- `_document`: The document of a VOTable: parsed without the rows of its tables, changed, and given back its own
  elements.
- `_rows`: The rows of a VOTable's table, which stay in the file and are read a piece at a time.
- `_tabledata`: The rows of TABLEDATA: read a piece at a time by astropy's parser of XML, and written.
- `_write`: How a VOTable is written: the document by astropy, the rows of its tables by us, some thousands
  at a time.
"""

__all__ = ["table"]
