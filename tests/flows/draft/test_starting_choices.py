"""The choices of `blr init` on made surveys: classes, features, fluxes, leaks, and dirty columns."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from astropy.io import fits
from astropy.table import Table

import catalogs
from catalogs.profile.columns import uneven_presence
from flows.cli._inspect import run_inspect
from flows.draft._bands import band_and_kind, colours, kinds
from flows.draft.inspection import StartedSpecification, inspect_catalog, starting_classes
from flows.errors import TrainingError
from flows.reports.answers import training_answers
from tests.flows.starting import checked, gathered, start_of
from tests.flows.verbs import train


def started(folder: Path, columns: Mapping[str, Any], label: str = "kind") -> StartedSpecification:
    """Return the start of `x.fits` with these columns, after its labelled rows could be gathered."""
    Table({**columns}).write(folder / "x.fits", overwrite=True)
    return checked(folder / "x.fits", label)


def stars_and_galaxies(n: int = 900, *, seed: int = 11) -> dict[str, np.ndarray]:
    """Return fluxes in nanomaggies, and columns that give the class away by being there, or by what they are."""
    rng = np.random.default_rng(seed)
    star = rng.random(n) < 0.4
    r = rng.normal(18, 1, n)
    g = r + np.where(star, rng.normal(0.5, 0.4, n), rng.normal(0.9, 0.4, n))
    columns = {
        "TARGETID": np.arange(n) + 39627700000000000,
        "RA": rng.uniform(150, 152, n),
        "DEC": rng.uniform(1, 3, n),
        "CLASS": np.where(star, "STAR", "GALAXY"),
        "EBV": rng.uniform(0.01, 0.05, n),
        "PARALLAX_X": np.where(star, rng.normal(2, 1, n), np.nan),
        "REDSHIFT": np.abs(rng.normal(0.3, 0.1, n)),
        "CZ_KMS": np.zeros(n),
        "SHAPE_R": 10 ** rng.normal(0.1, 0.3, n),
        "IS_PRIMARY": rng.random(n) < 0.9,
        "SURVEY": rng.integers(1, 9, n),
    }
    columns["CZ_KMS"] = columns["REDSHIFT"] * 299792.458
    for band, mag in (("G", g), ("R", r)):
        flux = 10 ** (0.4 * (22.5 - mag))
        columns[f"FLUX_{band}"] = flux + rng.normal(0, 0.3, n)
        columns[f"FLUX_IVAR_{band}"] = np.full(n, 1 / 0.09)
        columns[f"FIBERFLUX_{band}"] = flux * 10 ** rng.normal(-0.2, 0.1, n)
    columns["FLUX_G"][:5] = -9999.0
    return columns


@pytest.fixture
def legacy(tmp_path: Path) -> Path:
    columns = stars_and_galaxies() | {"APFLUX": np.ones((900, 8))}
    codes = {"i": "K", "f": "D", "b": "L", "U": "6A"}
    made = [
        fits.Column(
            name,
            "8E" if values.ndim > 1 else codes[values.dtype.kind],
            array=values,
            unit="nanomaggy" if "FLUX" in name and "IVAR" not in name else None,
        )
        for name, values in columns.items()
    ]
    fits.BinTableHDU.from_columns(made).writeto(tmp_path / "legacy.fits")
    return tmp_path / "legacy.fits"


def test_fluxes_become_magnitudes_and_the_model_is_no_red_one(legacy: Path) -> None:
    start = checked(legacy, "CLASS")
    written = tomllib.loads(start.text)
    assert written["photometry"]["mag_g"] == {"flux": "FLUX_G", "inverse_variance": "FLUX_IVAR_G"}
    assert list(written["features"].values()) == [
        "REDSHIFT",
        "mag_g - mag_r",
        "mag_g - mag_g_fiberflux",
        "mag_r - mag_r_fiberflux",
        "mag_r",
        "log10(SHAPE_R)",
    ]
    assert written["catalog"]["sentinels"] == {"FLUX_G": [-9999.0]}
    assert "; measured for 100% of class 'STAR' and 0% of class 'GALAXY'" in start.left_out["PARALLAX_X"]
    assert "a distance: leave it out if the target does not have it with" in start.suspects["REDSHIFT"]
    assert start.left_out["CZ_KMS"].startswith("in the same order as REDSHIFT")
    assert start.left_out["SURVEY"].startswith("whole numbers, with a name that is usual for bookkeeping")
    assert start.left_out["IS_PRIMARY"].startswith("yes or no")
    assert start.left_out["EBV"].startswith("dust of our Galaxy")
    assert "APFLUX: the same in every row" in start.text
    linear = "[[candidate]]".join(start.text.split("[[candidate]]")[:2])
    (legacy.parent / "spec.toml").write_text(linear)
    told = train(legacy.parent / "spec.toml", legacy.parent / "models")
    assert told.trust.verdict in {"green", "amber"}
    assert told.metrics.log_loss < told.metrics.log_loss_baseline


def test_presence_of_texts_and_of_small_classes() -> None:
    labels = np.array(["a"] * 40 + ["b"] * 40 + ["c"] * 3 + [""] * 40, dtype=object)
    text = np.array(["x"] * 40 + [""] * 83, dtype=object)
    everywhere = np.arange(123)
    assert list(uneven_presence({"text": text, "n": everywhere}, labels)) == ["text"]


def test_numbers_beside_text_marks_are_looked_at_for_sentinels(tmp_path: Path) -> None:
    rng = np.random.default_rng(1)
    n = 400
    kind = rng.random(n) < 0.5
    g, r, i = (np.char.mod("%.3f", 20 + kind + rng.normal(size=n)).astype(object) for _ in range(3))
    g[::10], g[1::10] = "-", "99.9"
    r[::10], r[1::10] = "", "99.9"
    i[::10], i[1::10], i[2::10] = "-99", "99.9", "null"
    lines = ["id,g,r,i,k"]
    lines += [f"{j},{g[j]},{r[j]},{i[j]},{'A' if kind[j] else 'B'}" for j in range(n)]
    (tmp_path / "sent.csv").write_text("\n".join(lines) + "\n")
    start = checked(tmp_path / "sent.csv", "k")
    written = tomllib.loads(start.text)["catalog"]["sentinels"]
    assert written == {"g": ["-", 99.9], "r": [99.9], "i": ["null", -99.0, 99.9]}
    told = {c.name: c for c in inspect_catalog(catalogs.open(tmp_path / "sent.csv"), label="k").columns}
    assert [(s.value, s.count) for s in told["i"].sentinels] == [(-99.0, 40), (99.9, 40)]
    numbers = np.array([float(text) for text in i if text != "null"])
    assert (told["i"].minimum, told["i"].median, told["i"].maximum) == (-99, np.median(numbers), 99.9)
    assert np.abs(gathered(start.text, tmp_path / "sent.csv").X).max() < 50


@pytest.mark.parametrize("name", ["ID", "id", "obj_name"])
def test_repeats_of_an_object_stay_together(tmp_path: Path, name: str) -> None:
    rng = np.random.default_rng(2)
    kind = np.repeat(rng.random(200) < 0.5, 2)
    identifier = rng.permutation(10_000)[:200].repeat(2)
    columns = {
        name: [f"NGC {i}" for i in identifier] if name == "obj_name" else identifier,
        "w": kind + rng.normal(size=400),
        "kind": np.where(kind, "A", "B"),
    }
    start = started(tmp_path, columns)
    assert 'by = "id"  # 200 values in 400 rows: repeats of an object stay together' in start.text
    assert start.left_out[name] == "names the object"
    assert tomllib.loads(start.text)["catalog"]["id"] == name
    told = inspect_catalog(catalogs.open(tmp_path / "x.fits"), label="kind")
    assert told.identifiers == (
        {"column": name, "why": "200 values in 400 rows: an object has several rows"},
    )
    assert told.label is not None
    assert not told.label.bookkeeping
    if name == "obj_name":  # beside it a column of each row is the identifier
        columns["specobjid"] = rng.permutation(10**6)[:400] + 10**15
        written = tomllib.loads(started(tmp_path, columns).text)
        assert (written["catalog"]["id"], written["split"]["by"]) == ("specobjid", name)


@pytest.mark.parametrize(("kind", "exact"), [("f4", 24), ("f8", 53)])
def test_identifiers_that_were_rounded_are_told(tmp_path: Path, kind: str, exact: int) -> None:
    columns = {"objid": 2**exact + 4 * np.arange(40), "source_id": 2**exact - np.arange(40)}
    Table({name: x.astype(kind) for name, x in columns.items()}).write(tmp_path / "x.fits")
    told = inspect_catalog(catalogs.open(tmp_path / "x.fits")).identifiers
    assert [(i["column"], "which rounds them" in i["why"]) for i in told] == [("objid", True)]


@pytest.mark.parametrize("share", [0.01, 0.05, 0.3])
def test_an_identifier_that_some_rows_repeat_still_names_the_objects(tmp_path: Path, share: float) -> None:
    rng = np.random.default_rng(5)
    n = 1000
    objid = rng.permutation(10**6)[:n] + 10**15
    twice = round(share * n)
    objid[n - twice :] = objid[:twice]
    kind = rng.random(n) < 0.5
    kind[n - twice :] = kind[:twice]
    columns = {"dr7objid": objid, "w": kind + rng.normal(size=n), "kind": np.where(kind, "A", "B")}
    start = started(tmp_path, columns)
    written = tomllib.loads(start.text)
    assert written["catalog"]["id"] == "dr7objid"
    assert written["split"]["by"] == "id"
    rows = gathered(start.text, tmp_path / "x.fits")
    assert rows.group is not None
    assert len(np.unique(rows.group)) == n - twice  # the rows of one object are in one fold


@pytest.mark.parametrize("order", [("f 1", "f_1"), ("f_1", "f 1")])
def test_columns_that_differ_in_a_blank_are_features_and_a_yes_or_no_that_is_the_label_is_none(
    tmp_path: Path, order: tuple[str, str]
) -> None:
    rng = np.random.default_rng(2)
    kind = rng.random(400) < 0.5
    columns = {name: kind + rng.normal(size=400) for name in order} | {"isA": kind}
    start = started(tmp_path, columns | {"kind": np.where(kind, "A", "B")})
    assert sorted(start.features.values()) == ["`f 1`", "f_1"]
    assert "#   isA: leak: it is a code of kind" in start.text


def test_columns_of_few_values_split_rows_together(tmp_path: Path) -> None:
    """Pixels have 17 values: rows of equal ones in one column are not alike, and were left out together."""
    rng = np.random.default_rng(3)
    kind = np.arange(300) % 2
    columns = {f"p{i}": rng.binomial(16, 0.3 + 0.2 * (kind == i % 2)) for i in range(6)}
    start = started(tmp_path, columns | {"kind": np.array(["a", "b"])[kind]})
    names = tomllib.loads(start.text)["split"]["by"]
    assert len(names) == 4
    rows = gathered(start.text, tmp_path / "x.fits")
    distinct = set(zip(*(columns[n].tolist() for n in names), strict=True))
    assert len(np.unique(rows.group)) == len(distinct) > 250
    assert any(line.startswith("No column names the objects, as reviews") for line in start.summary)


def test_a_dirty_csv_trains_or_is_refused(tmp_path: Path) -> None:
    rng = np.random.default_rng(4)
    n = 400
    kind = rng.choice(
        ["spiral", "Spiral", "elliptical ", "?", "unknown", "cE", "dwarf"],
        n,
        p=[0.3, 0.1, 0.4, 0.06, 0.06, 0.04, 0.04],
    )
    red = np.char.strip(kind) == "elliptical"
    colour = rng.normal(1 + 0.5 * red, 0.3)
    lines = ["name;colour;n;empty;constant;note;half;when"]
    for i in range(n):
        value = "-" if i % 17 == 0 else f"{colour[i]:.4f}"
        half = f"{rng.normal():.3f}" if red[i] else ""
        lines.append(f'G{i % 390};{value};{i % 7};;1.5;"a; b";{half};2020-01-{1 + i % 28:02d}')
    (tmp_path / "dirty.csv").write_text("\n".join(lines) + "\n")
    with pytest.raises(TrainingError, match=r"--label: got 'constant' with the labels '1\.5'"):
        start_of(tmp_path / "dirty.csv", "constant")
    lines = [f"{line};{k}" for line, k in zip(lines, ["kind", *kind], strict=True)]
    (tmp_path / "dirty.csv").write_text("\n".join(lines) + "\n")
    start = checked(tmp_path / "dirty.csv")
    assert set(start.classes) == {"spiral", "elliptical", "cE", "dwarf"}
    assert '"spiral" = ["spiral", "Spiral"]' in start.text
    assert "# In no class, since they mean doubt or 'not known': " in start.text
    assert "colour" in start.features
    assert tomllib.loads(start.text)["catalog"]["sentinels"]["colour"] == ["-"]
    assert "half" not in start.features


def test_a_catalogue_without_rows_is_looked_at_in_silence(tmp_path: Path) -> None:
    Table({"x": np.empty(0), "kind": np.empty(0, "U1")}).write(tmp_path / "none.fits")
    assert inspect_catalog(catalogs.open(tmp_path / "none.fits"), label="kind").n_rows == 0


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("u", ("u", "")),
        ("B-Mag", ("b", "")),
        ("bmag", ("b", "")),
        ("petroMag_r", ("r", "petro")),
        ("MAG_AUTO_G", ("g", "auto")),
        ("F606W_MAG", ("f606w", "")),
        ("Cstar U-Mag", ("u", "cstar")),
        ("phot_bp_mean_mag", ("bp", "phot_mean")),
        ("w1mpro", ("w1", "")),
        ("total", (None, "total")),
    ],
)
def test_bands_in_names(name: str, expected: tuple[Any, ...]) -> None:
    assert band_and_kind(name) == expected


def test_colours_are_of_neighbours_and_of_one_kind() -> None:
    names = ["mag_z", "mag_g", "psf_mag_r", "mag_r", "psf_mag_g", "mag_v"]
    missing = dict.fromkeys(names, 0.0) | {"mag_v": 0.7}
    assert kinds(names)[0] == ["mag_g", "mag_v", "mag_r", "mag_z"]
    assert [(a, b) for a, b, _ in colours(names, missing)] == [
        ("mag_g", "mag_r"),
        ("mag_r", "mag_z"),
        ("mag_v", "mag_r"),
        ("mag_g", "psf_mag_g"),
        ("mag_r", "psf_mag_r"),
    ]


@pytest.mark.parametrize(
    ("counts", "classes"),
    [
        # Fermi's associations and identifications, a file joined of two, RR Lyrae in capitals.
        ("bll 1100, BLL 22, fsrq 640, FSRQ 43", "bll: bll BLL, fsrq: fsrq FSRQ"),
        ("STAR 400, Star 39, GAL 300, Gal 280", "STAR: STAR Star, GAL: GAL Gal"),
        ("RRab 90, RRAB 80, RRc 30, rrc 9", "RRab: RRab RRAB, RRc: RRc rrc"),
        # De Vaucouleurs' unbarred spirals: other labels of the file begin with 'SA'.
        ("Sa 50, SA 40, SAb 60", "SAb: SAb, Sa: Sa, SA 2: SA"),
        # One row of another spelling is a slip of the pen.
        ("Sbc 300, SBc 1", "Sbc: Sbc SBc"),
        # Few labels of a column whose labels are codes.
        ("Sbc 9, SABb 5, SBbc 4, SBc 3, SBC 2", "Sbc: Sbc SBC, SABb: SABb, SBbc: SBbc, SBc 2: SBc"),
        ("E 90, e 70", "E: E e"),
        # Columns of classes could not be told apart; rows without a label are of none.
        ("Sbc 300, SBc 200, * 150, ** 140,  7", "Sbc: Sbc, SBc 2: SBc, *: *, ** 2: **"),
    ],
)
def test_case_alone_makes_no_class_unless_the_files_own_counts_say_so(counts: str, classes: str) -> None:
    rows = {text: int(n) for text, n in (one.rsplit(" ", 1) for one in counts.split(", "))}
    expected = dict(one.split(": ") for one in classes.split(", "))
    found = {name: [*spellings.items()] for name, spellings in starting_classes(rows).kept.items()}
    assert found == {name: [(text, rows[text]) for text in some.split()] for name, some in expected.items()}


def test_classes_that_differ_in_case_only_are_shown_with_their_counts(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rng = np.random.default_rng(0)
    kind = np.repeat(["Sbc", "SBc", "bll", "BLL"], [90, 60, 50, 7])
    start = started(tmp_path, {"x": rng.normal(size=207), "kind": kind})
    assert start.summary[0] == "3 classes of all 207 labelled rows: every label is in one"
    drafted = inspect_catalog(catalogs.open(tmp_path / "x.fits"), label="kind").label.drafted
    assert {name: c["rows"] for name, c in drafted.items()} == start.classes
    assert drafted["bll"]["spellings"] == ("bll", "BLL")
    run_inspect(inspected=str(tmp_path / "x.fits"), label="kind", json=False)
    said = "Sbc (90 rows), SBc 2 (60 rows), bll (57 rows); spellings that differ in case only are one"
    assert f"Classes that `blr init` makes of them: {said}" in capsys.readouterr().out.replace("\n", " ")
    line = '"bll" = ["bll", "BLL"]  # 57 rows ("bll" 50, "BLL" 7): upper and lower case alone do not make a class'
    assert line in start.text
    assert "no two columns could be told apart" not in start.text


def test_of_many_labels_numbers_are_cut_in_two_and_texts_beyond_the_forty_most_frequent_left_out(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path, label = tmp_path / "codes.csv", np.arange(600) % 60
    columns = {"oid": np.arange(600), "x": label + np.random.default_rng(1).normal(size=600), "cat": label}
    Table(columns | {"kind": [f"T{i:02d}" for i in label]}).write(path)
    start = start_of(path, "cat")
    assert list(start.classes) == ["below_30", "from_30"]
    said = "were cut in two at 30: a guess. If each number is a class, remove [label.classes]"
    assert said in start.summary[0]
    said = start_of(path).summary[0]
    assert said.startswith("Left out: 20 labels with 200 of 600 labelled rows")
    assert said.endswith(": a first training takes the 40 most frequent; [label.classes] can have 100")
    run_inspect(inspected=str(path), label="cat", json=False)
    assert "The 40 most frequent labels in cat" in map(str.rstrip, capsys.readouterr().out.split("\n"))


def test_classes_without_features_are_left_out_with_the_reason(tmp_path: Path) -> None:
    rng, kind = np.random.default_rng(1), np.repeat(["E", "S", "Dup"], 60)
    x = np.where(kind == "Dup", np.nan, rng.normal(size=180))
    start = started(tmp_path, {"oid": np.arange(180), "x": x, "kind": kind})
    assert set(start.classes) == {"E", "S"}
    assert start.features == {"x": "x"}
    told = "Left out: 1 label with 60 of 180 labelled rows ('Dup' 60): hardly any of these rows has a feature"
    assert told in start.summary


def stars(n: int) -> dict[str, int]:
    return {f"star {i}": 60 - i for i in range(n)}


REST = {"quasar": 10, "comet": 2, "slip": 1, "?": 4, "": 90}


@pytest.mark.parametrize(
    ("counts", "kept", "dropped"),
    [
        ({"dE2": 40, "dE2:": 30, "Sc": 50, "Sc?": 20, "WR::": 9}, {"dE2", "Sc"}, set()),
        # Of many labels five rows make a class; where ten are different at most, two do.  A doubtful label is one.
        (stars(8) | {"quasar": 10, "nebula": 5, "comet": 4}, {*stars(8), "quasar", "nebula"}, {"comet"}),
        (stars(6) | REST, {*stars(6), "quasar", "comet"}, {"slip"}),
        (stars(7) | REST, {*stars(7), "quasar"}, {"comet", "slip"}),
    ],
)
def test_labels_make_classes_dropped_and_doubtful_ones(
    counts: dict[str, int], kept: set[str], dropped: set[str]
) -> None:
    found, doubtful = starting_classes(counts), {*counts} - kept - dropped - {""}
    assert ({*found.kept}, {*found.dropped}, {*found.doubtful}) == (kept, dropped, doubtful)
    assert found.dropped | found.doubtful == {text: counts[text] for text in dropped | doubtful}


def test_no_more_than_a_hundredth_of_the_labels_is_left_out_as_rare() -> None:
    """Of a hundred labels of eleven classes one class has three."""
    few = {f"vowel {i}": 9 + i % 3 for i in range(10)} | {"hod": 3, "slip": 1}
    assert {*starting_classes(few).kept} == {*few} - {"slip"}
    many = {text: 100 * n for text, n in few.items()} | {"hod": 3, "slip": 1}
    assert set(starting_classes(many).dropped) == {"hod", "slip"}
    rare = {f"kind {i}": 3 for i in range(60)}
    assert set(starting_classes(rare | few).dropped) - {"hod", "slip"} == {*rare}


@pytest.mark.usefixtures("few_draws")
def test_a_class_of_two_rows_trains(tmp_path: Path) -> None:
    """None is held out: each of the two rows is judged by a fit that has seen the other."""
    rng = np.random.default_rng(0)
    kind = np.repeat(["a", "b", "rare"], [20, 18, 2])
    x = rng.normal(size=40) + 2 * (kind == "b") + 8 * (kind == "rare")
    start = started(tmp_path, {"name": [f"G{i}" for i in range(40)], "x": x, "kind": kind})
    candidates = start.text.split("[[candidate]]")
    (tmp_path / "spec.toml").write_text("[[candidate]]".join(candidates[:2]))  # all take half a minute
    trained = train(tmp_path / "spec.toml", tmp_path / "models")
    assert set(trained.classes) == {"a", "b", "rare"}
    assert trained.metrics.log_loss < trained.metrics.log_loss_baseline


@pytest.mark.parametrize("rows", [460, 2460])
def test_a_class_in_one_pixel_is_not_split_by_position(rows: int, tmp_path: Path) -> None:
    """Of any split by place one side, or one fold, would have all of it; without it, places are what splits."""
    rng = np.random.default_rng(1)
    kind = np.repeat(["a", "b", "c"], [rows // 2, rows - rows // 2 - 60, 60])
    ra, dec = rng.uniform(0, 360, rows), rng.uniform(-60, 60, rows)
    columns = {"ra": ra, "dec": dec, "x": rng.normal(size=rows) + (kind == "b"), "kind": kind}
    assert tomllib.loads(started(tmp_path, columns).text)["split"]["by"] == "healpix"
    ra[-60:], dec[-60:] = 10.0 + rng.uniform(0, 0.01, 60), 10.0
    start = started(tmp_path, columns)
    assert tomllib.loads(start.text)["split"]["by"] != "healpix"
    assert set(start.classes) == {"a", "b", "c"}


def test_texts_of_degrees_are_told_how_to_be_stated(tmp_path: Path) -> None:
    """As of a CSV file in which one position is '-'."""
    rows = ["id,ra,dec", "a,-,-", *(f"g{i},{i}.25,-{i % 80}.5" for i in range(300))]
    (tmp_path / "texts.csv").write_text("\n".join(rows) + "\n")
    (remark,) = inspect_catalog(catalogs.open(tmp_path / "texts.csv")).position.remarks
    assert remark.startswith("301 of 301 sampled rows hold no readable angle: if the texts are numbers, ")
    assert remark.endswith('state position_unit = "deg", or "rad"')


def test_what_rows_without_a_label_lack_is_left_out(tmp_path: Path) -> None:
    columns = stars_and_galaxies()
    bright = np.arange(900) < 300
    columns["CLASS"][~bright] = ""
    columns["REDSHIFT"][~bright] = np.nan
    columns["CZ_KMS"][~bright] = -9999.0
    start = started(tmp_path, columns, "CLASS")
    lacking = "rows without a label lack it, and they are to be classified"
    assert (start.left_out["REDSHIFT"], start.left_out["CZ_KMS"]) == (lacking, lacking)


def test_rows_that_share_a_place_do_not_judge_each_other(tmp_path: Path) -> None:
    rng = np.random.default_rng(3)
    X = rng.normal(size=(200, 2))
    columns = {"row": np.arange(400), "ra": rng.uniform(0, 60, 200).repeat(2), "w": X[:, 0].repeat(2)}
    columns |= {"dec": rng.uniform(-9, 9, 200).repeat(2), "x": X[:, 1].repeat(2)}
    columns["kind"] = np.where(X[:, 0] + rng.normal(size=200) > 0, "A", "B").repeat(2)
    text = started(tmp_path, columns).text.partition("[[candidate]]")[0]
    assert 'by = "healpix"  # rows share a place, so neighbours on the sky stay together' in text
    by_name = re.sub(r'by = "healpix".*\nhealpix_order.*', 'by = "id"', text)
    answers = []
    for one in (text, by_name):
        (tmp_path / "spec.toml").write_text(one)
        answers.append(training_answers(train(tmp_path / "spec.toml", tmp_path / "models")))
    apart, together = answers
    assert apart[0].short.startswith("Yes: its probabilities")
    assert together[0].short == "Yes, with care: some labelled objects may be there several times."
    assert "400 labelled objects lie within an arcsecond of another" in together[4].findings[0].what
