"""Positions, neighbours and photometry of objects on the sky."""
