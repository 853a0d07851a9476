"""Files on this machine: written whole or not at all, compressed, found by pattern."""
