"""Annotated copies: where they go, in which format, and how they are written.

- `annotate`: Annotated copies: where they go, in which format, and how they are written.
"""

__all__ = ["annotate"]
