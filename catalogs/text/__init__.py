"""Text tables: CSV, ECSV, and tables with columns by blanks or by places.

- `ascii`: Blank-separated and fixed-width text tables (CDS, MRT, IPAC, SExtractor): read through astropy,
  copied as ECSV.
- `ascii_layout`: How a text table is laid out whose columns are separated by blanks or by their places: from its
  first lines.
- `ecsv_create`: A new ECSV file from Arrow batches: streamed, atomic, under the header that astropy would
  write.
- `table`: Text tables, CSV and ECSV: streamed, with types inferred once (CSV) or taken from the header
  (ECSV).

For this folder alone:

- `_ascii_read`: Tables laid out by blanks or places, read through astropy's readers into Arrow: whole, so
  up to a stated size.
- `_ecsv`: ECSV: text tables whose header says types, units and descriptions (astropy's APE 6).
- `_names`: Whether the first line of a text table holds names, or is an object like the others.
- `_records`: Text tables as lines: where records begin and end, and how a file is written (its dialect).
- `_sniff`: Whether a file is a text table, and which texts are not: pages, documents, letters of two
  bytes.
- `_types`: The types of a text table's columns: inferred once, from all of its rows, and then fixed.
- `_writer`: Annotated copies of text tables: every record as it was, with its new values behind it.
"""

__all__ = ["ascii", "ascii_layout", "ecsv_create", "table"]
