"""Tables of a report: their columns and rows, and how a terminal shows them."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from typing import Any

from rich.cells import cell_len, set_cell_size
from rich.console import Console, ConsoleOptions, Group, RenderableType, RenderResult
from rich.padding import Padding
from rich.segment import Segment
from rich.style import Style
from rich.text import Text

from catalogs.errors import printable
from flows.documents import word_table


@dataclass(frozen=True, kw_only=True)
class ReportTable:
    """A table of texts; `numeric` columns are set flush right, `marked` is the row to stress.

    Below the table are `remark`, which explains its rows, and `note`, which explains its columns.
    """

    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    numeric: frozenset[int] = frozenset()
    note: str = ""
    remark: str = ""
    marked: int | None = None

    def __post_init__(self) -> None:
        """Raise ValueError where a heading is there twice: in Prefect's tables, a row is a dict by heading."""
        if len(set(self.columns)) < len(self.columns):
            raise ValueError(f"got a table '{self.title}' with headings {self.columns}, expected each once")

    @classmethod
    def of(cls, title: str, columns: str, rows: Iterable[Iterable[str]], **words: Any) -> ReportTable:
        """Return a table; `columns` are its headings between bars, numeric ones after a ">": "class | > objects"."""
        heads = [head.strip() for head in columns.split("|")]
        return cls(
            title=title,
            columns=tuple(head.removeprefix("> ") for head in heads),
            rows=tuple(map(tuple, rows)),
            numeric=frozenset(i for i, head in enumerate(heads) if head.startswith("> ")),
            **words,
        )

    @classmethod
    def of_kind(
        cls, kind: str, rows: Iterable[Iterable[str]], *, remark: str = "", **told: object
    ) -> ReportTable:
        """Return a table of a kind in `tables.toml`, whose title, headings and note have the words in `told`."""
        words = {key: text.format_map(told) for key, text in word_table("tables.toml")[kind].items()}
        return cls.of(words.pop("title"), words.pop("columns"), rows, remark=remark, **words)

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """Yield a table of the terminal's width, or a list where that is too narrow, or the note is all."""
        widths = _widths(self, options.max_width)
        if widths is None or (self.note and not self.rows):
            yield _listed(self)
        else:
            yield from _drawn(self, widths, console, options)


def percent(share: float | None, digits: int = 1) -> str:
    """Return a share as a percentage; a dash for one that is not known."""
    return "–" if share is None or not math.isfinite(share) else f"{share:.{digits}%}".replace("-", "−")


def fixed(value: float | None, digits: int, sign: str = "") -> str:
    """Return a number with so many digits, and with `sign` "+" its sign; a dash for one that is not known."""
    known = value is not None and math.isfinite(value)
    return f"{value:{sign}z,.{digits}f}".replace("-", "−") if known else "–"


def probability(value: float) -> str:
    """Return a probability as text; a tiny one is never shown as zero."""
    return "< 0.001" if value < 0.001 else f"{value:.3f}"


def class_words(name: str) -> str:
    """Return the name of a class for a sentence that has numbers too."""
    return name if any(c.isalpha() for c in name) else f"class {name}"


MOST_NAMED = 6  # classes that a sentence names one by one


def named(classes: Sequence[str]) -> str:
    """Return the names of classes for a sentence, of many the first three and how many there are."""
    if len(classes) <= MOST_NAMED:
        return ", ".join(classes)
    return f"{len(classes)} classes ({', '.join(classes[:3])} and {len(classes) - 3} more)"


# Rich narrows columns of texts first, down to one letter.  Here headings of numbers are broken between words first, and
# texts only after that, since they name the rows; no cell is cut.

BOLD = Style(bold=True)
LEAST_TEXT = 12
"""Smallest width of a column of texts, in cells of the terminal, unless all of its texts are shorter."""
READABLE = 100  # letters in a line of the note below a narrow table, where the terminal has room
LONGEST_WORD = 32  # longest word, such as a file's name, that fits into a column without a break


def _drawn(
    table: ReportTable, widths: list[int], console: Console, options: ConsoleOptions
) -> Iterator[Segment]:
    """Yield a table line by line: Rich's own table takes a millisecond a row."""
    whole = sum(widths) + 2 * len(widths) + 1
    inside = options.update(width=whole, justify="left")
    sides = ["right" if i in table.numeric else "left" for i in range(len(widths))]

    def lines(cells: Sequence[str], style: Style | None, *, low: bool = False) -> Iterator[Segment]:
        wrapped = [
            [text]
            if cell_len(text) <= width
            else [part.plain.strip() for part in Text(text).wrap(console, width, overflow="fold")]
            for text, width in zip(map(printable, cells), widths, strict=True)
        ]
        if low:
            most = max(map(len, wrapped))
            wrapped = [[""] * (most - len(column)) + column for column in wrapped]
        for parts in zip_longest(*wrapped, fillvalue=""):
            padded = (
                " " * (width - cell_len(text)) + text if side == "right" else set_cell_size(text, width)
                for text, width, side in zip(parts, widths, sides, strict=True)
            )
            yield Segment(f" {'  '.join(padded)}  \n", style)

    if table.title:
        title = Text(printable(table.title), style="bold")
        yield from console.render(title, inside.update(width=max(whole, cell_len(table.title))))
    yield Segment(" " * whole + "\n")
    yield from lines(table.columns, BOLD, low=True)
    yield Segment(f" {'─' * (whole - 2)} \n")
    for i, row in enumerate(table.rows):
        yield from lines(row, BOLD if i == table.marked else None)
    yield Segment(" " * whole + "\n")
    if caption := _caption(table):
        wide = options.update(width=max(whole, min(READABLE, options.max_width)))
        yield from console.render(caption, wide)


def _caption(table: ReportTable) -> Text | None:
    lines = [Text(printable(table.remark)), Text(printable(table.note), style="dim")]
    return Text("\n", style="not italic").join(line for line in lines if line) if any(lines) else None


def _widths(table: ReportTable, width: int) -> list[int] | None:
    """Return the columns' widths; None where the table is too wide at the least ones."""
    columns = [[*map(printable, column)] for column in zip(table.columns, *table.rows, strict=True)]
    widths = [max(map(cell_len, column)) for column in columns]
    least = []
    for i, (head, *cells) in enumerate(columns):
        words = " ".join((head, *cells)).split()
        if i in table.numeric:
            least.append(max(map(cell_len, (*head.split(), *cells)), default=1))
        else:
            longest = min(LONGEST_WORD, max(map(cell_len, words), default=1))
            least.append(min(widths[i], max(LEAST_TEXT, longest)))
    room = width - 2 * len(columns) - 1  # two blanks between columns, and one at each end
    for shrinking in (sorted(table.numeric), [i for i in range(len(columns)) if i not in table.numeric]):
        while sum(widths) > room:
            widest = max(shrinking, key=lambda i: widths[i] if widths[i] > least[i] else 0, default=None)
            if widest is None or widths[widest] <= least[widest]:
                break
            widths[widest] -= 1
    return widths if sum(widths) <= room else None


def _listed(table: ReportTable) -> RenderableType:
    """Return the table as a list: a line that names the row, then its other cells, each with its column."""
    n_names = max(1, min(2, *table.numeric)) if table.numeric else 2
    parts: list[RenderableType] = [Text(printable(table.title), style="bold")]
    for i, row in enumerate(table.rows):
        pairs = zip(table.columns, row, strict=True)
        said = [f"{printable(column)} {printable(cell)}".strip() if cell else "" for column, cell in pairs]
        name, rest = ("; ".join(filter(None, part)) for part in (said[:n_names], said[n_names:]))
        chosen = i == table.marked
        parts.append(Text(f"* {name} (selected)" if chosen else f"* {name}", style="bold" if chosen else ""))
        if rest:
            parts.append(Padding(Text(rest), (0, 0, 0, 4), expand=False))
    return Group(*parts, *filter(None, [_caption(table)]), "")
