"""One table of HATS: a folder of properties, and Parquet files each of one pixel of the sky.

`dataset/Norder=<k>/Dir=<n>/Npix=<m><suffix>`, or folders of files where the suffix is a slash.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from catalogs.errors import DamagedFileError, FormatError
from catalogs.files.folders import files_below
from catalogs.hats._properties import PROPERTIES, Properties, read_properties

__all__ = ["DATASET", "PARTITION_INFO", "THUMBNAIL", "Table", "has_properties", "table_at"]

DATASET = "dataset"
THUMBNAIL = "data_thumbnail.parquet"
"""Some rows of each partition, for a quick look."""

PARTITION_INFO = "partition_info.csv"
FOLDERS = "/"
MARGIN = "margin"
WITH_ROWS = ("object", "source", "nested", "map", MARGIN)

NORDER = re.compile(r"Norder=(\d+)")
DIR = re.compile(r"Dir=(\d+)")

Pixel = tuple[int, int]
"""Norder and Npix."""


@dataclass(frozen=True)
class Table:
    """A table: where it is, its place below the folder that the catalogue is in, and its properties."""

    root: Path
    key: str
    properties: Properties

    @property
    def is_margin(self) -> bool:
        """Whether its rows repeat another table's."""
        return self.properties.get("dataproduct_type") == MARGIN

    @property
    def dataset(self) -> Path:
        """The folder of the Parquet files."""
        return self.root / DATASET

    @property
    def needed(self) -> tuple[str, ...]:
        """Columns that the properties name, without which it is no table of HATS."""
        keys = ("hats_col_ra", "hats_col_dec", "hats_col_healpix")
        return tuple(name for key in keys if (name := self.properties.get(key)))

    @cached_property
    def files(self) -> tuple[Path, ...]:
        """The files of all pixels, in the order of Norder and Npix; each pixel is listed and each listed is there."""
        by_pixel = sorted(self._files(), key=lambda item: (item[0], item[1].as_posix()))
        listed = self._listed()
        if listed is not None:
            self._check({pixel for pixel, _ in by_pixel}, listed)
        return tuple(path for _, path in by_pixel)

    def _files(self) -> Iterator[tuple[Pixel, Path]]:
        suffix = self.properties.get("hats_npix_suffix", ".parquet")
        npix = re.compile(r"Npix=(\d+)" + ("" if suffix == FOLDERS else re.escape(suffix)))
        for norder in folders(self.dataset, NORDER):
            for directory in folders(norder, DIR):
                for path in directory.iterdir():
                    match = npix.fullmatch(path.name)
                    if match is None or path.is_dir() != (suffix == FOLDERS):
                        continue
                    pixel = int(norder.name.partition("=")[2]), int(match[1])
                    yield from ((pixel, p) for p in (files_below(path) if path.is_dir() else (path,)))

    def _listed(self) -> set[Pixel] | None:
        """Return the pixels of `partition_info.csv`, None where there is no such file."""
        path = self.root / PARTITION_INFO
        if not path.is_file():
            return None
        try:
            with path.open(encoding="utf-8", newline="") as stream:
                return {(int(row["Norder"]), int(row["Npix"])) for row in csv.DictReader(stream)}
        except (KeyError, TypeError, ValueError, csv.Error) as error:
            raise DamagedFileError(
                f"{path} does not list pixels ({error!r}); expected columns Norder and Npix of whole numbers: "
                "fetch it again"
            ) from None

    def _check(self, stored: set[Pixel], listed: set[Pixel]) -> None:
        if stored == listed:
            return
        here, there = sorted(stored - listed), sorted(listed - stored)
        odd = f"Norder={(there or here)[0][0]} Npix={(there or here)[0][1]}"
        what = f"{len(there)} of them without a file" if there else f"but not {len(here)} of the files"
        raise DamagedFileError(
            f"{self.root} is not complete: {PARTITION_INFO} lists {len(listed)} pixels, {what}, the first "
            f"{odd}; fetch the catalogue again, or correct the list"
        )


def folders(folder: Path, name: re.Pattern[str]) -> Iterator[Path]:
    """Yield the folders of such names in a folder."""
    if folder.is_dir():
        yield from (p for p in sorted(folder.iterdir()) if name.fullmatch(p.name) and p.is_dir())


def has_properties(folder: Path) -> bool:
    """Say whether a folder has the properties of a table."""
    return any((folder / name).is_file() for name in PROPERTIES)


def table_at(root: Path, key: str) -> Table:
    """Return the table in a folder; FormatError where it is of a kind without rows of its own."""
    path = next((root / name for name in PROPERTIES if (root / name).is_file()), None)
    if path is None:
        raise FormatError(f"{root} has neither of {' and '.join(PROPERTIES)}; expected a table of HATS")
    properties = read_properties(path)
    kind = properties.get("dataproduct_type")
    if kind not in WITH_ROWS:
        raise FormatError(
            f"{path}: dataproduct_type is '{kind}', expected one of {', '.join(WITH_ROWS)}; open the "
            "catalogue that this index belongs to"
        )
    return Table(root, key, properties)
