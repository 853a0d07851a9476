"""Marks as SVG elements: texts, lines, circles and images at points of a picture."""

from __future__ import annotations

import struct
import zlib
from html import escape
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from flows.plots.style import INK, shortened

__all__ = ["Floats", "circles", "path", "png", "text_mark", "text_width"]

Floats = NDArray[np.float64]


def text_width(text: str) -> float:
    """Return about how wide a text of 12 points is; browsers have different fonts."""
    return 12 * sum(0.75 if c.isupper() or c in "%@_" else 0.6 for c in shortened(text))


def text_mark(
    x: float,
    y: float,
    text: str,
    *,
    size: float = 12,
    colour: str = INK,
    anchor: str = "start",
    turn: float = 0,
) -> str:
    """Return a text whose middle is at the height `y`."""
    plain = escape("".join(c if c.isprintable() else " " for c in shortened(text)))
    turned = f' transform="rotate({turn:g} {x:.1f} {y:.1f})"' if turn else ""
    place = f'x="{x:.1f}" y="{y + 0.36 * size:.1f}" font-size="{size:g}" text-anchor="{anchor}"'
    return f'<text {place} fill="{colour}"{turned}>{plain}</text>' if plain else ""


def path(u: Floats, v: Floats) -> str:
    """Return the path through points; it is broken where one is missing."""
    known = np.isfinite(u) & np.isfinite(v)
    begun = [True, *(not before for before, _ in pairwise(known.tolist()))] if len(known) else []
    return "".join(
        f"{'M' if new else 'L'}{a:.1f} {b:.1f}"
        for a, b, new, there in zip(u.tolist(), v.tolist(), begun, known.tolist(), strict=True)
        if there
    )


def circles(u: Floats, v: Floats, size: float, colour: str, face: str, alpha: float) -> str:
    """Return circles at points; full ones are lines without length, which take the least text."""
    known = np.isfinite(u) & np.isfinite(v)
    points = zip(u[known].tolist(), v[known].tolist(), strict=True)
    if face == colour:
        dots = "".join(f"M{a:.1f} {b:.1f}h0" for a, b in points)
        pen = f'stroke-width="{1.3 * size:g}" stroke-linecap="round" stroke-opacity="{alpha:g}"'
        return f'<path d="{dots}" stroke="{colour}" {pen}/>'
    pen = f'r="{0.65 * size:g}" fill="{face}" stroke="{colour}" stroke-width="1.4"'
    return "".join(f'<circle cx="{a:.1f}" cy="{b:.1f}" {pen}/>' for a, b in points)


def png(image: NDArray[np.uint8]) -> bytes:
    """Return an image (h, w, 4) as PNG (ISO 15948)."""
    height, width = image.shape[:2]
    rows = np.zeros((height, 1 + 4 * width), np.uint8)  # each begins with the number of its filter: none
    rows[:, 1:] = image.reshape(height, -1)
    chunks = (
        (b"IHDR", struct.pack(">IIBBBBB", width, height, 8, 6, 0, 0, 0)),
        (b"IDAT", zlib.compress(rows.tobytes())),
        (b"IEND", b""),
    )
    return b"\x89PNG\r\n\x1a\n" + b"".join(
        struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
        for kind, data in chunks
    )
