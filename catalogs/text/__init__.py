"""Text tables: CSV, ECSV, and tables with columns by blanks or by places.

- `ascii`: Blank-separated and fixed-width text tables (CDS, MRT, IPAC, SExtractor): read by astropy, copied as ECSV.
- `ecsv`: ECSV: text tables whose header says types, units and descriptions (astropy's APE 6): read and written as
  streams.
- `sniff`: How a text file lays out its columns: by a separator, by blanks or by places.
- `table`: Text tables, CSV and ECSV: streamed, with types inferred once (CSV) or taken from the header
  (ECSV).

For this folder alone:

- `_records`: Text tables as records: where they begin and end, whether the first holds names, and annotated copies of
  them.
"""

__all__ = ["ascii", "ecsv", "sniff", "table"]
