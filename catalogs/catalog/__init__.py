"""What a catalogue is, whatever its format: columns, partitions, batches, and new columns.

- `catalog`: What a catalogue is, whatever its format: columns, partitions, batches, and new columns computed in
  order.
- `earlier_columns`: The old columns of an annotated copy: those that are kept, and those of an earlier annotation,
  which go.
- `new_columns`: The columns that an annotated catalogue gains: names, types, UCDs, meanings, and their
  provenance.
"""

__all__ = ["catalog", "earlier_columns", "new_columns"]
