"""The demonstration: OpenNGC's galaxies classified."""
