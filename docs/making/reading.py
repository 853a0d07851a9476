"""Sentences of the pages: how many words they have, so that each page can be read at first sight.

python docs/making/reading.py          # fails where a page's sentences have 30 words or more on average
python docs/making/reading.py --all    # the table of all pages, and the longest sentences
"""

from __future__ import annotations

__all__ = ["main", "prose", "sentences"]

import json
import re
import sys
from collections.abc import Iterator
from pathlib import Path

from links import DOCS, ROOT
from markdown_it import MarkdownIt
from markdown_it.token import Token

LONGEST_MEAN = 30
"""Words of a sentence, on average over a page, from which the page fails."""

_SENTENCE_END = re.compile(r"(?<=[.!?])[\")]?\s+(?=[A-Z`\"(])")
_NO_END = re.compile(r"\b(e\.g|i\.e|cf|et al|Fig|Eq|vs|Dr|No)\.$")


def pages() -> list[Path]:
    """Return the pages and notebooks that people wrote."""
    written = [p for p in DOCS.rglob("*.md") if "_generated" not in p.parts and "_build" not in p.parts]
    return sorted(
        [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *written, *(DOCS / "notebooks").glob("*.ipynb")]
    )


def text_of(page: Path) -> str:
    """Return the Markdown of a page, or of a notebook's cells of text."""
    text = page.read_text(encoding="utf-8")
    if page.suffix != ".ipynb":
        return text
    cells = json.loads(text)["cells"]
    return "\n\n".join("".join(c["source"]) for c in cells if c["cell_type"] == "markdown")


def prose(markdown: str) -> Iterator[str]:
    """Yield paragraphs and items of lists; code, tables and headings are not read as sentences."""
    inside = 0
    for token in MarkdownIt("commonmark").enable("table").parse(markdown):
        inside += token.nesting if token.type.startswith(("table", "heading")) else 0
        if token.type == "inline" and not inside:
            yield " ".join("".join(map(_words, token.children or ())).split())


def _words(token: Token) -> str:
    if token.type == "code_inline":
        return f"`{token.content}`"
    return token.content if token.type == "text" else " " if token.type.endswith("break") else ""


def sentences(markdown: str) -> list[str]:
    """Return the sentences of a page's prose that have three words or more."""
    found: list[str] = []
    for paragraph in prose(markdown):
        whole = ""
        for piece in _SENTENCE_END.split(paragraph):
            whole = f"{whole} {piece}".strip()
            if not _NO_END.search(whole):
                found.append(whole)
                whole = ""
        found += [whole] if whole else []
    return [sentence for sentence in found if len(sentence.split()) >= 3]


def main(arguments: list[str]) -> int:
    """Print pages that are too hard to read, or all; return 1 if there are any."""
    failed = False
    for page in pages():
        lengths = {sentence: len(sentence.split()) for sentence in sentences(text_of(page))}
        if not lengths:
            continue
        mean = sum(lengths.values()) / len(lengths)
        failed |= mean >= LONGEST_MEAN
        if mean >= LONGEST_MEAN or "--all" in arguments:
            long = sum(n >= LONGEST_MEAN for n in lengths.values())
            name = page.relative_to(ROOT)
            print(
                f"{mean:5.1f} words a sentence, {long:3} of {len(lengths):4} have {LONGEST_MEAN} or more: {name}"
            )
            if "--all" in arguments:
                longest = max(lengths, key=lambda sentence: lengths[sentence])
                print(f"      longest, {lengths[longest]}: {longest[:160]}")
    if failed:
        print(
            f"expected fewer than {LONGEST_MEAN} words a sentence on each page: break the longest",
            file=sys.stderr,
        )
    return int(failed)


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
