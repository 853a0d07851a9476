"""Annotated copies: where they go, in which format, and how they are written."""
