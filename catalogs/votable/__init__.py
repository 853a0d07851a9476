"""VOTables in every serialisation: read, annotated and written.

- `table`: VOTable: any serialisation in, BINARY2 out (TABLEDATA where a field is one bit, which STILTS
  reads there only).

For this folder alone:

- `_base64_stream`: The base64 of a VOTable's BINARY and BINARY2, decoded and encoded a piece at a time,
  whatever the size.
- `_binary`: The rows of BINARY and BINARY2: fields as they are stored, whole columns at once, from and to
  arrays.
- `_changes`: Changes to a parsed VOTable without its rows: remove columns, add columns, write provenance.
- `_columns`: The values of a VOTable's field in some rows, as NumPy and as Arrow: their types are what the
  FIELD says.
- `_document`: The document of a VOTable without the rows of its tables, and where in the file these are.
- `_fits`: The rows of a VOTable that are a FITS binary table inside the document: each as BINARY would have
  it.
- `_originals`: Elements of a VOTable as its document has them, put back into the copy that astropy writes.
- `_rows`: The rows of a VOTable's table, which stay in the file and are read a piece at a time: of BINARY
  and its like.
- `_tabledata`: The rows of TABLEDATA, read a piece at a time by astropy's parser of XML.
- `_text_rows`: Rows as TABLEDATA: the words of cells, whole columns at once, from which `votable_words`
  makes the same values.
- `_words`: What the words in the cells of TABLEDATA mean, whole columns at once.
- `_write`: How a VOTable is written: the document by astropy, the rows of its tables by us, some thousands
  at a time.
"""

__all__ = ["table"]
