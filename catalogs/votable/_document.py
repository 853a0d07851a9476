"""The document of a VOTable: parsed without the rows of its tables, changed, and given back its own elements.

The rows stay in the file; their places are known.  Changes remove columns, add columns and write provenance.  What
astropy would write in another form is put back as the document had it.
"""

from __future__ import annotations

import math
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from xml.parsers import expat
from xml.sax.saxutils import escape, quoteattr

from astropy.io.votable.tree import Field, FieldRef, Group, Info, Resource, TableElement, VOTableFile
from astropy.utils.xml.check import fix_id

from catalogs.catalog.catalog import Annotation, provenance_entries
from catalogs.catalog.new_columns import OWN, NewColumn, Provenance
from catalogs.errors import DamagedFileError, FormatError
from catalogs.files import reading
from catalogs.metadata.votable_fields import field_type

# The document of a VOTable without the rows of its tables, and where in the file these are.  One pass of expat over
# the whole file, a piece at a time; astropy is given the elements as its own parser would give them, but tables
# without rows.  What points out of the file, or makes text grow within it, is refused.

BLOCK_BYTES = 1 << 18
MOST_BESIDE_ROWS = 1 << 26
"""Bytes of a document without its rows: astropy needs many times as much."""
MOST_ELEMENTS = 50_000
"""Elements of a document beside those of rows: each takes astropy a tenth of a millisecond."""
LONGEST_ROW = 1 << 26
"""Bytes beyond which a row is not believed."""
LARGEST_CELL = LONGEST_ROW // 8
"""Values in a cell of one size."""

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
        """Yield the prolog and the element without its closing tag, in blocks of some `size` bytes."""
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
        self.parser.Parse(b"", True)  # noqa: FBT003 -- expat takes no keyword
        yield from self.queue

    def feed(self, block: bytes) -> None:
        """Take the next bytes of the file."""
        if self.head is not None:
            self.head += block
        # What may be another character, in whatever encoding or by its number, counts as one.
        plain = block.isascii() and b"\0" not in block and b"&#" not in block and not block.endswith(b"&")
        self.ascii = self.ascii and plain
        self.fed += len(block)
        self.parser.Parse(block, False)  # noqa: FBT003 -- expat takes no keyword
        beside = (self.fed if self.started is None else self.started) - self.inside
        if beside > MOST_BESIDE_ROWS:
            raise self.too_large(f"{MOST_BESIDE_ROWS >> 20} MB of text")
        if self.started is not None and self.element == "TABLEDATA" and self.fed - self.row_at > LONGEST_ROW:
            raise DamagedFileError(
                f"{self.path} is damaged: what follows row {self.n_rows} of a table has more than {LONGEST_ROW >> 20} "
                "MB, expected it to end before; fetch the file again"
            )

    def too_large(self, most: str) -> FormatError:
        return FormatError(
            f"{self.path} has more than {most} beside the rows of its tables, expected less; convert its table to "
            "Parquet or FITS first (topcat and stilts do)"
        )

    def entity(self, name: str, *_: object) -> None:
        """Refuse entities that a document declares itself, or never does."""
        raise FormatError(
            f"{self.path} uses the entity '{name}', expected only the predefined entities of XML; write the "
            "text instead of the entity"
        )

    def outside_data(self) -> None:
        """Let every element be followed, as outside of TABLEDATA and STREAM."""
        self.parser.StartElementHandler = self.start
        self.parser.EndElementHandler = self.end
        self.parser.CharacterDataHandler = self.text.append

    def put(self, begins: bool, tag: str, content: object) -> None:  # noqa: FBT001
        """Put an event in the queue for astropy, to which all tables are TABLEDATA without rows."""
        position = (self.parser.CurrentLineNumber, self.parser.CurrentColumnNumber)
        if tag != "STREAM":
            self.queue.append((begins, "TABLEDATA" if tag in BINARIES else tag, content, position))

    def start(self, tag: str, attributes: dict[str, str]) -> None:
        if self.head is not None:
            self.prolog, self.head = self.head[: self.parser.CurrentByteIndex], None
        name = without_prefix(tag)
        self.n_elements += 1
        if self.n_elements > MOST_ELEMENTS:
            raise self.too_large(f"{MOST_ELEMENTS:,} elements")
        self.text.clear()
        if not self.root and name != "VOTABLE":
            raise FormatError(
                f"{self.path} is not a VOTable: its outermost element is <{name[:80]}>, expected <VOTABLE>; open it in "
                "an editor: it may be a server's message that explains why there is no table"
            )
        self.root = self.root or name
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

    def check_source(self, name: str, attributes: dict[str, str]) -> None:
        """Refuse data at an address, which is not fetched, or in a serialisation that is not read."""
        encoding, found = attributes.get("encoding", "base64"), ""
        if name in {"STREAM", "FITS", "PARQUET"} and "href" in attributes:
            found = "in another file or address"
        elif name == "STREAM" and (encoding != "base64" or self.serialisation not in BINARIES):
            found = f"as {self.serialisation} in {encoding}"
        elif name == "FITS" and attributes.get("extnum", "1") != "1":
            found = f"in extension {attributes['extnum']} of a FITS file"
        if found:
            raise FormatError(
                f"{self.path} has its data {found}; expected TABLEDATA, or BINARY, BINARY2 or the first table of FITS "
                "in base64, inside the document: convert it (topcat and stilts do)"
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
        if name == "FIELD" and math.prod(map(int, re.findall(r"\d+", arraysize))) > LARGEST_CELL:
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
        elif name == "TR":  # all have as many cells as the first
            self.row_at, self.n_rows = self.parser.CurrentByteIndex, self.n_rows + 1
            self.width = self.n_cells if self.n_rows == 1 else self.width
            if self.n_cells != self.n_rows * self.width:
                raise DamagedFileError(
                    f"{self.path} is damaged: row {self.n_rows} has {self.n_cells - (self.n_rows - 1) * self.width} "
                    f"cells; expected {self.width}, as many as the first: fetch it again"
                )
        elif name == self.element and self.started is not None:
            begin, end = self.started, self.parser.CurrentByteIndex
            rest = (self.prolog, begin, end, self.n_rows, self.width, self.ascii)
            self.data_elements.append(Data(self.path, self.serialisation, *rest))
            self.inside += end - begin
            self.started = None
            self.outside_data()
            self.end(tag)

    def end(self, tag: str) -> None:
        """End an element; behind DATA, astropy gets an INFO with the number of the data."""
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


# Elements of a VOTable as its document has them, put back into the copy that astropy writes.  Astropy reads the value
# of a PARAM by its type and refuses those that it does not know, as the arrays of texts that STILTS makes of HISTORY
# cards.  It spells units and numbers anew, and breaks the lines of descriptions within words.  So it is given marks
# in their place, and the originals go where the marks are written.

ORIGINAL_MARK = "blr: as it was "
ELEMENT = re.compile(
    rb'<(FIELD|PARAM)\b(?=[^<>]* utype="blr: as it was (\d+)")[^<>]*?(?:/>|(?<!/)>.*?</\1>)', re.DOTALL
)
TEXT = re.compile(rb"(?<=<DESCRIPTION>)\s*blr: as it was (\d+)\s*(?=</DESCRIPTION>)")
UNIT = re.compile(rb'(?<= unit=)"blr: as it was (\d+)"')

LINE_ENDS = {"\n": "&#10;", "\r": "&#13;", "\t": "&#9;"}


class Originals:
    """Follows a document and keeps its FIELDs, its PARAMs, and other elements' descriptions and units."""

    def __init__(self) -> None:
        self.elements: list[tuple[str, Mapping[str, str], list[str]]] = []  # name, attributes, XML inside
        self.texts: list[str] = []
        self.depth = 0
        self.is_leaf = False

    def start(self, name: str, attributes: dict[str, str]) -> dict[str, str] | None:
        """Begin an element; return the attributes that astropy gets, None where it does not get the element."""
        self.is_leaf = True
        if self.depth:
            self.depth += 1
            self.elements[-1][2].append(f"<{name}{attributes_xml(attributes)}>")
            return attributes if self.elements[-1][0] == "FIELD" else None
        if name not in {"FIELD", "PARAM"}:
            unit = attributes.get("unit")
            return attributes if unit is None else {**attributes, "unit": self.mark(unit)}
        self.depth = 1
        mark = f"{ORIGINAL_MARK}{len(self.elements)}"
        self.elements.append((name, attributes, []))
        if name == "FIELD":
            return {**attributes, "utype": mark}
        known = {key: value for key, value in attributes.items() if key in {"ID", "name"}}
        return {"name": "", **known, "datatype": "unicodeChar", "arraysize": "*", "value": "", "utype": mark}

    def end(self, name: str, text: str) -> str | None:
        """End an element that has the text; return the text for astropy, None where it does not get the element."""
        was_leaf, self.is_leaf = self.is_leaf, False
        if not self.depth:
            return self.mark(text) if name == "DESCRIPTION" else text
        self.depth -= 1
        if not self.depth:
            return text
        outer, _, inside = self.elements[-1]
        if was_leaf and not text.strip():
            inside[-1] = f"{inside[-1].removesuffix('>')}/>"
        else:
            inside.append(f"{escape(text) if was_leaf else ''}</{name}>")
        return text if outer == "FIELD" else None

    def mark(self, text: str) -> str:
        """Keep a text; return what astropy gets in its place."""
        self.texts.append(text)
        return f"{ORIGINAL_MARK}{len(self.texts) - 1}"

    def restored(self, document: bytes, file: VOTableFile) -> bytes:
        """Return a document that astropy wrote of the file, with the originals where their marks are.

        Types and sizes of fields are the file's: they describe the rows that are written.
        """
        types = {f.utype: f for f in file.iter_fields_and_params()}

        def element(match: re.Match[bytes]) -> bytes:
            name, attributes, inside = self.elements[int(match[2])]
            if name == "FIELD":
                now = types[f"{ORIGINAL_MARK}{match[2].decode()}"]
                attributes = {**attributes, "datatype": str(now.datatype)}
                attributes |= {"arraysize": str(now.arraysize)} if now.arraysize else {}
            tag = name + attributes_xml(attributes)
            return (f"<{tag}>{''.join(inside)}</{name}>" if inside else f"<{tag}/>").encode()

        def text(match: re.Match[bytes]) -> bytes:
            return escape(self.texts[int(match[1])]).encode()

        def unit(match: re.Match[bytes]) -> bytes:
            return quoteattr(self.texts[int(match[1])], LINE_ENDS).encode()

        return UNIT.sub(unit, TEXT.sub(text, ELEMENT.sub(element, document)))


def attributes_xml(attributes: Mapping[str, str]) -> str:
    """Return attributes as XML, without those of other namespaces, whose prefixes the copy does not know."""
    own = {key: value for key, value in attributes.items() if ":" not in key and key != "xmlns"}
    return "".join(f" {key}={quoteattr(value, LINE_ENDS)}" for key, value in own.items())


# Changes to a parsed VOTable without its rows: remove columns, add columns, write provenance.


def column_names(table: TableElement) -> list[str]:
    """Return the names of the fields, or their IDs."""
    return [f.name or f.ID for f in table.fields]


def check_own_fields(path: Path, file: VOTableFile, table: TableElement) -> None:
    """Refuse a table that shares its fields with another one: they cannot part within one document."""
    if sum(t.fields is table.fields for t in file.iter_tables()) > 1:
        raise FormatError(
            f"{path} has several tables with the same fields (by ref), which cannot be changed for one table "
            "alone; save this table to a file of its own first"
        )


def own_infos(table: TableElement) -> dict[str, str]:
    return {i.name: str(i.value) for i in table.infos if i.name and i.name.startswith(OWN)}


def replace_provenance(table: TableElement, provenance: Provenance, dropped: Sequence[str]) -> None:
    """Put the new provenance, and what is left of earlier ones, in the place of the old."""
    pairs = provenance_entries(own_infos(table), provenance, dropped)
    table.infos[:] = [i for i in table.infos if not (i.name and i.name.startswith(OWN))]
    table.infos.extend(Info(name=key, value=value) for key, value in pairs.items())


def drop_columns(table: TableElement, annotation: Annotation) -> tuple[list[int], list[str]]:
    """Take the fields out that do not stay; return the numbers of those that do, and the names of the others."""
    names = column_names(table)
    stay = [i for i, name in enumerate(names) if annotation.stays(name)]
    if len(stay) < len(names):
        gone = {field.ID for i, field in enumerate(table.fields) if i not in stay}
        table.fields[:] = [table.fields[i] for i in stay]
        table.groups[:] = [group for group in table.groups if not refers(group, gone)]
    return stay, [name for name in names if not annotation.stays(name)]


def refers(group: Group, fields: Collection[str]) -> bool:
    """Say whether a group, or one inside it, refers to a field of these IDs."""
    refs = (entry.ref for entry in group.entries if isinstance(entry, FieldRef))
    inside = (entry for entry in group.entries if isinstance(entry, Group))
    return any(ref in fields for ref in refs) or any(refers(entry, fields) for entry in inside)


def add_columns(file: VOTableFile, table: TableElement, columns: Sequence[NewColumn]) -> None:
    taken = {f.ID for f in table.fields}
    for column in columns:
        kind, size = field_type(column.datatype)
        identifier = fix_id(column.name)
        while identifier in taken:
            identifier += "_"
        taken.add(identifier)
        about = {"datatype": kind, "arraysize": size or None, "unit": column.unit, "ucd": column.ucd}
        field = Field(file, ID=identifier, name=column.name, **about)
        field.description = column.description
        table.fields.append(field)


def resources_of(file: VOTableFile) -> list[Resource]:
    resources = list(file.resources)
    for resource in resources:  # which grows by those inside others
        resources.extend(resource.resources)
    return resources


def says_more(file: VOTableFile) -> list[str]:
    """Return in words what a file holds beside the rows of one table: one text, or none where there is nothing."""
    tables = list(file.iter_tables())
    places = [file, *resources_of(file), *tables]
    kinds = {"params": "parameters", "groups": "groups", "coordinate_systems": "coordinates"}
    kinds |= {"time_systems": "time systems", "links": "links"}
    more = [word for name, word in kinds.items() if any(len(getattr(place, name, ())) for place in places)]
    if any(not (i.name and i.name.startswith(OWN)) for place in places for i in place.infos):
        more.append("INFO elements")
    if any(place.description for place in places):
        more.append("descriptions")
    named = ["other tables", *more] if len(tables) > 1 else more
    return [", ".join(named)] if named else []
