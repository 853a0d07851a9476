"""Pages that are written from the code, each time the site is built: `docs/_generated`, which is never committed."""

from __future__ import annotations

__all__ = ["write_generated"]

from collections.abc import Iterator
from pathlib import Path

from api import api_pages, stub_pages
from command_line import command_line_page
from gallery import gallery_files
from links import COPIED, GENERATED, adapt_links
from specification_keys import specification_page


def write_generated() -> None:
    """Write what has changed, so that Sphinx reads only that again, and remove what there is no longer."""
    wanted = dict(_files())
    for path, content in wanted.items():
        path.parent.mkdir(parents=True, exist_ok=True)
        if not path.exists() or path.read_bytes() != content:
            path.write_bytes(content)
    stubs = {
        GENERATED / "api" / "stubs" / name for name in stub_pages()
    }  # which Sphinx writes, and never removes
    for path in GENERATED.rglob("*"):
        if path.is_file() and path not in wanted and path not in stubs:
            path.unlink()


def _files() -> Iterator[tuple[Path, bytes]]:
    for source, copy in COPIED.items():
        yield copy, adapt_links(source.read_text(encoding="utf-8"), page=copy, origin=source).encode()
    yield GENERATED / "command-line.md", command_line_page().encode()
    yield GENERATED / "specification-keys.md", specification_page().encode()
    for name, text in api_pages().items():
        yield GENERATED / "api" / name, text.encode()
    for name, content in gallery_files().items():
        yield GENERATED / "gallery" / name, content
