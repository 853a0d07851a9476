"""Links of pages that leave the folder `docs`: to a copy of that page on the site, or to the file in the repository."""

from __future__ import annotations

__all__ = ["COPIED", "DOCS", "GENERATED", "ROOT", "adapt_links"]

import os
import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"
GENERATED = DOCS / "_generated"
REPOSITORY = "https://github.com/galaxyblr/galaxyblr"

COPIED = {
    ROOT / name: GENERATED / "project" / f"{Path(name).stem.lower().replace('_', '-')}.md"
    for name in (
        "CHANGELOG.md",
        "CODE_OF_CONDUCT.md",
        "CONTRIBUTING.md",
        "README.md",
        "SECURITY.md",
        *(f"benchmarks/{name}.md" for name in ("AUDIT", "CENSUS", "LABELS", "RESULTS", "REVIEW", "SETS")),
    )
}
"""Pages outside `docs` that the site shows, and where their copies lie."""

SHOWN = {
    DOCS / "gallery": GENERATED / "gallery" / "index.md",
    ROOT / "flows" / "cli": GENERATED / "command-line.md",
    ROOT / "flows" / "specification": GENERATED / "specification-keys.md",
    ROOT / "blr": GENERATED / "api" / "index.rst",
}
"""Folders of code, and the page of the site that is written from each."""

_LINK = re.compile(r"(?<!`)(\]\()([^)\s#:]+)(#[^)\s]*)?(\))")


def adapt_links(text: str, *, page: Path, origin: Path | None = None) -> str:
    """Return a page's Markdown with links that work on the site.

    `page` is where the text lies; `origin`, where it was written, if that is elsewhere.  A link to a file that is not
    there stays as it is, so that the build fails.
    """
    home = (origin or page).parent

    def adapted(match: re.Match[str]) -> str:
        opening, path, anchor, closing = match.groups()
        target = Path(os.path.normpath(home / path))
        if not target.exists():
            return match.group()
        if target in COPIED or target in SHOWN:
            target = {**COPIED, **SHOWN}[target]
        elif DOCS not in target.parents or target.is_dir() or target.suffix in {".py", ".yaml"}:
            kind = "tree" if target.is_dir() else "blob"
            return f"{opening}{REPOSITORY}/{kind}/main/{target.relative_to(ROOT)}{anchor or ''}{closing}"
        return f"{opening}{os.path.relpath(target, page.parent)}{anchor or ''}{closing}"

    return _LINK.sub(adapted, text)
