"""Elements of a VOTable as its document has them, put back into the copy that astropy writes.

Astropy reads the value of a PARAM by its type and refuses those that it does not know, as the arrays of texts that
STILTS makes of HISTORY cards.  It spells units and numbers anew, and breaks the lines of descriptions within words.
So it is given marks in their place, and the originals go where the marks are written.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from xml.sax.saxutils import escape, quoteattr

from astropy.io.votable.tree import VOTableFile

__all__ = ["Originals"]

MARK = "blr: as it was "
ELEMENT = re.compile(
    rb'<(FIELD|PARAM)\b(?=[^<>]* utype="blr: as it was (\d+)")[^<>]*?(?:/>|(?<!/)>.*?</\1>)', re.DOTALL
)
TEXT = re.compile(rb"(?<=<DESCRIPTION>)\s*blr: as it was (\d+)\s*(?=</DESCRIPTION>)")
UNIT = re.compile(rb'(?<= unit=)"blr: as it was (\d+)"')

LINE_ENDS = {"\n": "&#10;", "\r": "&#13;", "\t": "&#9;"}


@dataclass(frozen=True)
class Element:
    """A FIELD or a PARAM: its attributes, and the XML of what is inside it."""

    name: str
    attributes: Mapping[str, str]
    inside: list[str] = field(default_factory=list)

    def xml(self, changed: Mapping[str, str]) -> str:
        """Return the element, with those attributes changed."""
        tag = self.name + attributes_xml({**self.attributes, **changed})
        return f"<{tag}>{''.join(self.inside)}</{self.name}>" if self.inside else f"<{tag}/>"


class Originals:
    """Follows a document and keeps its FIELDs, its PARAMs, and other elements' descriptions and units."""

    def __init__(self) -> None:
        self.elements: list[Element] = []
        self.texts: list[str] = []
        self.depth = 0
        self.is_leaf = False

    def start(self, name: str, attributes: dict[str, str]) -> dict[str, str] | None:
        """Begin an element; return the attributes that astropy gets, None where it does not get the element."""
        self.is_leaf = True
        if self.depth:
            self.depth += 1
            self.elements[-1].inside.append(f"<{name}{attributes_xml(attributes)}>")
            return attributes if self.elements[-1].name == "FIELD" else None
        if name not in {"FIELD", "PARAM"}:
            unit = attributes.get("unit")
            return attributes if unit is None else {**attributes, "unit": self.mark(unit)}
        self.depth = 1
        mark = f"{MARK}{len(self.elements)}"
        self.elements.append(Element(name, attributes))
        if name == "FIELD":
            return {**attributes, "utype": mark}
        known = {key: value for key, value in attributes.items() if key in {"ID", "name"}}
        return {"name": "", **known, "datatype": "unicodeChar", "arraysize": "*", "value": "", "utype": mark}

    def end(self, name: str, text: str) -> str | None:
        """End an element that has the text; return the text for astropy, None where it does not get the element."""
        was_leaf, self.is_leaf = self.is_leaf, False
        if not self.depth:
            if name != "DESCRIPTION":
                return text
            return self.mark(text)
        self.depth -= 1
        if not self.depth:
            return text
        inside = self.elements[-1].inside
        if was_leaf and not text.strip():
            inside[-1] = f"{inside[-1].removesuffix('>')}/>"
        else:
            inside.append(f"{escape(text) if was_leaf else ''}</{name}>")
        return text if self.elements[-1].name == "FIELD" else None

    def mark(self, text: str) -> str:
        """Keep a text; return what astropy gets in its place."""
        self.texts.append(text)
        return f"{MARK}{len(self.texts) - 1}"

    def mark_new(self, file: VOTableFile) -> None:
        """Put marks in the place of the descriptions of new fields."""
        for element in file.iter_fields_and_params():
            if element.description and not str(element.utype or "").startswith(MARK):
                element.description = self.mark(element.description)

    def restored(self, document: bytes, file: VOTableFile) -> bytes:
        """Return a document that astropy wrote of the file, with the originals where their marks are.

        Types and sizes of fields are the file's: they describe the rows that are written.
        """
        types = {f.utype: f for f in file.iter_fields_and_params()}

        def element(match: re.Match[bytes]) -> bytes:
            number = int(match[2])
            original, changed = self.elements[number], {}
            if original.name == "FIELD":
                now = types[f"{MARK}{number}"]
                changed = {"datatype": str(now.datatype)}
                changed |= {"arraysize": str(now.arraysize)} if now.arraysize else {}
            return original.xml(changed).encode()

        def text(match: re.Match[bytes]) -> bytes:
            return escape(self.texts[int(match[1])]).encode()

        def unit(match: re.Match[bytes]) -> bytes:
            return quoteattr(self.texts[int(match[1])], LINE_ENDS).encode()

        return UNIT.sub(unit, TEXT.sub(text, ELEMENT.sub(element, document)))


def attributes_xml(attributes: Mapping[str, str]) -> str:
    """Return attributes as XML, without those of other namespaces, whose prefixes the copy does not know."""
    own = {key: value for key, value in attributes.items() if ":" not in key and key != "xmlns"}
    return "".join(f" {key}={quoteattr(value, LINE_ENDS)}" for key, value in own.items())
