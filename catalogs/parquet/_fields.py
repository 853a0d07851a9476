"""The numbers of a Parquet footer's fields, of those that copies have to do with, by their structures.

https://github.com/apache/parquet-format/blob/master/src/main/thrift/parquet.thrift
"""

from __future__ import annotations

__all__ = [
    "BLOOM",
    "CHILDREN",
    "CHUNK_OFFSET",
    "CODEC",
    "COLUMNS",
    "COLUMN_INDEX",
    "COLUMN_ORDERS",
    "COMPRESSED",
    "DATA_PAGE",
    "DICTIONARY_PAGE",
    "ENCODING_STATS",
    "ENCRYPTION",
    "FILE_PATH",
    "GROUP_OFFSET",
    "INDEX_PAGE",
    "KEY",
    "KEY_VALUES",
    "LOCATIONS",
    "METADATA",
    "NAME",
    "OFFSET_INDEX",
    "PAGES",
    "PAGE_COMPRESSED",
    "PAGE_CRC",
    "PLACE",
    "ROWS",
    "ROW_GROUPS",
    "SCHEMA",
    "SIZE_STATISTICS",
    "SORTED_BY",
    "SORTING",
    "TOTAL_BYTES",
    "TOTAL_COMPRESSED",
    "UNCOMPRESSED",
    "VALUE",
    "VALUES",
]

# FileMetaData
SCHEMA, ROW_GROUPS, KEY_VALUES, COLUMN_ORDERS, ENCRYPTION = 2, 4, 5, 7, 8
# SchemaElement
NAME, CHILDREN = 4, 5
# KeyValue
KEY, VALUE = 1, 2
# RowGroup
COLUMNS, TOTAL_BYTES, ROWS, SORTING, GROUP_OFFSET, TOTAL_COMPRESSED = 1, 2, 3, 4, 5, 6
# SortingColumn
SORTED_BY = 1
# ColumnChunk
FILE_PATH, CHUNK_OFFSET, METADATA = 1, 2, 3
# ColumnMetaData
CODEC, VALUES, UNCOMPRESSED, COMPRESSED = 4, 5, 6, 7
DATA_PAGE, INDEX_PAGE, DICTIONARY_PAGE = PAGES = 9, 10, 11
ENCODING_STATS, SIZE_STATISTICS = 13, 16
# PageHeader
PAGE_COMPRESSED, PAGE_CRC = 3, 4
# OffsetIndex, PageLocation
LOCATIONS, PLACE = 1, 1

# Where something lies, and how long it is: of a ColumnChunk, the last of its ColumnMetaData
OFFSET_INDEX, COLUMN_INDEX, BLOOM = (4, 5), (6, 7), (14, 15)
