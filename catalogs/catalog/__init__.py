"""What a catalogue is, whatever its format: columns, partitions, batches, and new columns."""
