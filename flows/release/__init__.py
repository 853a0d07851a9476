"""Releases: drafted, checked, signed, published, rolled back, patched; a folder each, and no other store of state."""
