"""Checksums that files state of their bytes: verified before a catalogue is read, and what happens if one is wrong."""

from __future__ import annotations

from dataclasses import replace
from typing import Literal, Protocol, runtime_checkable

from catalogs.catalog.catalog import Catalog, Partition
from catalogs.errors import DamagedFileError

__all__ = ["Checksums", "Summed", "verified"]

Checksums = Literal["quarantine", "warn", "ignore"]
"""What happens to a file that has other checksums than it states: it is an error, a warning, or read without a word."""


@runtime_checkable
class Summed(Protocol):
    """A partition whose file may state checksums of its bytes."""

    def verified(self) -> tuple[Partition, str | None]:
        """Verify the checksums; return the partition as it can be read, and which is wrong, None if none is."""
        ...


def verified(catalog: Catalog, checksums: Checksums) -> tuple[Catalog, tuple[str, ...]]:
    """Verify the checksums of a catalogue's files; return the catalogue as it can be read, and warnings.

    With "quarantine" a wrong checksum raises `DamagedFileError`.
    """
    partitions: list[Partition] = []
    wrong: list[str] = []
    for partition in catalog.partitions:
        here, what = partition.verified() if isinstance(partition, Summed) else (partition, None)
        if what and checksums == "quarantine":
            raise DamagedFileError(
                f"{what}: the file changed after it was written; get another copy, or, if its writer states wrong "
                'sums, put checksums = "warn" under [catalog]'
            )
        partitions.append(here)
        wrong += [what] if what else []
    return replace(catalog, partitions=tuple(partitions)), tuple(wrong if checksums == "warn" else ())
