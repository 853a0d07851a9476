"""The words of a feature expression, by a whitelist: what is no word of the language is refused here.

`plain` hands the words on to Python's grammar with every name and text made anonymous: so a column may be
called `class` or `lambda`, nothing in a text can reach the grammar, and places stay the places of the text.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

from catalogs.expressions._functions import FUNCTIONS
from catalogs.expressions._tree import complaint

__all__ = ["ALLOWED", "MAX_NESTING", "Token", "cut", "plain"]

MAX_NESTING = 100
"""Parentheses inside each other; Python's own parser stops at 200."""

ALLOWED = (
    "columns, numbers, 'text', + - * / **, comparisons, in [...], and or not & | ~, vector[0], "
    + " ".join(FUNCTIONS)
)

TOKEN = re.compile(
    r"""(?P<space>[ \t\r\n]+)
      | (?P<number>(?:0[xX][0-9a-fA-F]+ | (?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?)(?![\w.]))
      | (?P<name>[^\W\d]\w*)
      | (?P<quoted>`[^`\r\n]+`)
      | (?P<text>'[^'\\\r\n]*' | "[^"\\\r\n]*")
      | (?P<symbol>\*\*(?!=) | [<>=!]= | [-+*~](?!=) | /(?![/=]) | &(?![&=]) | \|(?![|=]) | <(?!<) | >(?!>)
                   | [(),\[\]])""",
    re.VERBOSE,
)

HINTS: Mapping[str, str] = MappingProxyType(
    {
        "&&": "write 'and'",
        "||": "write 'or'",
        "//": "write '/'",
        "=": "write '==' to compare",
        "!": "write 'not'",
        "^": "write '**' for a power",
        "#": "write a column with '#' in its name in back quotes",
        "`": "end the back-quoted column name with a back quote",
        "'": "end the text with the quote that it began with, and write no backslash in it",
        '"': "end the text with the quote that it began with, and write no backslash in it",
        ".": "'.' cannot be used here; write a column with '.' in its name in back quotes",
    }
)


@dataclass(frozen=True)
class Token:
    """A word of the text."""

    kind: str
    word: str
    at: int

    @property
    def end(self) -> int:
        """Where the next one may begin."""
        return self.at + len(self.word)


def cut(text: str) -> Iterator[Token]:
    """Yield the text's tokens; refuse characters that the language does not have."""
    at, depth = 0, 0
    while at < len(text):
        match = TOKEN.match(text, at)
        if match is None:
            raise complaint(text, at, stranger(text, at))
        kind, word = str(match.lastgroup), match.group()
        depth += (word in {"(", "["}) - (word in {")", "]"})
        if depth > MAX_NESTING:
            raise complaint(text, at, f"nested more than {MAX_NESTING} deep; split it over features")
        if kind != "space":
            yield Token(kind, word, at)
        at = match.end()


def stranger(text: str, at: int) -> str:
    """Return the message for text that is not a token."""
    if text[at].isdigit():
        return "got a malformed number; expected one such as 22.5, 1e-9 or 0xFF"
    for size in (2, 1):
        word = text[at : at + size]
        if word in HINTS:
            return f"got {word!r}; {HINTS[word]}"
    return f"got {text[at]!r}; expected {ALLOWED}"


def plain(tokens: Sequence[Token]) -> str:
    """Return the tokens as Python's grammar is to see them, each at its own place."""
    return "".join(anonymous(tokens))


def anonymous(tokens: Sequence[Token]) -> Iterator[str]:
    """Yield the spaces between tokens, and the tokens with the user's names replaced."""
    at = 0
    for token in tokens:
        yield " " * (token.at - at)
        at = token.end
        if token.kind == "text":
            yield "'" + "_" * (len(token.word) - 2) + "'"
        elif token.kind == "quoted" or (
            token.kind == "name" and token.word not in {"and", "or", "not", "in"}
        ):
            yield "x" + "_" * (len(token.word) - 1)
        else:
            yield token.word
