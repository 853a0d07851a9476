"""Text tables: CSV, ECSV, and tables with columns by blanks or by places.

- `ascii`: Blank-separated and fixed-width text tables (CDS, MRT, IPAC, SExtractor): read by astropy, copied as ECSV.
- `ascii_layout`: How a text table is laid out whose columns are separated by blanks or by their places: from its
  first lines.
- `ecsv`: ECSV: text tables whose header says types, units and descriptions (astropy's APE 6): read and written as
  streams.
- `table`: Text tables, CSV and ECSV: streamed, with types inferred once (CSV) or taken from the header
  (ECSV).

For this folder alone:

- `_records`: Text tables as records: where they begin and end, whether the first holds names, and annotated copies of
  them.
- `_sniff`: What a text table is: whether a file is one, and the types of its columns.
"""

__all__ = ["ascii", "ascii_layout", "ecsv", "table"]
