"""A release from its draft to a rollback, by the command line: who signs, what is visible when, what never changes."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from pyarrow.csv import write_csv

from tests.catalogs.hats_samples import write_collection
from tests.flows.verbs import reprocess, train
from tests.release.conftest import draft, publish, release
from tests.release.faults import File
from tests.release.fields import SPECIFICATION

DRAFT = Path("releases/parquet/.2.draft")


def drafted(survey: Path, *more: str) -> None:
    draft("parquet", "2", survey / "parquet-2" / "run", survey, *more)


def sign(*more: str) -> None:
    assert release("sign", "parquet", "2", *more) == 0


def classified_again(survey: Path, name: str) -> Path:
    """Classify what lies in NAME/survey; return the run's folder."""
    shutil.copy(survey / "spec.toml", f"{name}/spec.toml")
    reprocess(Path(f"{name}/spec.toml"), survey / "models", out=Path(f"{name}/run"), quiet_seconds=0)
    return Path(f"{name}/run")


def log() -> Any:
    return json.loads(Path("releases/parquet/releases.json").read_text())


@pytest.mark.usefixtures("here")
def test_copies_in_csv_are_checked_for_what_csv_can_hold(survey: Path, says: Any) -> None:
    Path("plain/survey").mkdir(parents=True)
    write_csv(pq.read_table(survey / "parquet-1/survey/field-0.parquet"), "plain/survey/field-0.csv")
    run = classified_again(survey, "plain")
    (run / "maps").mkdir()
    for name in ("review.csv", "maps/late-fraction.json"):  # what is for people is no part of a release
        (run / name).write_text("id,label\n")
    draft("plain", "1", run, survey)
    assert "flags, ranges, metadata, versions" in says(0, "check", "plain", "1").out  # those that passed


@pytest.mark.usefixtures("here")
def test_two_releases_and_a_rollback(says: Any) -> None:
    sign()
    assert log()["latest"] == "1"
    assert release("publish", "parquet", "2") == 0
    assert log()["latest"] == "2"
    assert release("publish", "parquet", "2") == 0  # again: nothing changes
    assert len(log()["events"]) == 2
    folder = Path("releases/parquet/2")
    names = {"README.md", "columns.csv", "CITATION.cff", "provenance.json", "KNOWN_ISSUES.md", "report.html"}
    assert names <= {path.name for path in folder.iterdir()}
    assert not any(path.stat().st_mode & 0o222 for path in folder.rglob("*") if path.is_file())
    assert release("verify", folder) == 0
    moved = shutil.copytree(folder, "elsewhere")
    assert release("verify", moved) == 0
    checks = json.loads((folder / "checks.json").read_text())
    assert checks["attributed"] == {"features": checks["class_changed"]}
    assert release("rollback", "parquet") == 2
    assert release("rollback", "parquet", "--why", "noise in field 4", "--by", "Grace") == 0
    assert log()["latest"] == "1"
    assert log()["events"][-1].items() >= {"who": "Grace", "why": "noise in field 4"}.items()
    assert folder.is_dir()
    said = says(2, "rollback", "parquet", "--why", "again").err
    assert "--to: got 'nothing', expected one of: 1, 2" in said


def test_who_signs(here: Path, monkeypatch: pytest.MonkeyPatch, says: Any) -> None:
    monkeypatch.setattr("flows.release.record.utc_now", lambda: "2026-11-28T12:00:00+00:00")
    drafted(here)
    assert release("check", "parquet", "2") == 0
    assert "Next: blr release publish parquet 2\n" in says(0, "sign", "parquet", "2", "--by", "Ada").out
    drafted(here)  # in the same second: the same bytes as those that were checked
    assert release("sign", "parquet", "2") == 1  # not checked
    assert release("check", "parquet", "2") == 0
    assert release("publish", "parquet", "2") == 1  # not signed
    monkeypatch.delenv("BLR_SIGNER")
    monkeypatch.setenv("LOGNAME", "root")
    assert "--by: got no name, and the user is root" in says(2, "sign", "parquet", "2").err
    assert release("sign", "parquet", "2", "--by", "Ada", "--refuse") == 2  # without a reason
    assert "Next:" not in says(0, "sign", "parquet", "2", "--by", "Ada", "--refuse", "--why", "too noisy").out
    assert "Ada has refused it: too noisy" in says(1, "publish", "parquet", "2").err
    assert log()["latest"] == "1"


@pytest.mark.usefixtures("here")
def test_a_stop_is_overridden_by_name_and_with_a_reason() -> None:
    file = File(DRAFT / "data" / "field-4.parquet")
    file.take(slice(0, len(file) - 1))
    file.write()
    assert release("check", "parquet", "2") == 1
    checks = json.loads((DRAFT / "checks.json").read_text())["checks"]
    stops = {c["name"] for c in checks if c["verdict"] == "stop"}
    assert {"checksums", "rows", "identifiers of the inputs"} <= stops
    assert release("sign", "parquet", "2") == 1
    overrides = [word for name in sorted(stops) for word in ("--override", name)]
    assert release("sign", "parquet", "2", *overrides) == 2  # no reason
    unknown = [*overrides, "--override", "positions", "--why", "known"]
    assert release("sign", "parquet", "2", *unknown) == 2  # says no stop
    sign(*overrides, "--why", "the last row is a ghost")
    signature = json.loads((DRAFT / "signature.json").read_text())
    assert (set(signature["overridden"]), signature["why"]) == (stops, "the last row is a ghost")


@pytest.mark.usefixtures("here")
def test_what_changes_after_the_signature_is_not_published(says: Any) -> None:
    sign()
    with (DRAFT / "README.md").open("a") as file:
        file.write("PS\n")
    assert "README.md: other bytes than were signed" in says(1, "publish", "parquet", "2").err
    assert log()["latest"] == "1"


def test_a_published_version_never_changes(here: Path, says: Any) -> None:
    assert release("draft", "parquet", "1", "--run", here / "parquet-2" / "run") == 2
    folder = Path("releases/parquet/1")
    for path in (folder / "data" / "field-3.parquet", folder / "columns.csv"):
        path.chmod(0o644)
        path.write_bytes(path.read_bytes() + b" ")
    (folder / "extra.txt").write_text("x")
    (folder / "CITATION.cff").unlink()
    faults = " ".join(json.loads(says(1, "verify", folder, "--json").out)["faults"])
    for said in ("data/field-3.parquet: other bytes", "columns.csv: other", "extra.txt: it was added"):
        assert said in faults
    assert "CITATION.cff: it is missing" in faults


def test_what_was_drafted_before_another_version_was_published_is_not(here: Path, says: Any) -> None:
    """It is compared with the version before that one."""
    sign()
    publish("parquet", "3", here / "parquet-2" / "run", here)
    assert "3 was published after this was drafted" in says(1, "publish", "parquet", "2").err
    assert log()["latest"] == "3"


@pytest.mark.usefixtures("here")
def test_no_rollback_to_a_version_whose_files_changed(says: Any) -> None:
    sign()
    assert release("publish", "parquet", "2") == 0
    path = Path("releases/parquet/1/data/field-3.parquet")
    path.unlink()
    assert "data/field-3.parquet: it is missing" in says(1, "rollback", "parquet", "--why", "noise").err
    shutil.rmtree("releases/parquet/1")
    assert release("rollback", "parquet", "--why", "noise") == 1
    assert log()["latest"] == "2"


@pytest.mark.usefixtures("here")
@pytest.mark.parametrize("lost", ["releases.json", "1/profile.json", "1/contract.json"])
def test_a_lost_last_release_is_told(lost: str, says: Any) -> None:
    """Not as another run's doing, and never passed over."""
    Path("releases/parquet", lost).unlink()
    assert "releases/parquet: got a release 1" in says(1, "check", "parquet", "2").err


@pytest.mark.usefixtures("here")
def test_a_key_signs_and_verifies(says: Any) -> None:
    key, other = Ed25519PrivateKey.generate(), Ed25519PrivateKey.generate()
    plain = serialization.NoEncryption()
    pem, form = serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8
    Path("key.pem").write_bytes(key.private_bytes(pem, form, plain))
    for name, one in (("public.pem", key), ("other.pem", other)):
        form = serialization.PublicFormat.SubjectPublicKeyInfo
        Path(name).write_bytes(one.public_key().public_bytes(serialization.Encoding.PEM, form))
    sign("--key", "key.pem")
    assert release("publish", "parquet", "2") == 0
    assert release("verify", "releases/parquet/2", "--key", "public.pem") == 0
    assert release("verify", "releases/parquet/2", "--key", "other.pem") == 1
    assert release("verify", "releases/parquet/1", "--key", "public.pem") == 1  # signed without a key
    path = Path("releases/parquet/2/signature.json")
    path.chmod(0o644)
    path.write_text(path.read_text().replace("Ada Lovelace", "Charles Babbage"))
    assert "its Ed25519 signature does not fit" in says(1, "verify", "releases/parquet/2").out


def test_a_killed_draft_is_begun_again(here: Path, says: Any) -> None:
    (DRAFT / "release.json").unlink()  # it is written last
    (DRAFT / "data" / "field-1.parquet").write_bytes(b"half")
    assert "which has no draft" in says(2, "check", "parquet", "2").err
    drafted(here)
    assert release("check", "parquet", "2") == 0


def test_a_file_and_a_model_are_enough_for_a_replay(here: Path, says: Any) -> None:
    (model,) = (here / "models" / "types").glob("*/model.asdf")
    shutil.copy(here / "parquet-2" / "run" / "field-2.parquet", "one.parquet")
    assert release("replay", "one.parquet", "--model", model) == 0
    file = File(Path("one.parquet"))
    file.columns["blr_p_early"][3], file.columns["blr_p_late"][3] = 0.5, 0.5
    file.write()
    said = says(1, "replay", "one.parquet", "--model", model, "--json").out
    assert json.loads(said)["differ"] == {"blr_p_early": 1, "blr_p_late": 1}
    shutil.copy(here / "parquet-2" / "run" / "field-2.parquet", "one.parquet")
    file = File(Path("one.parquet"))
    unsure = int((file.columns["blr_flags"] & 1).sum())
    file.columns["blr_flags"] &= ~1
    file.write()
    said = says(1, "replay", "one.parquet", "--model", model, "--json").out
    assert json.loads(said)["differ"] == {"blr_flags": unsure}


def test_labels_that_are_known(here: Path, says: Any) -> None:
    table = pq.read_table(here / "labelled.parquet", columns=["name", "hubble"])
    early, late = {"E", "E-S0", "S0", "S0-a"}, {"Sb", "Sc", "SBb", "SBc", "Sa"}
    labels = ["early" if h in early else "late" if h in late else "" for h in table["hubble"].to_pylist()]
    drafted(here)
    inverted = [{"early": "late", "late": "early"}.get(x, "") for x in labels]
    for name, words in (("right", labels), ("inverted", inverted)):
        pq.write_table(pa.table({"name": table["name"], "label": words}), f"{name}.parquet")
    truth = json.loads(says(0, "check", "parquet", "2", "--truth", "right.parquet", "--json").out)["truth"]
    value, low, high = truth["completeness of early"]
    assert 0.5 < low < value < high < 1
    assert "right since the last release" in truth
    told = json.loads(says(1, "check", "parquet", "2", "--truth", "inverted.parquet", "--json").out)
    assert any(c["name"] == "truth" and c["verdict"] == "stop" for c in told["checks"])


def test_a_companion_in_another_order_deserves_a_look(here: Path) -> None:
    files = sorted((here / "parquet-2" / "run").glob("field-*.parquet"))
    names = [name for path in files for name in pq.read_table(path)["name"].to_pylist()]
    for order, verdict in ((names, "pass"), (names[::-1], "look")):
        pq.write_table(pa.table({"name": order}), "shapes.parquet")
        drafted(here, "--companion", "shapes.parquet")
        assert release("check", "parquet", "2") == 0
        checks = json.loads((DRAFT / "checks.json").read_text())["checks"]
        (mine,) = (c for c in checks if c["name"] == "companion shapes.parquet")
        assert mine["verdict"] == verdict


@pytest.mark.usefixtures("here")
def test_a_folder_that_is_not_the_published_one_is_told(says: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """A draft, another release's files under the name, from within too, and a list that is no text."""
    sign()

    def verified(folder: str, fault: str) -> None:
        assert fault in says(1, "verify", folder).out

    verified(str(DRAFT), "releases.json: it lists no release in this folder")
    assert release("publish", "parquet", "2") == 0
    shutil.rmtree("releases/parquet/2")
    shutil.copytree("releases/parquet/1", "releases/parquet/2")
    verified("releases/parquet/2", "releases.json: it was published with another digest")
    monkeypatch.chdir("releases/parquet/2")
    verified(".", "releases.json: it was published with another digest")
    Path("SHA256SUMS").chmod(0o644)
    Path("SHA256SUMS").write_bytes(b"\xff" + Path("SHA256SUMS").read_bytes())
    verified(".", "signature.json: it is of another digest than SHA256SUMS")


def test_a_name_of_two_lines_is_listed_as_sha256sum_does(here: Path) -> None:
    files = sorted((here / "parquet-2" / "run").glob("field-*.parquet"))
    names = [name for path in files for name in pq.read_table(path)["name"].to_pylist()]
    pq.write_table(pa.table({"name": names}), "two\nlines.parquet")
    drafted(here, "--companion", "two\nlines.parquet")
    assert release("check", "parquet", "2") == 0
    sign()
    assert release("publish", "parquet", "2") == 0
    assert release("verify", "releases/parquet/2") == 0
    assert "  companions/two\\nlines.parquet\n" in Path("releases/parquet/2/SHA256SUMS").read_text()


def test_a_file_with_another_type_is_named_and_the_others_are_checked(here: Path) -> None:
    shutil.copytree(here / "parquet-2" / "survey", "mixed/survey")
    table = pq.read_table("mixed/survey/field-2.parquet")
    place = table.schema.get_field_index("bmag")
    field = table.schema.field(place).with_type(pa.float32())
    table = table.set_column(place, field, table["bmag"].cast(pa.float32()))
    pq.write_table(table, "mixed/survey/field-2.parquet")
    draft("parquet", "2", classified_again(here, "mixed"), here)
    assert release("check", "parquet", "2") == 1
    checks = json.loads((DRAFT / "checks.json").read_text())["checks"]
    types = [(c["file"], c["field"]) for c in checks if c["name"] == "types" and c["verdict"] == "stop"]
    assert types == [("field-2.parquet", "bmag")]


@pytest.mark.usefixtures("here")
def test_a_collection_of_hats_is_released_with_its_margin(says: Any) -> None:
    """Rows of a margin are there twice by right; what HATS says of its files is compared with them."""
    root = write_collection(Path("sky/survey"))
    for path in sorted(root.rglob("Npix=*.parquet")):
        table = pq.read_table(path)
        number = table["id"].to_numpy() - 2**60
        table = table.append_column("name", pa.array([f"G{n}" for n in number]))
        for k, name in enumerate(("bmag", "jmag", "kmag", "minax", "majax")):
            table = table.append_column(name, pa.array(10 + np.cos(number * (k + 1))))
        table = table.append_column("hubble", pa.array(np.where(np.sin(number) > 0, "E", "Sc")))
        pq.write_table(table, path)
        pq.write_table(table.slice(0, 1), path.parents[3] / "per_partition_statistics.parquet")
    Path("sky/spec.toml").write_text(SPECIFICATION.replace("labelled.parquet", "survey/stars/dataset"))
    train(Path("sky/spec.toml"), Path("sky/models"))
    done = reprocess(Path("sky/spec.toml"), Path("sky/models"), out=Path("sky/run"), quiet_seconds=0)
    assert any("stars_7200arcs" in name for name in done.files)
    publish("sky", "1", Path("sky/run"), Path("sky"))
    draft("sky", "2", Path("sky/run"), Path("sky"))
    told = json.loads(says(0, "check", "sky", "2", "--json").out)
    assert (told["n_rows"], told["compared"]) == (done.summary.n_rows, done.summary.n_rows)
    for properties in Path("releases/sky/.2.draft/data").rglob("*properties"):
        properties.write_text(properties.read_text().replace("nrows=100", "nrows=99"))
    assert "hats_nrows says 99 rows" in says(1, "check", "sky", "2").out


def test_a_patch_changes_listed_rows_only(here: Path, says: Any) -> None:
    shutil.copytree(here / "parquet-1" / "survey", "mended/survey")
    file = File(Path("mended/survey/field-5.parquet"))
    names = [str(name) for name in file.columns["name"][:3]]
    file.columns["bmag"][:3] = file.columns["jmag"][:3] + 1.5
    file.write()
    words = ("patch", "parquet", "1.1", "--run", classified_again(here, "mended"))
    words = (*words, "--store", here / "models", "--rows")
    pq.write_table(pa.table({"name": names[:2]}), "few.parquet")
    assert "1 rows change that are not listed, first row 2" in says(1, *words, "few.parquet").err
    pq.write_table(pa.table({"name": names}), "rows.parquet")
    assert release(*words, "rows.parquet", "--why", "wrong B") == 0
    assert release("sign", "parquet", "1.1") == 0
    assert release("publish", "parquet", "1.1") == 0
    table = pq.read_table("releases/parquet/1.1/data/patch.parquet")
    assert table["name"].to_pylist() == names
    assert "bmag" in table.column_names
    assert "vmag" not in table.column_names
    assert release("verify", "releases/parquet/1.1") == 0
    publish("parquet", "2", here / "parquet-2" / "run", here)  # compared with 1, which the patch is of
    assert json.loads(Path("releases/parquet/2/checks.json").read_text())["last"] == "1"


def test_a_specification_is_classified_where_no_reader_sees_it(here: Path) -> None:
    words = ("parquet", "2", "--spec", here / "parquet-2" / "spec.toml", "--store", here / "models")
    assert release("draft", *words) == 0
    assert release("check", "parquet", "2") == 0
    assert {path.name for path in Path("releases/parquet").glob("[!.]*")} == {"1", "releases.json"}
