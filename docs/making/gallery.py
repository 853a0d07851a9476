"""The gallery: each script in `docs/gallery` draws one picture, and its docstring says what to see in it."""

from __future__ import annotations

__all__ = ["gallery_files", "pictures"]

import ast
import re
import runpy
from pathlib import Path

from links import DOCS

from flows.plots.axes import svg


def pictures() -> list[Path]:
    """Return the scripts, by name."""
    return sorted((DOCS / "gallery").glob("*.py"))


def gallery_files() -> dict[str, bytes]:
    """Return the name and the content of each picture, and of the page that shows all of them."""
    files = {}
    lines = [
        "# Gallery",
        "",
        "Each picture is drawn by the script below it, when this site is built.",
        "Copy a script and put your own data in: `draw().figure.savefig(...)` then saves the picture.",
    ]
    for script in pictures():
        source = script.read_text(encoding="utf-8")
        title, _, text = (ast.get_docstring(ast.parse(source)) or "").partition("\n\n")
        files[f"{script.stem}.svg"] = _light(svg(runpy.run_path(str(script))["draw"]())).encode()
        lines += [
            "",
            f"## {title.rstrip('.')}",
            "",
            f"![{title}]({script.stem}.svg)",
            "",
            " ".join(text.split()),
            "",
        ]
        lines += ["```python", source.partition('"""\n\n')[2].strip(), "```"]
    files["index.md"] = "\n".join(lines).encode()
    return files


def _light(picture: str) -> str:
    """Return the picture without its own dark colours: a reader may switch the site's theme by hand."""
    return re.sub(r"<style>@media \(prefers-color-scheme:dark\).*?</style>", "", picture, flags=re.DOTALL)
