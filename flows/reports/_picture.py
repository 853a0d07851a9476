"""A picture of a report: an image, and the words that belong to it."""

from __future__ import annotations

import base64
from dataclasses import dataclass

__all__ = ["Picture", "image_uri"]


@dataclass(frozen=True, kw_only=True)
class Picture:
    """A picture as a data URI, with a text for readers who cannot see it, and a caption."""

    title: str
    image: str
    alt: str
    caption: str
    wide: bool = False


def image_uri(svg: str) -> str:
    """Return an SVG text as a data URI."""
    return f"data:image/svg+xml;base64,{base64.b64encode(svg.encode()).decode('ascii')}"
