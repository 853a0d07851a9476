"""Parquet footers: read, checked, and merged, so that columns are added without touching the old ones.

A Parquet file says in its footer where every column chunk lies.  An annotated copy therefore is the old
file's bytes at their old places, the new columns' chunks behind them, and one footer of both: old
pages, encodings, codecs, statistics, page indexes and Bloom filters stay as they are to the byte.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from os import SEEK_END
from pathlib import Path
from typing import IO, Any

from catalogs.errors import DamagedFileError, FormatError
from catalogs.parquet._fields import (
    BLOOM,
    CHILDREN,
    CHUNK_OFFSET,
    CODEC,
    COLUMN_INDEX,
    COLUMN_ORDERS,
    COLUMNS,
    COMPRESSED,
    DATA_PAGE,
    DICTIONARY_PAGE,
    ENCRYPTION,
    FILE_PATH,
    GROUP_OFFSET,
    INDEX_PAGE,
    KEY,
    KEY_VALUES,
    METADATA,
    NAME,
    OFFSET_INDEX,
    ROW_GROUPS,
    ROWS,
    SCHEMA,
    SORTED_BY,
    SORTING,
    TOTAL_BYTES,
    TOTAL_COMPRESSED,
    UNCOMPRESSED,
    VALUE,
    VALUES,
)
from catalogs.parquet._thrift import (
    BINARY,
    I32,
    I64,
    LIST,
    STRUCT,
    Items,
    MalformedError,
    Struct,
    decode,
    encode,
    outline,
)
from catalogs.remote.remote_file import RemoteFile

__all__ = [
    "ENCRYPTED",
    "MAGIC",
    "Chunk",
    "Footer",
    "damaged",
    "key_values",
    "merge",
    "moved",
    "parse_footer",
    "read_chunks",
    "read_footer",
    "single_chunk",
]

MAGIC = b"PAR1"
ENCRYPTED = b"PARE"
TAIL = 8
"""Bytes behind the footer: its length and the magic."""

INDEX_PLACES, INDEX_LENGTHS = zip(OFFSET_INDEX, COLUMN_INDEX, strict=True)

# What is read of each structure: a field's type, and what the structures in it are; of packed chunks the types alone.
Known = Mapping[int, tuple[int, "Known | None"]]
GROUP: Known = {
    COLUMNS: (LIST, None),
    SORTING: (LIST, {SORTED_BY: (I32, None)}),
    **dict.fromkeys((TOTAL_BYTES, ROWS, GROUP_OFFSET, TOTAL_COMPRESSED), (I64, None)),
}
FILE: Known = {
    SCHEMA: (LIST, {NAME: (BINARY, None), CHILDREN: (I32, None)}),
    ROW_GROUPS: (LIST, GROUP),
    KEY_VALUES: (LIST, {KEY: (BINARY, None), VALUE: (BINARY, None)}),
    COLUMN_ORDERS: (LIST, {}),
}
CHUNK = {
    METADATA: STRUCT,
    **dict.fromkeys((CHUNK_OFFSET, *INDEX_PLACES), I64),
    **dict.fromkeys(INDEX_LENGTHS, I32),
}
COLUMN = {
    **dict.fromkeys(
        (VALUES, UNCOMPRESSED, COMPRESSED, DATA_PAGE, INDEX_PAGE, DICTIONARY_PAGE, BLOOM[0]), I64
    ),
    **dict.fromkeys((CODEC, BLOOM[1]), I32),
}


@dataclass(frozen=True)
class Footer:
    """A footer, and where in the file it starts."""

    start: int
    metadata: Struct

    @property
    def row_groups(self) -> tuple[int, ...]:
        """Rows of each row group."""
        return tuple(group.get(ROWS, 0) for group in self.metadata.list(ROW_GROUPS))


def read_footer(path: Path) -> Footer:
    """Return the footer of a file; `DamagedFileError` says what is wrong with it."""
    with path.open("rb") as stream:
        footer = parse_whole(stream, path)
    for _ in chunks(path, footer):
        pass
    return footer


def read_chunks(stream: IO[bytes], path: Path) -> Iterator[Chunk]:
    """Yield the column chunks of a file; `DamagedFileError` says what is wrong with its footer."""
    yield from chunks(path, parse_whole(stream, path))


def parse_whole(stream: IO[bytes], path: Path) -> Footer:
    """Return the footer of a file, whose chunks are still to be checked."""
    if stream.read(len(MAGIC)) not in {MAGIC, ENCRYPTED}:
        raise damaged(path, "it does not begin as a Parquet file does")
    footer = parse_footer(stream, path)
    if not fits(footer.metadata, FILE):
        raise damaged(path, "its footer has values whose types are not those of Parquet")
    if ENCRYPTION in footer.metadata.fields:
        raise FormatError(f"{path} has encrypted columns; expected plain Parquet: decrypt a copy of it first")
    return footer


def parse_footer(stream: IO[bytes], path: Path) -> Footer:
    """Return the footer that a stream ends with."""
    size = stream.seek(0, SEEK_END)
    stream.seek(max(size - TAIL, 0))
    tail = stream.read(TAIL)
    length = int.from_bytes(tail[:4], "little")
    if tail[4:] == ENCRYPTED:
        raise FormatError(f"{path} is encrypted; expected plain Parquet: decrypt a copy of it first")
    if tail[4:] != MAGIC or length > size - TAIL - len(MAGIC):
        raise damaged(path, "it does not end as a Parquet file does")
    start = stream.seek(size - TAIL - length)
    try:
        return Footer(start, decode(stream.read(length), packed=(ROW_GROUPS, COLUMNS)))
    except MalformedError as error:
        raise damaged(path, f"its footer cannot be read ({error})") from None


def damaged(place: Path | RemoteFile, what: str) -> DamagedFileError:
    """Return the error for a file that was cut or overwritten."""
    size = place.stat().st_size if isinstance(place, Path) else place.n_bytes
    return DamagedFileError(
        f"{place} ({size} bytes) is damaged: {what}; expected a whole file: fetch or write it again"
    )


def chunks(path: Path, footer: Footer) -> Iterator[Chunk]:
    """Yield the column chunks; raise unless each lies between the magic and the footer."""
    for group in footer.metadata.list(ROW_GROUPS):
        for packed in group.list(COLUMNS):
            yield checked_chunk(path, packed, footer.start)


def checked_chunk(path: Path, packed: bytes, limit: int) -> Chunk:
    """Return a column chunk; raise unless it lies between the magic and the footer."""
    try:
        chunk = Chunk.of(packed)
    except (MalformedError, KeyError):
        raise damaged(path, "its footer does not say in which bytes the columns are") from None
    if chunk.elsewhere:
        raise FormatError(f"{path} holds no columns, but points to other files; open those files instead")
    if not chunk.column.get(VALUES):
        return chunk  # For a chunk without values, the places that writers state have no meaning.
    # Some writers say dictionary page 0 for none.
    start = min((o for o in (chunk.column.get(DATA_PAGE), chunk.column.get(DICTIONARY_PAGE)) if o), default=0)
    end = start + chunk.column.get(COMPRESSED, limit)
    if start < len(MAGIC) or end > limit:
        raise damaged(
            path, f"its footer places a column in bytes {start} to {end}, which is outside of the data"
        )
    return chunk


@dataclass(frozen=True)
class Chunk:
    """The integers of a packed column chunk and of its metadata, by their fields' numbers."""

    fields: Mapping[int, int]
    column: Mapping[int, int]
    elsewhere: bool

    @classmethod
    def of(cls, packed: bytes) -> Chunk:
        """Look into a chunk; MalformedError where fields are of other types than Parquet's."""
        fields = outline(packed)
        column = outline(packed, fields[METADATA][1])
        return cls(integers(fields, CHUNK), integers(column, COLUMN), FILE_PATH in fields)


def integers(fields: Mapping[int, tuple[int, int]], known: Mapping[int, int]) -> dict[int, int]:
    """Return the known fields' values."""
    for number in known.keys() & fields.keys():
        if fields[number][0] != known[number]:
            raise MalformedError(f"field {number} is of type {fields[number][0]}")
    return {number: fields[number][1] for number in known.keys() & fields.keys()}


def fits(struct: Struct, known: Known) -> bool:
    """Say whether the fields of a structure are of the types that are known of them."""
    for number, (kind, inner) in known.items():
        if number not in struct.fields:
            continue
        stored_kind, value = struct.fields[number]
        if stored_kind != kind or (kind == LIST and value.values and value.of != STRUCT):
            return False
        parts = value.values if kind == LIST else [value]
        if inner is not None and not all(fits(part, inner) for part in parts):
            return False
    return True


def key_values(footer: Footer) -> dict[str, str]:
    """Return the key-value metadata; a key without a value has an empty one."""
    pairs = footer.metadata.list(KEY_VALUES)
    return {
        p.get(KEY).decode("utf-8", "replace"): p.get(VALUE, b"").decode("utf-8", "replace") for p in pairs
    }


def single_chunk(metadata: Struct) -> Struct:
    """Return the only column chunk of a file's metadata."""
    (group,) = metadata.list(ROW_GROUPS)
    (packed,) = group.list(COLUMNS)
    return decode(packed)


def moved(chunk: Struct, shift: int) -> Struct:
    """Return a column chunk as it lies `shift` bytes further on."""
    column = chunk.get(METADATA)
    for number in (DATA_PAGE, DICTIONARY_PAGE):
        if offset := column.get(number):
            column = column.replace(number, I64, offset + shift)
    return chunk.replace(METADATA, STRUCT, column)


def merge(
    old: Footer, schema: Struct, chunks: Sequence[Sequence[Struct]], changed: Mapping[str, str | None]
) -> bytes:
    """Return the end of a file, from its footer on: the old columns, then the new.

    `schema` is the metadata of a file of the new columns only, `chunks` theirs in each row group.  Keys of
    `changed` replace old ones in their place or are added, those of None go; all others stay as they are.
    """
    groups = zip(old.metadata.list(ROW_GROUPS), chunks, strict=True)
    metadata = old.metadata.replace(SCHEMA, LIST, joined_schema(old.metadata, schema))
    metadata = metadata.replace(ROW_GROUPS, LIST, Items(STRUCT, [joined_group(g, c) for g, c in groups]))
    entries = Items(STRUCT, replaced(old.metadata.list(KEY_VALUES), changed))
    metadata = metadata.replace(KEY_VALUES, LIST, entries)
    # If the old columns state no order, no order can be stated for all, so there are none.
    if COLUMN_ORDERS in metadata.fields:
        orders = old.metadata.list(COLUMN_ORDERS) + schema.list(COLUMN_ORDERS)
        metadata = metadata.replace(COLUMN_ORDERS, LIST, Items(STRUCT, orders))
    data = encode(metadata)
    return data + len(data).to_bytes(4, "little") + MAGIC


def joined_schema(old: Struct, new: Struct) -> Items:
    """Return the schema, depth first: a root with the children of both, then these."""
    (root, *elements), (other, *more) = old.list(SCHEMA), new.list(SCHEMA)
    children = root.get(CHILDREN, 0) + other.get(CHILDREN, 0)
    return Items(STRUCT, [root.replace(CHILDREN, I32, children), *elements, *more])


def joined_group(old: Struct, chunks: Sequence[Struct]) -> Struct:
    """Return a row group with the new columns' chunks too."""
    columns = [chunk.get(METADATA) for chunk in chunks]
    group = old.replace(COLUMNS, LIST, Items(STRUCT, old.list(COLUMNS) + list(chunks)))
    for number, part in ((TOTAL_BYTES, UNCOMPRESSED), (TOTAL_COMPRESSED, COMPRESSED)):
        if number in old.fields:
            group = group.replace(number, I64, old.get(number) + sum(c.get(part, 0) for c in columns))
    return group


def replaced(pairs: Sequence[Any], changed: Mapping[str, str | None]) -> list[Struct]:
    """Return the key-value pairs with the changed ones in place and the new ones at the end."""
    left = {key.encode(): value for key, value in changed.items()}
    result = []
    for pair in pairs:
        if pair.get(KEY) not in left:
            result.append(pair)
        elif (value := left.pop(pair.get(KEY))) is not None:
            result.append(pair.replace(VALUE, BINARY, value.encode()))
    new = ((key, value) for key, value in left.items() if value is not None)
    return result + [Struct({KEY: (BINARY, key), VALUE: (BINARY, value.encode())}) for key, value in new]
