"""What the values of a catalogue look like: ranges, classes, leaks, identifiers, quality."""
