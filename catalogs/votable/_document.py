"""The document of a VOTable without the rows of its tables, and where in the file these are.

One pass of expat over the whole file, a piece at a time; astropy is given the elements as its own parser would give
them, but tables without rows.  What points out of the file, or makes text grow within it, is refused.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from xml.parsers import expat

from astropy.io.votable.tree import TableElement, VOTableFile

from catalogs.errors import DamagedFileError, FormatError
from catalogs.files.compressed import reading
from catalogs.votable._originals import Originals

__all__ = ["LONGEST_ROW", "Data", "parse_document"]

BLOCK_BYTES = 1 << 18
MOST_BESIDE_ROWS = 1 << 26
"""Bytes of a document without its rows: astropy needs many times as much."""
MOST_ELEMENTS = 50_000
"""Elements of a document beside those of rows: each takes astropy a tenth of a millisecond."""
LONGEST_ROW = 1 << 26
"""Bytes beyond which a row is not believed."""
LARGEST_CELL = LONGEST_ROW // 8
"""Values in a cell of one size."""
LONGEST_TAG = 1 << 24
"""Bytes of a tag or a comment: expat begins anew with each piece of one, which takes time as the square of them."""

ENCODINGS = {"UTF-8", "UTF-16", "UTF-16LE", "UTF-16BE", "ISO-8859-1", "US-ASCII"}
"""Those that every XML parser knows, astropy's among them."""

CONFIG = {"invalid": "exception", "verify": "ignore", "datatype_mapping": {}}
MARK = "blr: rows"
"""The name of an INFO that tells which table has which rows; it is given to astropy only, and taken away again."""

BINARIES = {"BINARY", "BINARY2", "FITS"}
"""Those that are base64 in a STREAM."""

Event = tuple[bool, str, Any, tuple[int, int]]
"""The beginning of an element with its attributes, or its end with its text; line and column."""


@dataclass(frozen=True)
class Data:
    """Where the rows of a table are in the inflated file: in the TABLEDATA or STREAM that begins at `start`.

    `end` is where its closing tag begins, and `prolog` what stands in front of the root element: together they are a
    document of their own, but for that tag.  TABLEDATA has `n_rows` of `width` cells each; where `ascii` is true,
    there are no other characters.
    """

    path: Path
    serialisation: str
    prolog: bytes
    start: int
    end: int
    n_rows: int
    width: int
    ascii: bool

    def blocks(self, size: int) -> Iterator[bytes]:
        """Yield the prolog with the element, without its closing tag; all but the last of at least so many bytes."""
        prolog, left = self.prolog, self.end - self.start
        with reading(self.path) as stream:
            stream.seek(self.start)
            while left and (block := stream.read(min(left, size))):
                left -= len(block)
                yield prolog + block
                prolog = b""


def parse_document(path: Path) -> tuple[VOTableFile, dict[TableElement, Data], Originals]:
    """Return a document whose tables have no rows, where these are, and what goes into a copy as it was.

    FormatError for what is no VOTable.
    """
    outline = Outline(path)
    file = VOTableFile(config=dict(CONFIG), pos=(1, 1)).parse(outline.events(), dict(CONFIG))
    data: dict[TableElement, Data] = {}
    for table in file.iter_tables():
        for info in [i for i in table.infos if i.name == MARK]:
            data.setdefault(table, outline.data_elements[int(info.value)])
            table.infos.remove(info)
    return file, data, outline.originals


class Outline:
    """Follows the elements of a document; `data_elements` are the data that were met so far."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.data_elements: list[Data] = []
        self.originals = Originals()
        self.root = ""
        self.queue: list[Event] = []
        self.text: list[str] = []
        self.head: bytes | None = b""
        self.prolog = b""
        self.serialisation = self.element = ""
        self.marked = 0
        self.fed = self.inside = self.n_elements = 0
        self.started: int | None = None
        self.row_at = self.n_rows = self.n_cells = self.width = 0
        self.ascii = True
        self.parser = expat.ParserCreate()
        self.parser.buffer_text = True
        self.parser.XmlDeclHandler = self.declared
        self.parser.EntityDeclHandler = self.entity
        self.parser.SkippedEntityHandler = self.entity
        self.outside_data()

    def events(self) -> Iterator[Event]:
        """Yield the elements, those in TABLEDATA and the text of STREAM left out."""
        with reading(self.path) as stream:
            while block := stream.read(BLOCK_BYTES):
                self.feed(block)
                yield from self.queue
                self.queue.clear()
        try:
            self.parser.Parse(b"", True)  # noqa: FBT003 -- expat takes no keyword
        except expat.ExpatError as error:
            raise DamagedFileError(
                f"{self.path} is damaged: it ends after {self.fed} bytes, before its last element is closed "
                f"({error}); expected a whole VOTable: fetch it again"
            ) from error
        yield from self.queue

    def feed(self, block: bytes) -> None:
        """Take the next bytes of the file."""
        if self.head is not None:
            self.head += block
        self.ascii = self.ascii and is_ascii(block)
        self.fed += len(block)
        try:
            self.parser.Parse(block, False)  # noqa: FBT003 -- expat takes no keyword
        except expat.ExpatError as error:
            if self.root:
                raise
            raise FormatError(
                f"{self.path} is not a VOTable: it begins with {block[:40]!r}, which is not XML ({error}); "
                "run `file` on it to see what it is, and correct its name"
            ) from error
        if self.fed - self.parser.CurrentByteIndex > LONGEST_TAG:
            raise self.endless("a tag or a comment", LONGEST_TAG)
        beside = (self.fed if self.started is None else self.started) - self.inside
        if beside > MOST_BESIDE_ROWS:
            raise FormatError(
                f"{self.path} holds more than {MOST_BESIDE_ROWS >> 20} MB of text outside of the rows of its tables, "
                "which is the limit; convert its table to Parquet or FITS first (topcat and stilts do)"
            )
        if self.started is not None and self.element == "TABLEDATA" and self.fed - self.row_at > LONGEST_ROW:
            raise self.endless(f"what follows row {self.n_rows} of a table", LONGEST_ROW)

    def endless(self, what: str, most: int) -> DamagedFileError:
        """Return the error for an element that does not end."""
        return DamagedFileError(
            f"{self.path} is damaged: {what} has more than {most >> 20} MB, expected it to end before; fetch "
            "the file again"
        )

    def declared(self, _version: str, encoding: str | None, _standalone: int) -> None:
        """Refuse an encoding that not every parser knows."""
        if encoding is not None and encoding.upper() not in ENCODINGS:
            raise FormatError(
                f"{self.path} is in the encoding {encoding}; expected one of {', '.join(sorted(ENCODINGS))}: "
                "convert it (iconv does)"
            )

    def entity(self, name: str, *_: object) -> None:
        """Refuse entities that a document declares itself, or never does."""
        raise FormatError(
            f"{self.path} uses the entity '{name}', expected only the predefined entities of XML; write the "
            "text instead of the entity"
        )

    def outside_data(self) -> None:
        """Follow every element."""
        self.parser.StartElementHandler = self.start
        self.parser.EndElementHandler = self.end
        self.parser.CharacterDataHandler = self.text.append

    def put(self, begins: bool, tag: str, content: object) -> None:  # noqa: FBT001
        """Put an event in the queue; to astropy all tables are TABLEDATA without rows."""
        position = (self.parser.CurrentLineNumber, self.parser.CurrentColumnNumber)
        if tag != "STREAM":
            self.queue.append((begins, "TABLEDATA" if tag in BINARIES else tag, content, position))

    def start(self, tag: str, attributes: dict[str, str]) -> None:
        """Begin an element."""
        if self.head is not None:
            self.prolog, self.head = self.head[: self.parser.CurrentByteIndex], None
        name = without_prefix(tag)
        self.n_elements += 1
        if self.n_elements > MOST_ELEMENTS:
            raise FormatError(
                f"{self.path} has more than {MOST_ELEMENTS:,} elements beside its rows, the last a {name[:80]}, "
                "expected fewer; convert its table to Parquet or FITS first (topcat and stilts do)"
            )
        self.text.clear()
        self.check_root(name)
        self.check_source(name, attributes)
        self.check_size(name, attributes)
        if name == "TABLE" and "nrows" in attributes:
            attributes["nrows"] = "0"  # rows are counted, and astropy would make room for as many
        shown = self.originals.start(name, attributes)
        if shown is not None:
            self.put(True, name, shown)  # noqa: FBT003
        if name == "DATA":
            self.serialisation, self.marked = "", len(self.data_elements)
        elif name in {*BINARIES, "TABLEDATA", "PARQUET"}:
            self.serialisation = name
        if name in {"TABLEDATA", "STREAM"}:
            self.element, self.n_rows, self.n_cells, self.width = name, 0, 0, 0
            self.started = self.row_at = self.parser.CurrentByteIndex
            self.parser.StartElementHandler = self.parser.CharacterDataHandler = None
            self.parser.EndElementHandler = self.end_in_data

    def check_root(self, name: str) -> None:
        """Refuse a document of another kind, by its outermost element."""
        if not self.root and name != "VOTABLE":
            kind = "a web page (HTML)" if name.lower() == "html" else "XML of another kind"
            raise FormatError(
                f"{self.path} is {kind} and not a VOTable: its outermost element is <{name[:80]}>, expected "
                "<VOTABLE>; open it in an editor: it may be a server's message that explains why there is no table"
            )
        self.root = self.root or name

    def check_source(self, name: str, attributes: dict[str, str]) -> None:
        """Refuse data that are not in the document, or are no rows there: addresses in a document are not fetched."""
        if name in {"STREAM", "FITS", "PARQUET"} and "href" in attributes:
            raise FormatError(
                f"{self.path} refers to another file or address for its data, expected the data inside; save "
                "the table with its data"
            )
        encoding = attributes.get("encoding", "base64")
        if name == "STREAM" and (encoding != "base64" or self.serialisation not in BINARIES):
            raise FormatError(
                f"{self.path} holds its data as {self.serialisation} in {encoding}; expected TABLEDATA, or BINARY, "
                "BINARY2 or FITS in base64: convert it (topcat and stilts do)"
            )
        if attributes.get("extnum", "1") != "1" and name == "FITS":
            raise FormatError(
                f"{self.path} has its data in extension {attributes['extnum']} of a FITS file, expected the first; "
                "convert it (topcat and stilts do)"
            )

    def check_size(self, name: str, attributes: Mapping[str, str]) -> None:
        """Refuse arrays of texts, and cells of impossible size, for which astropy would reserve memory."""
        arraysize = attributes.get("arraysize", "")
        if name == "FIELD" and "x" in arraysize and attributes.get("datatype") in {"char", "unicodeChar"}:
            raise FormatError(
                f"{self.path} has the field '{attributes.get('name', '')}' of arrays of texts (arraysize "
                f"{arraysize}), expected one text in each row; leave it out, or convert the table to FITS "
                "(topcat and stilts do)"
            )
        sizes = [int(n) for n in re.findall(r"\d+", arraysize)]
        if name == "FIELD" and math.prod(sizes) > LARGEST_CELL:
            raise FormatError(
                f"{self.path} has a {name} with arraysize {arraysize!r}, expected at most {LARGEST_CELL:,}; correct it"
            )

    def end_in_data(self, tag: str) -> None:
        """End an element in TABLEDATA or STREAM, or these themselves."""
        if tag == "TD":  # as nearly all are
            self.n_cells += 1
            return
        name = without_prefix(tag)
        if name == "TD":
            self.n_cells += 1
        elif name == "TR":
            self.end_row()
        elif name == self.element and self.started is not None:
            begin, end = self.started, self.parser.CurrentByteIndex
            rest = (self.prolog, begin, end, self.n_rows, self.width, self.ascii)
            self.data_elements.append(Data(self.path, self.serialisation, *rest))
            self.inside += end - begin
            self.started = None
            self.outside_data()
            self.end(tag)

    def end_row(self) -> None:
        """End a row of TABLEDATA; all have as many cells as the first."""
        self.row_at, self.n_rows = self.parser.CurrentByteIndex, self.n_rows + 1
        if self.n_rows == 1:
            self.width = self.n_cells
        if self.n_cells != self.n_rows * self.width:
            n_found = self.n_cells - (self.n_rows - 1) * self.width
            raise DamagedFileError(
                f"{self.path} is damaged: row {self.n_rows} has {n_found} cells; expected {self.width}, as many as "
                "the first: fetch it again"
            )

    def end(self, tag: str) -> None:
        """End an element; behind that of DATA comes the mark that says which they are."""
        name = without_prefix(tag)
        shown = self.originals.end(name, "".join(self.text))
        if shown is not None:
            self.put(False, name, shown.strip())  # noqa: FBT003
        if name == "DATA" and self.marked < len(self.data_elements):
            self.put(True, "INFO", {"name": MARK, "value": str(self.marked)})  # noqa: FBT003
            self.put(False, "INFO", "")  # noqa: FBT003
            self.marked = len(self.data_elements)


def without_prefix(tag: str) -> str:
    """Return the name of an element without its namespace, as astropy does."""
    return tag.partition(":")[2] or tag


def is_ascii(block: bytes) -> bool:
    """Say whether part of a document surely has no other characters: in whatever encoding, or by number."""
    return block.isascii() and b"\0" not in block and b"&#" not in block and not block.endswith(b"&")
