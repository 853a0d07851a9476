"""What an ASDF file claims to hold, against what a file of its size can: before memory is taken for it.

References to references, arrays of many elements at one place, and compressed blocks can claim terabytes in a few
bytes.  Blocks: https://www.asdf-format.org/projects/asdf-standard/en/latest/file_layout.html
"""

from __future__ import annotations

import math
import mmap
import struct
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from asdf.tags.core import NDArrayType

from flows.models._earlier_versions import Tree

__all__ = ["check_blocks", "check_tree"]

MAGIC = b"\xd3BLK"
END_OF_TREE = b"\n..."
HEADER = struct.Struct(">H4x4sQQQ")
"""Size of the header, flags, compression, bytes kept for the block, bytes used of them, bytes once inflated."""


def check_blocks(path: Path) -> None:
    """Raise ValueError where a block is compressed, which ours never are, or larger than the file."""
    with path.open("rb") as stream, mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ) as content:
        at = content.find(MAGIC, max(content.find(END_OF_TREE), 0))
        while at >= 0 and content[at : at + len(MAGIC)] == MAGIC:
            header = content[at + len(MAGIC) : at + len(MAGIC) + HEADER.size]
            if len(header) < HEADER.size:
                raise ValueError("its last block is not complete")
            header_size, compression, kept, used, inflated = HEADER.unpack(header)
            at += len(MAGIC) + 2 + header_size + kept
            if compression.strip(b"\0"):
                raise ValueError(f"it holds blocks compressed by {compression!r}, which blr does not use")
            if at > len(content) or not inflated == used <= kept:
                raise ValueError(
                    f"a block claims {max(kept, used, inflated):,} bytes, more than the file has"
                )


def check_tree(tree: Tree, size: int) -> None:
    """Raise ValueError where a tree, its arrays not read yet, has more parts than a file of that many bytes can."""
    left = size  # each part, and each element of an array, takes a byte or more
    parts: list[Any] = [tree]
    while parts:
        part = parts.pop()
        if isinstance(part, Mapping):
            parts.extend(part.values())
        elif isinstance(part, list | tuple):
            parts.extend(part)
        elif isinstance(part, NDArrayType):
            left -= math.prod(part.shape)
        left -= 1
        if left < 0:
            raise ValueError(f"it claims to hold more data than its {size:,} bytes can contain")
