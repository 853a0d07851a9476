"""The errors of published catalogues, planted into a draft or into its inputs; `FAULTS` has all of them.

What changes a file after it was written stamps the manifest again, so that not its checksum gives it away.
"""

# ruff: noqa: E501 -- a fault a line

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from astropy.coordinates import SkyCoord
from astropy.io import fits

from flows.runs.manifest import Manifest, file_sha256
from tests.flows.verbs import train

Edit = Callable[["File"], None]


class File:
    """An annotated file, or an input, that is changed: its columns as arrays, and what it says of itself."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.is_fits = path.suffix == ".fits"
        if self.is_fits:
            with fits.open(path, memmap=False) as hdus:
                self.primary = hdus[0].header.copy()
                self.header, data = hdus[1].header.copy(), hdus[1].data
                self.formats = {c.name: c for c in hdus[1].columns}
                self.columns: dict[str, Any] = {c.name: np.array(data[c.name]) for c in hdus[1].columns}
        else:
            table = pq.read_table(path)
            self.schema = table.schema
            self.columns = {
                name: table[name].to_numpy(zero_copy_only=False).copy() for name in table.column_names
            }
            self.nulls = {name: table[name].is_null().to_numpy() for name in table.column_names}

    def __len__(self) -> int:
        return len(next(iter(self.columns.values())))

    def take(self, rows: Any) -> None:
        """Keep rows, in this order."""
        self.columns = {name: values[rows] for name, values in self.columns.items()}
        if not self.is_fits:
            self.nulls = {name: values[rows] for name, values in self.nulls.items()}

    def set(self, name: str, rows: Any, value: Any) -> None:
        """Set values."""
        self.columns[name][rows] = value
        if not self.is_fits:
            self.nulls[name][rows] = False

    def lose(self, name: str, rows: Any) -> None:
        """Let values be missing."""
        self.columns[name][rows] = np.nan
        if not self.is_fits:
            self.nulls[name][rows] = True

    def write(self) -> None:
        """Write the file again."""
        if self.is_fits:
            self._write_fits()
            return
        arrays, fields = [], []
        for name, column in self.columns.items():
            values = column
            field = self.schema.field(name) if name in self.schema.names else self.renamed(name)
            if values.dtype == np.int8:
                field = field.with_type(pa.int8())
            mask = self.nulls[name]
            if pa.types.is_integer(field.type) and values.dtype.kind == "f":  # it has nulls
                values = np.where(mask, 0, np.nan_to_num(values)).astype(field.type.to_pandas_dtype())
            arrays.append(pa.array(values, field.type, mask=mask))
            fields.append(field)
        pq.write_table(
            pa.Table.from_arrays(arrays, schema=pa.schema(fields, self.schema.metadata)), self.path
        )

    def renamed(self, name: str) -> pa.Field:
        old = next(old for old in self.schema.names if old.upper() == name)
        self.nulls[name] = self.nulls[old]
        return self.schema.field(old).with_name(name)

    def _write_fits(self) -> None:
        made = []
        for name, column in self.columns.items():
            values = column
            old = self.formats[name] if name in self.formats else self.formats[name.lower()]
            code = "B" if values.dtype == np.int8 else old.format
            values = values.astype(np.uint8) if values.dtype == np.int8 else values
            made.append(fits.Column(name, code, unit=old.unit, null=old.null, array=values))
        hdu = fits.BinTableHDU.from_columns(made)
        for card in self.header.cards:
            key = card.keyword
            if key.startswith(("TUCD", "TCOMM")):
                name = self.header[f"TTYPE{key.lstrip('TUCDOM')}"]
                place = [*self.columns].index(name) + 1 if name in self.columns else 0
                if place:
                    hdu.header[f"{key.rstrip('0123456789')}{place}"] = card.value
            elif key in {"HISTORY", "EXTNAME", "ORIGIN", "NROWS"}:
                hdu.header.append((key, card.value), end=True)
        fits.HDUList([fits.PrimaryHDU(header=self.primary), hdu]).writeto(
            self.path, overwrite=True, checksum=True
        )

    def set_metadata(self, key: str, value: str) -> None:
        """Say something of the file: blr.KEY of our provenance, or another key."""
        if not self.is_fits:
            self.schema = self.schema.with_metadata(
                {**(self.schema.metadata or {}), key.encode(): value.encode()}
            )
        elif key.startswith("blr."):
            lines = [str(line) for line in self.header["HISTORY"]]
            start = f"blr {key[4:]} = "
            del self.header["HISTORY"]
            for line in lines:
                self.header.add_history(start + value if line.startswith(start) else line)
        else:
            self.header[key.upper()] = int(value)


@dataclass(frozen=True)
class Fault:
    """An error: where it is planted, and which check names it with which words in which file."""

    number: int
    what: str
    check: str
    words: str
    place: str = "field-4"
    output: Callable[[File], None] | None = None
    source: Callable[[File], None] | None = None
    fields: tuple[int, ...] = (4,)
    folder: Callable[[Path], None] | None = None
    companion: bool = False
    forms: tuple[str, ...] = ("fits", "parquet")


def stamp(data: Path) -> None:
    """Let the manifest have the hashes of the files as they are."""
    manifest = Manifest.read(data)
    assert manifest is not None
    outputs = tuple(
        replace(o, sha256=file_sha256(data / o.name), size=(data / o.name).stat().st_size)
        for o in manifest.outputs
    )
    replace(manifest, outputs=outputs).write(data)


def other_model(file: File) -> None:
    """Give rows the probabilities that a model with other weights would have."""
    logit = file.columns["blr_logit_mean"] * 0.6 + 0.3
    late = 1 / (1 + np.exp(-logit))
    names = ["blr_p_early", "blr_p_late"]
    falls = np.corrcoef(file.columns[names[0]], file.columns["blr_logit_mean"])[0, 1] < 0
    for name, values in zip(names if falls else names[::-1], (1 - late, late), strict=True):
        file.columns[name] = values.astype(np.float32)
    p = np.stack([file.columns["blr_p_early"], file.columns["blr_p_late"]], axis=1)
    file.columns["blr_p_max"] = p.max(axis=1)
    file.columns["blr_logit_mean"] = logit.astype(np.float32)
    named = np.array(["early", "late"])[p.argmax(axis=1)]
    file.columns["blr_class"] = named.astype(file.columns["blr_class"].dtype)
    two = np.sort(p, axis=1)
    flags = file.columns["blr_flags"] & ~3
    flags |= np.where(two[:, 1] < 0.7, 1, 0) | np.where(two[:, 1] - two[:, 0] <= 0.1, 2, 0)
    file.columns["blr_flags"] = flags.astype(file.columns["blr_flags"].dtype)


def changed(name: str, change: Callable[[Any], Any]) -> Edit:
    """Return an edit of a column as a whole."""
    return lambda file: file.columns.update({name: change(file.columns[name])})


def set_again(name: str, change: Callable[[Any], Any]) -> Edit:
    """Return an edit of a column after which no value of it is null."""
    return lambda file: file.set(name, slice(None), change(file.columns[name]))


def spelt(name: str, change: Callable[[str], str]) -> Edit:
    """Return an edit of each text of a column."""
    return changed(name, lambda texts: np.array([change(str(text)) for text in texts]))


def miscounted(key: str) -> Callable[[Path], None]:
    """Return an edit of a class's count in the summary."""

    def edit(data: Path) -> None:
        document = json.loads((data / "summary.json").read_text())
        document["classes"]["early"][key] += 100
        (data / "summary.json").write_text(json.dumps(document))

    return edit


def blank_rows(file: File) -> None:
    for name in ("bmag", "jmag", "kmag", "minax", "majax"):
        file.lose(name, slice(12))


def peak(file: File) -> None:
    file.set("blr_p_early", slice(12), np.float32(0.3))
    file.set("blr_p_late", slice(12), np.float32(0.7))
    file.set("blr_p_max", slice(12), np.float32(0.7))
    file.set("blr_class", slice(12), "late")
    file.set("blr_flags", slice(12), 16)
    for name in ("blr_logit_mean", "blr_logit_std", "blr_mutual_info"):
        file.set(name, slice(12), np.float32(0.5))


def overflow(file: File) -> None:
    values = file.columns["radvel"]
    known = values > -1_000_000 if file.is_fits else ~file.nulls["radvel"]
    file.columns["radvel"][np.flatnonzero(known)[:20]] -= 65_536


def filled(file: File) -> None:
    gone = file.columns["radvel"] < -1_000_000 if file.is_fits else file.nulls["radvel"].copy()
    file.set("radvel", gone, 0)


def southern(file: File) -> None:
    south = file.columns["dec"] < 0
    file.columns["kmag"][south] += 0.9


def inverted(file: File) -> None:
    p = file.columns["blr_p_early"].copy()
    file.columns["blr_p_early"], file.columns["blr_p_late"] = file.columns["blr_p_late"], p
    early = np.array([str(c).strip() == "early" for c in file.columns["blr_class"]])
    file.columns["blr_class"] = np.where(early, "late", "early").astype(file.columns["blr_class"].dtype)


def swapped(file: File) -> None:
    names = file.columns["name"].copy()
    file.columns["name"][[0, len(file) - 1]] = names[[len(file) - 1, 0]]


def unit_gone(file: File) -> None:
    if file.is_fits:
        file.formats["bmag"].unit = None
        return
    kept = {
        k: v for k, v in (file.schema.metadata or {}).items() if b"IVOA" not in k and b"table_meta" not in k
    }
    fields = [f.remove_metadata() if f.name == "bmag" else f for f in file.schema]
    file.schema = pa.schema(fields, kept)


def corrupt(data: Path) -> None:
    (path,) = data.glob("field-4.*")
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 0xFF
    path.write_bytes(content)


def left(data: Path) -> None:
    (path,) = data.glob("field-4.*")
    (data / "_old").mkdir()
    (data / "_old" / path.name).write_bytes(path.read_bytes())


def of_the_last_release(file: File) -> None:
    """Put the values of the last release's file into the new one."""
    survey = next(p for p in file.path.parents if (p / "models").is_dir())
    before = File(survey / f"{file.path.suffix[1:]}-1" / "survey" / file.path.name)
    file.columns = before.columns
    if not file.is_fits:
        file.nulls = before.nulls


def magnitudes_exchanged(file: File) -> None:
    h = file.columns["hmag"].copy()
    file.columns["hmag"], file.columns["kmag"] = file.columns["kmag"], h


def columns_permuted(file: File) -> None:
    names = [*file.columns]
    a, b = names.index("bmag"), names.index("kmag")
    names[a], names[b] = names[b], names[a]
    file.columns = {name: file.columns[name] for name in names}


def again_with_new_names(file: File) -> None:
    """Add twelve objects a second time, as those of a tile's overlap, which get names of their own."""
    n = len(file)
    file.take(np.r_[0:n, 0:12])
    file.set("name", np.arange(n, n + 12), [f"PGC{900_000 + k}" for k in range(12)])


def two_columns_later(file: File) -> None:
    """Give each row the class and probabilities of the one before."""
    for name in [name for name in file.columns if name.startswith("blr_") and name != "blr_model"]:
        file.columns[name] = np.roll(file.columns[name], 1)


def other_priors(file: File) -> None:
    """Give rows the probabilities that class shares of another field give."""
    p = np.stack([file.columns["blr_p_early"], file.columns["blr_p_late"]]).astype(float)
    p *= np.array([[1.5], [0.75]])
    file.columns["blr_p_early"], file.columns["blr_p_late"] = (p / p.sum(axis=0)).astype(np.float32)
    file.columns["blr_p_max"] = np.maximum(file.columns["blr_p_early"], file.columns["blr_p_late"])


def null_restated(file: File) -> None:
    """State another TNULL in the header than the rows have; in Parquet, let the mark become a number."""
    if file.is_fits:
        file.formats["radvel"].null = -1
    else:
        file.set("radvel", file.nulls["radvel"].copy(), -32_768)


def manifest_of_another_model(data: Path) -> None:
    manifest = Manifest.read(data)
    assert manifest is not None
    replace(manifest, model="types@000000000000", model_id=7).write(data)


def summary_of_before(data: Path) -> None:
    (data / "summary.json").write_bytes((data.parents[1] / "1" / "data" / "summary.json").read_bytes())


def field_of_before(data: Path) -> None:
    """Leave the last release's annotated file in the place of the new one."""
    (path,) = data.glob("field-4.*")
    path.write_bytes((data.parents[1] / "1" / "data" / path.name).read_bytes())
    stamp(data)


def copied_under_another_name(file: File) -> None:
    """Leave a copy of the file beside it, to be classified too."""
    (file.path.parent / f"field-4b{file.path.suffix}").write_bytes(file.path.read_bytes())


def sorted_otherwise(file: File) -> None:
    """Sort the input's columns by right ascension, and leave the annotations where they are."""
    order = np.argsort(file.columns["ra"], kind="stable")
    for name in [name for name in file.columns if not name.startswith("blr_")]:
        file.columns[name] = file.columns[name][order]
        if not file.is_fits:
            file.nulls[name] = file.nulls[name][order]


def nothing_but_a_class(file: File) -> None:
    for name in ("blr_p_early", "blr_p_late", "blr_p_max"):
        file.lose(name, slice(9))


def under_another_name(file: File) -> None:
    """Put a field of the last release into the place of this one, under another name."""
    of_the_last_release(file)
    old, file.path = file.path, file.path.with_name(f"tile-4{file.path.suffix}")
    old.unlink()


def other_model_file(data: Path) -> None:
    """Put a model of other features into the place of the one that made the release."""
    survey = next(p for p in data.absolute().parents if (p / "models").is_dir())
    spec = data.parents[2] / "other.toml"
    text = (survey / "spec.toml").read_text().replace('axis_ratio = "minax / majax"\n', "")
    spec.write_text(text.replace("labelled.parquet", str(survey / "labelled.parquet")))
    train(spec, spec.with_name("other-models"))
    (path,) = spec.with_name("other-models").glob("*/*/model.asdf")
    (data.parent / "model.asdf").write_bytes(path.read_bytes())
    shutil.rmtree(spec.with_name("other-models"))
    spec.unlink()


def with_an_image(data: Path) -> None:
    (path,) = data.glob("field-4.*")
    fits.append(path, np.zeros((64, 64)), fits.Header({"EXTNAME": "DEBUG"}))
    stamp(data)


def with_an_index(file: File) -> None:
    """Add the index that pandas writes."""
    file.schema = file.schema.append(pa.field("__index_level_0__", pa.int64()))
    file.columns["__index_level_0__"] = np.arange(len(file))
    file.nulls["__index_level_0__"] = np.zeros(len(file), bool)


def galactic(file: File) -> None:
    here = SkyCoord(file.columns["ra"], file.columns["dec"], unit="deg").galactic
    file.columns.update(ra=here.l.deg, dec=here.b.deg)


def another_field(data: Path) -> None:
    (path,) = data.glob("field-4.*")
    path.write_bytes((data / f"field-3{path.suffix}").read_bytes())
    stamp(data)


def stale_block(file: File) -> None:
    """Give fifty rows the annotations of the row before them."""
    for name in [name for name in file.columns if name.startswith("blr_")]:
        file.columns[name][100:150] = file.columns[name][99]


def exchanged(file: File) -> None:
    """Let two fields have each other's names."""
    other, between = file.path.with_stem("field-3"), file.path.with_stem("between")
    file.path.rename(between)
    other.rename(file.path)
    between.rename(other)
    file.path = other


def constant(file: File) -> None:
    file.set("minax", slice(None), 1.0)


def ids_a_row_off(file: File) -> None:
    file.set("name", slice(None), np.roll(file.columns["name"], 1))


def changed_afterwards(data: Path) -> None:
    """Correct an input after it was classified."""
    manifest = Manifest.read(data)
    assert manifest is not None
    (path,) = (data / o.input_path for o in manifest.outputs if o.name.startswith("field-4"))
    file = File(path)
    file.columns["bmag"] = file.columns["bmag"] + 0.05
    file.write()


FAULTS: Mapping[str, Fault] = {
    f.what: f
    for f in (
        Fault(1, "probabilities of another model", "replay", "gives other values of", output=other_model),
        Fault(2, "objects at edges twice or never", "identifiers", "are there again", source=lambda f: f.take(np.r_[0 : len(f) - 8, 0:4, 0:4])),
        Fault(3, "rows of NaN with a score", "flags", "rows without any feature have probabilities", source=blank_rows, output=peak),
        Fault(4, "a companion with other rows", "companion shapes.parquet", "identifiers that must be there are not", place="field", companion=True),
        Fault(5, "flags of an earlier stage", "flags", "is not that of the", output=changed("blr_flags", lambda x: np.roll(x, 7))),
        Fault(6, "an overflow of 16 bits", "values", "overflowed", source=overflow),
        Fault(7, "another zero point", "values", "'bmag'", source=set_again("bmag", lambda x: x - 22.5)),
        Fault(8, "a class patched, its probabilities stale", "classes", "not that of the largest probability", output=lambda f: f.set("blr_class", slice(40), "late")),
        Fault(9, "duplicates after a resume", "identifiers", "are there again", output=lambda f: f.take(np.r_[0 : len(f), 0:10])),
        Fault(10, "a file of another version", "versions", "version", output=lambda f: f.set_metadata("blr.version", "0.0.1")),
        Fault(11, "a file damaged by input/output", "checksums", "bytes", folder=corrupt),
        Fault(12, "a column left out", "columns", "'vmag' is absent", output=lambda f: f.columns.pop("vmag")),
        Fault(12, "a boolean became int8", "types", "'notngc' is", output=lambda f: f.columns.update(notngc=np.asarray(f.columns["notngc"]).astype(np.int8))),
        Fault(13, "a wrong summary of right rows", "summaries", "summary.json says", place="summary.json", folder=miscounted("assigned")),
        Fault(14, "identifiers that are not unique", "identifiers", "are there again", source=lambda f: f.set("name", slice(6), "-1")),
        Fault(15, "a unit that is absent", "units", "the unit of 'bmag' is 'absent'", output=unit_gone, fields=tuple(range(10)), place="field"),
        Fault(16, "an identifier with another position", "positions", "have another position", source=swapped),
        Fault(17, "a column in upper case in one file", "columns", "is spelt 'BMAG'", output=lambda f: setattr(f, "columns", {("BMAG" if name == "bmag" else name): v for name, v in f.columns.items()})),
        Fault(18, "class names cut short", "class names", "'ear'", output=spelt("blr_class", lambda t: t.strip()[:3])),
        Fault(19, "missing values in one field", "missing values", "'bmag'", source=lambda f: f.lose("bmag", slice(0, None, 3))),
        Fault(20, "classes inverted", "replay", "gives other values of", output=inverted),
        Fault(20, "null stored as 0", "missing values", "are now 0", source=filled, fields=tuple(range(10)), place="field"),
        Fault(21, "a count of rows of another file", "metadata", "its metadata say", output=lambda f: f.set_metadata("nrows", "99999")),
        Fault(22, "northern photometry for southern fields", "values", "'kmag'", source=southern, fields=tuple(range(10)), place="HEALPix cell"),
        Fault(23, "digits lost in single precision", "values", "'bmag' has lost digits", source=changed("bmag", lambda x: x.astype(np.float32).astype(float))),
        Fault(24, "a boolean inverted", "values", "'notngc'", source=lambda f: f.columns.update(notngc=~f.columns["notngc"].astype(bool))),
        Fault(25, "texts of other rows", "values", "those of other objects", source=changed("hubble", lambda x: np.roll(x, 3))),
        Fault(26, "texts cut short", "values", "are cut short", source=spelt("hubble", lambda t: t.strip()[:2]), fields=tuple(range(10)), place="field"),
        Fault(27, "numbers in another byte order", "ranges", "'bmag' reaches", source=changed("bmag", lambda x: x.astype(">f8").view("<f8").astype(float))),
        Fault(29, "a column a row off", "values", "'bmag'", source=set_again("bmag", lambda x: np.roll(x, 1))),
        Fault(30, "declinations of the other sign", "positions", "have another position", source=set_again("dec", lambda x: -x)),
        Fault(31, "right ascensions in hours", "positions", "have another position", source=set_again("ra", lambda x: x / 15)),
        Fault(32, "a column in another unit", "values", "'majax'", source=set_again("majax", lambda x: x * 60)),
        Fault(33, "positions an arcsecond off", "positions", "moved by", source=set_again("dec", lambda x: x + 1 / 3600)),
        Fault(34, "a file there twice under two names", "identifiers", "are there again", place="field-4b", source=copied_under_another_name),
        Fault(35, "probabilities of two classes exchanged", "classes", "not that of the largest probability", output=lambda f: f.columns.update(blr_p_early=f.columns["blr_p_late"], blr_p_late=f.columns["blr_p_early"])),
        Fault(36, "class shares of another field", "replay", "gives other values of", output=other_priors),
        Fault(37, "the last rows lost in the inputs", "objects", "are not here", source=lambda f: f.take(slice(0, len(f) - 100))),
        Fault(38, "annotations a row off", "replay", "gives other values of", output=two_columns_later),
        Fault(39, "a null value restated", "missing values", "'radvel' that were missing are now", source=null_restated),
        Fault(40, "a field of the last release as input", "values", "no value of", source=of_the_last_release),
        Fault(41, "a field of the last release as output", "input columns", "", folder=field_of_before),
        Fault(42, "two magnitudes exchanged", "values", "mag'", source=magnitudes_exchanged),
        Fault(43, "infinite magnitudes", "ranges", "infinite", source=lambda f: f.set("bmag", np.flatnonzero(np.isfinite(f.columns["bmag"]))[:5], np.inf)),
        Fault(44, "missing magnitudes marked by -99", "ranges", "'bmag' reaches -99", source=lambda f: f.set("bmag", ~np.isfinite(f.columns["bmag"]), -99.0)),
        Fault(45, "columns in another order", "columns", "in another order", source=columns_permuted),
        Fault(46, "objects of an overlap with new names", "new objects", "have the position of another object", source=again_with_new_names),
        Fault(47, "texts in lower case", "values", "'hubble'", source=spelt("hubble", str.lower)),
        Fault(48, "a summary of the last release", "summaries", "summary.json says", place="summary.json", folder=summary_of_before),
        Fault(49, "identifiers cut short", "identifiers", "are there again", source=spelt("name", lambda t: t.strip()[:6])),
        Fault(50, "probabilities of two digits", "replay", "gives other values of", output=lambda f: [f.set(n, slice(None), np.round(f.columns[n], 2)) for n in ("blr_p_early", "blr_p_late", "blr_p_max")] and None),
        Fault(51, "positions of three decimals", "values", "has lost digits", source=lambda f: f.columns.update(ra=np.round(f.columns["ra"], 3), dec=np.round(f.columns["dec"], 3))),
        Fault(52, "rows sorted otherwise than their annotations", "input columns", "are not those of the input", output=sorted_otherwise),
        Fault(53, "probabilities of three digits", "replay", "gives other values of", output=lambda f: [f.set(n, slice(None), np.round(f.columns[n], 3)) for n in ("blr_p_early", "blr_p_late", "blr_p_max")] and None),
        Fault(54, "flags left at zero", "flags", "is not that of the", output=lambda f: f.set("blr_flags", slice(None), 0)),
        Fault(55, "a class without probabilities", "classes", "rows without probabilities have a class", output=nothing_but_a_class),
        Fault(56, "a field of the last release under another name", "values", "no value of", place="tile-4", source=under_another_name),
        Fault(57, "fluxes in the place of magnitudes", "values", "'bmag'", source=changed("bmag", lambda x: 10 ** ((22.5 - x) / 2.5))),
        Fault(58, "texts padded with blanks", "values", "blanks at their ends", source=spelt("hubble", "{}   ".format), forms=("parquet",)),
        Fault(69, "identifiers padded with blanks", "values", "'name' have blanks at their ends", source=spelt("name", "{} ".format), forms=("parquet",)),
        Fault(59, "a file cut at a row, its header mended", "rows", "its input has", output=lambda f: f.take(slice(0, len(f) - 100))),
        Fault(60, "another model beside the files", "metadata", "its metadata say model", place="field", folder=other_model_file),
        Fault(61, "an image behind the table", "metadata", "HDUs beside the table", folder=with_an_image, forms=("fits",)),
        Fault(62, "the index of pandas as a column", "columns", "__index_level_0__", output=with_an_index, forms=("parquet",)),
        Fault(63, "galactic coordinates", "positions", "have another position", source=galactic),
        Fault(64, "negative errors", "ranges", "'blr_logit_std' reaches -", output=set_again("blr_logit_std", lambda x: -x)),
        Fault(65, "a file that another field's has replaced", "identifiers", "are there again", folder=another_field),
        Fault(66, "rows that name another model", "model", "rows are of another model", output=lambda f: f.set("blr_model", slice(50), 7)),
        Fault(67, "annotations of a stale block", "replay", "gives other values of", output=stale_block),
        Fault(68, "an input corrected after its classification", "input columns", "has changed since it was classified", source=lambda _: None, folder=changed_afterwards),
        Fault(70, "a stale block in an input", "values", "'bmag'", source=lambda f: f.set("bmag", slice(5, 505, 10), f.columns["bmag"][4])),
        Fault(71, "two fields with each other's names", "objects", "were in field-3", source=exchanged),
        Fault(72, "a column with one value in one file", "values", "'minax'", source=constant),
        Fault(73, "identifiers a row off", "positions", "have another position", source=ids_a_row_off),
        Fault(74, "a summary that expects more objects", "summaries", "of expected early", place="summary.json", folder=miscounted("expected")),
        Fault(75, "a manifest that names another model", "metadata", "it says model", place="manifest.json", folder=manifest_of_another_model),
        Fault(28, "a file of before in a hidden folder", "partitions", "that the manifest does not list", place="_old", folder=left),
    )
}  # fmt: skip
