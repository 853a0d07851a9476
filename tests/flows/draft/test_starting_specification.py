"""`blr inspect` and `blr init` on made and real catalogues, partly labelled ones, and positions of any kind."""

from __future__ import annotations

import json
import tomllib
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from astropy.table import Table

import catalogs
from blr.candidates.candidate import default_candidates
from catalogs.profile.quality import find_other_position, parts_of_positions
from flows.cli.app import run
from flows.documents import to_document
from flows.draft.inspection import StartedSpecification, inspect_catalog, inspect_file
from flows.errors import TrainingError, UsageError
from flows.models.model import read_model
from flows.reports.answers import training_answers
from flows.specification.specification import Candidate
from flows.specification.toml_file import parse_specification, read_specification
from tests.flows.conftest import write_parquet
from tests.flows.starting import gathered, start_of, started
from tests.flows.verbs import train

DATA = Path(__file__).resolve().parents[4] / "shared" / "data"

REAL = {
    "openngc": ("openngc/openngc_galaxies.parquet", "Hubble", {"SurfBr", "Redshift"}),
    "sdss": ("sdss_dr14_10k/Skyserver_SQL2_27_2018.csv", "class", {"plate", "mjd", "objid"}),
    "gz2": ("gz2_table5/table5.fits.gz", "t01_smooth_or_features_a01_smooth_flag", {"objid", "ra"}),
    "6dfgs": ("sixdfgs/6dfgs_mini.xml.bz2", "galaxy", {"star", "SGFLAG", "TARGET"}),
}


def real(name: str) -> Path:
    path = DATA / REAL[name][0]
    if not path.exists():
        pytest.skip(f"{path} is not here")
    return path


def survey(n: int = 1500, *, seed: int = 3) -> pa.Table:
    """Return a survey with a leak, a derived leak, sentinels, an identifier, a constant and a duplicate."""
    rng = np.random.default_rng(seed)
    late = rng.random(n) < 0.5
    bmag, axis = rng.normal(15, 1.5, n), 10 ** rng.normal(0, 0.3, n)
    jmag = bmag - rng.normal(2.5 - 0.6 * late, 0.7)
    # The correction for the profile depends on the type: no single column says so.
    brightness = bmag + 5 * np.log10(axis) + 8.7 - 0.5 * late + rng.normal(0, 0.1, n)
    jmag[rng.random(n) < 0.1] = -9999
    return pa.table(
        {
            "objid": np.arange(n) + 2**60,
            "RA": rng.uniform(0, 360, n),
            "DEC": rng.uniform(-30, 30, n),
            "bmag": bmag,
            "jmag": jmag,
            "axis": axis,
            "mu": brightness,
            "answer": late * 1.0 + rng.normal(0, 0.1, n),
            "flag": np.ones(n),
            "again": bmag,
            "kind": np.where(late, "late", "early"),
        }
    )


@pytest.fixture
def made(tmp_path: Path) -> Path:
    pq.write_table(survey(), tmp_path / "survey.parquet", row_group_size=400)
    return tmp_path / "survey.parquet"


def test_inspection_finds_what_is_odd_and_an_unknown_label(made: Path) -> None:
    told = inspect_file(made, label="kind")
    json.dumps(to_document(told), allow_nan=False)
    columns = {c.name: c for c in told.columns}
    assert [s.value for s in columns["jmag"].sentinels] == [-9999]
    assert not any(c.sentinels for name, c in columns.items() if name != "jmag")
    assert columns["flag"].constant
    assert told.identifiers[0]["column"] == "objid"
    assert (told.position.ra, told.position.dec, told.position.unit) == ("RA", "DEC", "deg")
    assert told.duplicate_columns == (("bmag", "again"),)
    with pytest.raises(UsageError, match=r"--label: got 'kin', expected a column of .*; did you mean 'kind'"):
        inspect_file(made, label="kin")
    with pytest.raises(TrainingError, match=r"--label: got 'objid' with the labels .* expected at least two"):
        start_of(made, "objid")


def test_the_complement_of_a_vote_fraction_and_the_number_of_votes_are_no_features(tmp_path: Path) -> None:
    rng = np.random.default_rng(1)
    n, x = rng.integers(5, 45, 2500), rng.normal(size=2500)
    smooth = rng.binomial(n, 1 / (1 + np.exp(-2 * x))) / n
    votes = {"x": x, "n": n, "smooth": smooth, "disk": 1 - smooth, "again": smooth}
    pq.write_table(pa.table(votes), tmp_path / "votes.parquet")
    start = start_of(tmp_path / "votes.parquet", "smooth")
    assert set(start.features) == {"x"}
    assert start.left_out["disk"] == "leak: it is 1 - smooth, to rounding: the label in other numbers"
    assert start.left_out["n"] == "the number of votes of which smooth is a fraction"
    assert "again" in start.left_out
    leaks = inspect_file(tmp_path / "votes.parquet", label="smooth").label.leaks
    assert [(leak.columns, leak.combination) for leak in leaks[:2]] == [
        (("disk",), "1 - smooth"),
        (("again",), "smooth"),
    ]


def test_brightness_of_openngc_is_found_by_what_it_does() -> None:
    leaks = inspect_file(real("openngc"), label="Hubble").label.leaks
    assert {"SurfBr", "B-Mag", "MajAx"} in [set(leak.columns) for leak in leaks if leak.derived]
    assert all("SurfBr" in leak.columns for leak in leaks if leak.derived)


def test_redshift_of_sdss_gives_the_class_away(capsys: pytest.CaptureFixture[str]) -> None:
    label = inspect_file(real("sdss"), label="class").label
    assert [leak.columns for leak in label.leaks if len(leak.columns) == 1] == [("redshift",)]
    assert {"plate", "mjd"} <= set(label.bookkeeping)
    assert not any(leak.derived for leak in label.leaks)  # colours are no leaks
    assert run(["inspect", str(real("sdss")), "--label", "class"]) == 0
    said, n = capsys.readouterr().out, len(label.leaks)
    assert said.count("only together") == 5
    assert f"and {n - 6} more: --json has them" in said


@pytest.mark.usefixtures("few_draws")
@pytest.mark.parametrize("candidates", [1, pytest.param(99, marks=pytest.mark.long)])
def test_init_writes_what_trains(candidates: int, made: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = made.parent / "spec" / "first.toml"
    out.parent.mkdir()
    assert run(["init", str(made), "--label", "kind", "--out", str(out)]) == 0
    text = out.read_text()
    assert 'paths = ["../survey.parquet"]' in text
    assert "#   mu: leak: computed from" in text
    assert "# Suspect, kept: answer, by itself it gives" in text
    assert "log loss of a quick linear fit: 0." in text
    assert "#   again: the same as bmag" in text
    assert read_specification(out).select.by == "stack"
    out.write_text("[[candidate]]".join(text.split("[[candidate]]")[: candidates + 1]))
    told = train(out, made.parent / "models")
    assert set(told.features) == {"answer", "bmag_jmag", "bmag", "log_axis"}
    assert told.metrics.log_loss < told.metrics.log_loss_baseline
    use, *_ = training_answers(told)
    assert "features may give the class away (answer)" in use.short
    card = next((made.parent / "models").rglob("card.md")).read_text()
    assert "- The features use answer, which tells" in card
    capsys.readouterr()
    assert run(["init", str(made), "--label", "kind", "--out", str(out)]) == 1
    assert "exists, expected a new file; choose another name, or add --overwrite" in capsys.readouterr().err
    assert run(["train", str(out), "--dry-run"]) == 0
    assert "No object is held out" in capsys.readouterr().out
    copies = ["--out", str(made.parent / "annotated"), "--store", str(made.parent / "models")]
    assert run(["classify", str(made), "--model", "survey", *copies, "--direct"]) == 0
    assert "Next: blr census" in capsys.readouterr().out, "of objects that all have a label none is reviewed"


@pytest.mark.parametrize("keys", [{"id": "objid"}, {"ra": "RA", "dec": "DEC"}, {}])
def test_labels_of_another_file_are_joined_by_name_or_position(
    keys: dict[str, str], made: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    whole, out = pq.read_table(made), made.parent / "spec.toml"
    labels, other = made.parent / "labels.parquet", made.parent / "other.parquet"
    pq.write_table(pa.table({"objid": [5, 6], "kind": ["early", "late"]}), other)
    pq.write_table(whole.select([*keys.values(), "kind"]).slice(0, 900), labels)
    pq.write_table(whole.drop_columns(["kind"]), made)
    command = ["init", str(made), "--label", "kind", "--out", str(out)]
    assert run(command) == 2
    assert "name it with --labels of `blr init`" in capsys.readouterr().err
    assert run([*command, "--labels", str(other)]) == 1
    assert "2 labelled identifiers such as '5', but catalog.id = " in capsys.readouterr().err
    assert run([*command, "--labels", str(labels)]) == (0 if keys else 2)
    if not keys:
        assert "expected a column that names its objects, in" in capsys.readouterr().err
        return
    written = tomllib.loads(out.read_text())
    assert (written["label"]["table"], "target" in written) == ({"path": "labels.parquet", **keys}, True)
    counts = np.unique(whole["kind"].to_numpy()[:900], return_counts=True)[1]
    assert sorted(np.bincount(gathered(out.read_text(), made).target)) == sorted(counts)


@pytest.mark.usefixtures("few_draws")
def test_an_element_that_gives_the_class_away_is_told_by_the_training(tmp_path: Path) -> None:
    """The features name it `v[1]`, the columns of the catalogue `v`."""
    rng = np.random.default_rng(5)
    early = np.arange(200) < 100
    vectors = np.column_stack([rng.normal(size=200), early + rng.normal(0, 0.05, 200)])
    columns = {"v": vectors, "x": rng.normal(early, 1), "kind": np.where(early, "E", "S")}
    columns["MODELMAG"] = rng.normal(18, 1, (200, 2))  # no magnitude a row
    write_parquet(tmp_path / "x.parquet", columns)
    out = tmp_path / "x.toml"
    assert run(["init", str(tmp_path / "x.parquet"), "--label", "kind", "--out", str(out)]) == 0
    out.write_text("[[candidate]]".join(out.read_text().split("[[candidate]]")[:2]))
    use, *_ = training_answers(train(out, tmp_path / "models"))
    assert "features may give the class away (v[1])" in use.short


@pytest.mark.parametrize("unknown", [pytest.param("", marks=pytest.mark.long), "unknown"])
def test_labels_that_are_scarce(unknown: str, tmp_path: Path) -> None:
    """Of 100,000 rows 600 have a class: some hundred in a sample of all, too few for anything that is asked of them."""
    n = 100_000
    labelled = np.random.default_rng(4).random(n) < 600 / n
    rows = survey(n)
    kind = pa.array(np.where(labelled, rows["kind"].to_numpy(zero_copy_only=False), unknown))
    pq.write_table(
        rows.set_column(rows.schema.get_field_index("kind"), "kind", kind), tmp_path / "sparse.parquet"
    )
    label = inspect_file(tmp_path / "sparse.parquet", label="kind").label
    early, late = label.counts["early"], label.counts["late"]
    assert (label.sampled, early + late) == (np.sum(labelled), np.sum(labelled))
    assert label.unlabelled + label.counts.get("unknown", 0) == np.sum(~labelled)
    assert label.leaks[0].columns == ("answer",)
    assert any({"mu", "axis"} <= set(leak.columns) for leak in label.leaks if leak.derived)
    out = tmp_path / "spec.toml"
    assert run(["init", str(tmp_path / "sparse.parquet"), "--label", "kind", "--out", str(out)]) == 0
    assert "mu" not in read_specification(out).features.values()


@pytest.mark.parametrize(("rows", "held_out"), [(400, 0), (6250, 0), (100_000, 0.2)])
def test_candidates_are_the_default_ones_stacked_and_few_labels_all_train(
    rows: int, held_out: float, tmp_path: Path
) -> None:
    pq.write_table(survey(rows), tmp_path / "survey.parquet")
    text = start_of(tmp_path / "survey.parquet").text
    specification = parse_specification(text, source="init", base_folder=str(tmp_path))
    assert specification.select.by == "stack"
    assert specification.split.held_out == held_out
    listed = default_candidates(rows, len(specification.features), 2)
    assert specification.candidate == tuple(Candidate.stated(one) for one in listed)


@pytest.mark.long
@pytest.mark.parametrize("name", REAL)
def test_init_trains_on_real_catalogues(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path, (_, label, left_out) = real(name), REAL[name]
    # Relative paths in a specification start at its folder: link the catalogue beside it.
    monkeypatch.chdir(tmp_path)
    (tmp_path / path.name).symlink_to(path)
    start = start_of(tmp_path / path.name, label)
    assert left_out <= set(start.left_out)
    # Of OpenNGC's 28 types a person keeps eight: more take a minute.
    gone = tuple(f"{json.dumps(name)} = [" for name in [*start.classes][8:])
    lines = [line for line in start.text.splitlines() if not gone or not line.startswith(gone)]
    # Two of the candidates: the others, which other tests train, take a minute.
    text = "\n".join(lines).split("[[candidate]]")
    (tmp_path / "spec.toml").write_text("[[candidate]]".join(text[:3]) + "\n")
    told = train(tmp_path / "spec.toml", tmp_path / "models", limit=3000)
    assert told.status == "trial"
    if name != "sdss":  # of all its rows amber; the first 3,000 hold too few quasars
        assert told.trust.verdict in {"green", "amber"}
    assert told.metrics.log_loss < told.metrics.log_loss_baseline


def partly_labelled(folder: Path, *, labelled: int, unlabelled: int, mark: str = "") -> StartedSpecification:
    """Write a catalogue whose first rows are labelled, the others have the `mark`; return what init makes of it."""
    rng = np.random.default_rng(8)
    n = labelled + unlabelled
    red = rng.random(n) < 0.4
    kind = np.where(red, "early", "late").astype("U8")
    kind[labelled:] = mark
    columns = {"objid": np.arange(n) + 7_000_000, "g_r": rng.normal(0.5 + 0.3 * red, 0.2), "kind": kind}
    Table({**columns, "size": rng.lognormal(0.2 * red, 0.3)}).write(folder / "field.csv")
    return start_of(folder / "field.csv")


@pytest.mark.parametrize(("labelled", "mark"), [(300, ""), (300, "?"), (300, "unknown"), (900, "")])
def test_the_file_is_the_target_where_many_of_its_rows_have_no_label(
    tmp_path: Path, labelled: int, mark: str
) -> None:
    start = partly_labelled(tmp_path, labelled=labelled, unlabelled=1200 - labelled, mark=mark)
    is_target = labelled == 300
    assert tomllib.loads(start.text).get("target") == ({"paths": ["field.csv"]} if is_target else None)
    said = [line for line in start.summary if "target" in line]
    assert ["Most rows have no label (900; 300 train)" in line for line in said] == [True] * is_target


def test_codes_of_minus_one_are_rows_without_a_label(tmp_path: Path) -> None:
    rng, code = np.random.default_rng(8), np.repeat([0, 1, -1], [90, 90, 120])
    columns = {"objid": np.arange(300) + 7_000_000, "g_r": rng.normal(code), "code": code}
    start = started(tmp_path, columns, "code")
    said = tomllib.loads(start.text)
    assert (said["label"]["exclude"], said["target"]) == (["-1"], {"paths": ["x.parquet"]})
    assert any("Some rows have no label (120; 180 train)" in line for line in start.summary)
    head, *candidates = start.text.split("[[candidate]]")
    target = start.text[start.text.index("\n[target]") :]
    (tmp_path / "spec.toml").write_text(f"{head}[[candidate]]{candidates[0]}{target}")
    version = train(tmp_path / "spec.toml", tmp_path / "models").version
    training = read_model(tmp_path / "models" / "x" / version / "model.asdf").training
    assert (training.unlabelled, training.other_labels) == (120, {})


CDS = ("RAh", "RAm", "RAs", "DE-", "DEd", "DEm", "DEs")


@pytest.mark.parametrize(
    "names",
    [
        CDS,
        ("ra_h", "ra_m", "ra_s", "dec_sign", "dec_d", "dec_m", "dec_s"),
        ("RAh", "RAm", "DE-", "DEd", "DEm"),
        ("rahour", "ramin", "rasec", "decdeg", "decmin", "decsec"),
        ("GLON", "GLAT"),
        ("l", "b"),
        ("gal_lon", "gal_lat"),
    ],
)
def test_all_columns_of_a_position_are_its_parts(names: tuple[str, ...]) -> None:
    assert parts_of_positions([*names, "RAm_mag", "flux"]) == {*names}
    for some in (("ram", "flux"), ("dem", "des"), ("l", "r"), ("DEd", "DEm"), ("RAs", "RAm")):
        assert not parts_of_positions(some)  # names alone, or halves


@pytest.mark.parametrize(
    ("columns", "kind"),
    [
        ({name: [1, 2] for name in CDS}, "parts of sexagesimal angles"),
        ({"GLON": [10.0, 200.0], "GLAT": [-3.0, 5.0]}, "galactic coordinates"),
        ({"pos": pa.array([[10.0, 3.0], [200.0, 4.0]], pa.list_(pa.float64(), 2))}, "a vector"),
        ({"coord": pa.array([[1.0, 0.0, 0.0]] * 2, pa.list_(pa.float64(), 3))}, "a vector"),
    ],
)
def test_the_kind_is_told_with_how_two_columns_come_of_it(
    tmp_path: Path, columns: dict[str, Any], kind: str, capsys: pytest.CaptureFixture[str]
) -> None:
    catalog = catalogs.open(write_parquet(tmp_path / "x.parquet", columns | {"flux": [1.0, 2.0]}))
    found = find_other_position(catalog)
    assert found is not None
    assert (found[1].partition(":")[0], found[0]) == (kind, tuple(columns))
    told = inspect_catalog(catalog).position
    assert (told.ra, told.columns) == (None, (*columns,))
    assert run(["inspect", str(tmp_path / "x.parquet")]) == 0
    shown = " ".join(capsys.readouterr().out.split())
    assert f"Position: {', '.join(columns)} {kind}: to split or match by position" in shown


def test_parts_and_vectors_of_positions_are_no_features_and_magnitudes_called_so_are(tmp_path: Path) -> None:
    """`RAm`, the minutes of right ascension, was one."""
    rng = np.random.default_rng(0)
    n = 300
    columns = {name: rng.integers(0, 24, n) for name in CDS if name != "DE-"}
    columns |= {"DE-": rng.choice(["+", "-"], n), "l": rng.uniform(0, 360, n), "b": rng.uniform(-90, 90, n)}
    columns["pos"] = pa.array(rng.normal(size=(n, 3)).tolist(), pa.list_(pa.float64(), 3))
    start = started(tmp_path, columns | {"x": rng.normal(size=n), "kind": ["a", "b"] * (n // 2)})
    assert list(start.features.values()) == ["x"]
    assert "# The position is in RAh, RAm, RAs, DE-, DEd, DEm, DEs" in start.text
    magnitudes = {"b": rng.normal(15, 1, 200), "l": rng.normal(9, 1, 200), "kind": ["a", "b"] * 100}
    assert len(started(tmp_path, magnitudes).features) == 2
    assert inspect_catalog(catalogs.open(tmp_path / "x.parquet")).position is None


def test_without_other_coordinates_two_columns_are_a_place_by_names_and_values(tmp_path: Path) -> None:
    rng, n = np.random.default_rng(6), 500
    late = rng.random(n) < 0.5
    columns = {"ra": rng.uniform(280, 301, n), "dec": rng.uniform(36, 52, n)}
    columns |= {"size": late + rng.normal(size=n), "kind": np.where(late, "A", "B")}
    columns["cen_sra"], columns["cen_sdec"] = columns.pop("ra") / 15, columns.pop("dec")
    columns["off_sra"], columns["off_sdec"] = late + columns["size"], late - columns["size"]  # around zero
    columns["extra"] = columns["size"] ** 2  # no declination beside it
    start = started(tmp_path, columns)
    assert start.left_out["cen_sra"] == "a place or a direction on the sky, together with cen_sdec"
    assert start.left_out["cen_sdec"] == "a place or a direction on the sky, together with cen_sra"
    assert not {"off_sra", "off_sdec", "extra", "size"} & set(start.left_out)
