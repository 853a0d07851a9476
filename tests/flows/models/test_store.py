"""The model store: versions, champions, references, rows that a model keeps, and model files that are damaged."""

from __future__ import annotations

import copy
import json
import os
import shutil
import struct
import time
import tracemalloc
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import asdf
import numpy as np
import pytest

from blr.calibration import paired_gain
from flows.cli._list import run_list
from flows.cli.app import run
from flows.errors import ModelError
from flows.models.model import digest, make_version, read_model, read_tree, write_tree
from flows.models.row_files import judged_rows, unseen_rows
from flows.models.store import Store
from flows.specification.toml_file import load_specification
from tests.catalogs.text.test_text import MERGE_KEYS
from tests.flows.verbs import classify

SCHEMA = Path(__file__).parents[3] / "flows" / "schemas" / "model-1.yaml"


@pytest.fixture
def store(trained: Path, tmp_path: Path) -> Store:
    """Return a copy of the store, to be harmed."""
    shutil.copytree(trained / "models", tmp_path / "models")
    return Store(tmp_path / "models")


def changed(path: Path, **changes: object) -> None:
    """Write a model file again, its digest right, with something else in it."""
    tree = {k: v for k, v in read_tree(path).items() if k not in ("asdf_library", "history")} | changes
    write_tree(tree | {"digest": digest(tree)}, path)


def test_a_saved_model_has_card_and_report_and_is_found(store: Store) -> None:
    folder = store.find("morphology").folder
    assert {p.name for p in folder.iterdir()} == {
        "model.asdf",
        "judged.asdf",
        "labelled_rows.parquet",
        "card.md",
        "report.html",
        "description.json",
        "report-notes.json",
    }
    assert "morphology@" in (folder / "card.md").read_text()
    assert [p.name for p in (store.root / "morphology").iterdir() if p.name.startswith(".")] == []
    found = store.find("morphology")
    assert store.find(found.label) == store.find(f"morphology@{found.version[:6]}") == found
    assert found.champion
    assert [m.label for m in store.models()] == [found.label]
    with pytest.raises(ModelError, match=r"got no model 'm', .*`blr train SPEC --store /"):
        store.find("m")


def test_promotion_is_logged(store: Store) -> None:
    first = store.find("morphology")
    second = replace(store.load("morphology"), version="0123456789ab")
    store.save(second, card="")
    assert store.champion("morphology") == first.version
    assert store.find(first.label, newest=True).version == first.version
    described = first.folder / "description.json"
    described.write_text(described.read_text().replace('"trained": "202', '"trained": "201'))
    os.utime(first.path, (4e9, 4e9))  # as in a copy of the store
    assert store.find("morphology", newest=True).version == "0123456789ab"
    done = store.promote(store.find("morphology@0123456789ab"), why="a test", who="a test")
    assert (done.previous, store.champion("morphology")) == (first.version, "0123456789ab")
    assert [p.version for p in store.history("morphology")] == [first.version, "0123456789ab"]
    assert store.find("morphology").version == "0123456789ab"
    other = store.folder("morphology", "0123456789ab")
    shutil.rmtree(other)
    shutil.copytree(first.folder, other)
    with pytest.raises(ModelError, match="move the folder back to its place"):
        store.load("morphology@0123456789ab")


def test_the_version_is_of_what_goes_in(trained: Path) -> None:
    specification = load_specification(trained / "spec.toml")
    version = make_version(specification, "c" * 64, "1.0")
    assert version == make_version(specification, "c" * 64, "1.0")
    others = [
        make_version(specification.model_copy(update={"seed": 1}), "c" * 64, "1.0"),
        make_version(specification, "d" * 64, "1.0"),
        make_version(specification, "c" * 64, "1.1"),
    ]
    assert len({version, *others}) == 4


@pytest.mark.parametrize(
    "change",
    [
        *(lambda _, key=key: {key: 3} for key in ("classes", "classifier", "specification", "version")),
        # `blr inspect --json` could not write such values.
        lambda tree: {"metrics": tree["metrics"] | {"log_loss": float("nan")}},
        lambda _: {"classes": [np.zeros(0)] * 2},
    ],
)
def test_a_tree_with_a_part_missing_or_wrong(store: Store, change: Callable[[Any], dict[str, Any]]) -> None:
    path = store.find("morphology").path
    changed(path, **change(read_tree(path)))
    with pytest.raises(ModelError, match=r"damaged model file.*restore it from a copy, or delete its folder"):
        store.load("morphology")


def test_damage_anywhere_is_found(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    path = store.find("morphology").path
    whole = path.read_bytes()
    rng = np.random.default_rng(5)
    harmless = 0
    for place in rng.integers(0, len(whole), 24):
        path.write_bytes(whole[:place] + bytes([whole[place] ^ 0x11]) + whole[place + 1 :])
        try:
            read_model(path)
        except ModelError:
            continue
        harmless += 1  # the padding of a block, the names of ASDF's own software
    assert harmless < 8
    for cut in (0, 4, 300, len(whole) // 2, len(whole) - 1):
        path.write_bytes(whole[:cut])
        if cut < len(whole) - 1:
            with pytest.raises(ModelError):
                read_model(path)
    monkeypatch.setattr("flows.models.model._read", lambda _: [0] * 2**60)
    with pytest.raises(MemoryError):  # no file is at fault
        read_model(path)


NAMED = "!core/ndarray-1.1.0 {source: %s, datatype: float64, byteorder: little, shape: [2]}"
HARM = {
    "an array at a URL": (NAMED % "'http://127.0.0.1:9/x'", "names the array 'http://127.0.0.1:9/x'"),
    "an array in an endless file": (NAMED % "'file:///dev/zero'", "names the array 'file:///dev/zero'"),
    "an array of a block that is not there": (NAMED % "99999", "names the array '99999'"),
    "an array in the text": ("!core/ndarray-1.1.0 [1, 2]", "described as blr does not"),
    "a larger array": ((NAMED % "0").replace("[2]", "[90000]"), "too small"),
    "a complex number": (
        "!core/complex-1.0.0 1+1j",
        "holds a 'core/complex-1.0.0', which blr does not write",
    ),
    "an object": (
        "!!python/object/apply:os.system [true]",
        "'tag:yaml.org,2002:python/object/apply:os.system'",
    ),
    "brackets": ("[" * 60_000 + "]" * 60_000, "more than 64 levels deep"),
    "a number to the base 60": ("1" + ":1" * 200_000, "do not match the checksum"),
    "a number of many digits": ("9" * 100_000, "do not match the checksum"),
    "merge keys": (MERGE_KEYS, "more than 500,000 values"),
    "a reference to itself": ("&a [*a]", "which is not complete before"),
}


@pytest.mark.parametrize("harm", HARM)
def test_a_model_file_opens_nothing_and_takes_no_time(
    store: Store, capsys: pytest.CaptureFixture[str], harm: str
) -> None:
    """It is refused as a damaged model, in a second, whatever its text names or repeats."""
    path = store.find("morphology").path
    value, why = HARM[harm]
    path.write_bytes(
        path.read_bytes().replace(b"\ncode_version:", f"\nzz: {value}\ncode_version:".encode(), 1)
    )
    before = time.process_time()
    status = run(["models", "show", "morphology", "--store", str(store.root)])
    assert time.process_time() - before < 10
    said = capsys.readouterr().err
    assert status == 1
    assert f"{path}: got a damaged model file (" in said
    assert why in said
    assert "restore it from a copy" in said


def test_the_library_of_the_standard_reads_our_file(store: Store) -> None:
    """Text, blocks and checksums; and the schema that we publish fits."""
    path = store.find("morphology").path
    ours = read_tree(path)["classifier"]["moments"]["covariance"]
    with asdf.open(path, validate_checksums=True, custom_schema=SCHEMA) as file:
        np.testing.assert_array_equal(file["classifier"]["moments"]["covariance"], ours)


def test_we_read_what_the_library_writes(tmp_path: Path) -> None:
    path = tmp_path / "x.asdf"
    whole = np.arange(12.0).reshape(3, 4)
    tree = {
        "arrays": [whole, whole[1:, ::2], whole.T.astype(">f4"), np.array([True]), np.array(3, dtype="u1")],
        "words": ["yes", "1:30", "1e5", "010", "~", "", "2001-01-01", "=", "é", "a: b", "- x"],
        "numbers": [1, -(2**62), 1e-8, 1e20, float("inf"), float("-inf"), 0.5, True, None],
    }
    asdf.AsdfFile(tree).write_to(path)
    for _ in range(2):
        read = read_tree(path)
        for array, expected in zip(read["arrays"], tree["arrays"], strict=True):
            np.testing.assert_array_equal(array, expected, strict=array.dtype.kind != "f")
        assert (read["words"], read["numbers"]) == (tree["words"], tree["numbers"])
        write_tree({key: read[key] for key in tree}, path)


def test_claims_are_refused_before_memory_is_taken_for_them(tmp_path: Path) -> None:
    path = tmp_path / "model.asdf"
    write_tree({"format": "blr-model", "a": np.arange(100.0)}, path)
    whole = path.read_bytes()
    assert read_tree(path)["a"].shape == (100,)

    def refused(content: bytes, why: str) -> None:
        path.write_bytes(content)
        tracemalloc.start()
        with pytest.raises(ModelError, match=why):
            read_tree(path)
        largest = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        assert largest < 50e6

    shape = b"shape: [100]"
    assert shape in whole
    refused(whole.replace(shape, b"shape: [10000000000000]"), "buffer is too small")
    refused(whole.replace(shape, b"shape: [10000000000]\n  strides: [0]"), "claims to hold more data")
    head = b"format: blr-model\n"
    again = b"b: [" + b", ".join([NAMED.encode() % b"0"] * 1000).replace(b"[2]", b"[100]") + b"]\n"
    refused(whole.replace(head, head + again), "claims to hold more data than its")
    asdf.AsdfFile({"a": np.zeros(10_000_000)}).write_to(path, all_array_compression="zlib")
    refused(path.read_bytes(), "blocks compressed by b'zlib', which blr does not use")
    at = whole.index(b"\xd3BLK") + 14  # the sizes of the block: allocated, used, inflated
    refused(
        whole[:at] + struct.pack(">3Q", *[1 << 50] * 3) + whole[at + 24 :],
        "a block claims 1,125,899,906,842,624 bytes",
    )


def arrays_in(node: Any, place: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Yield the place of each array in a tree."""
    if isinstance(node, np.ndarray):
        yield place
    parts = node.items() if isinstance(node, dict) else enumerate(node) if isinstance(node, list) else ()
    for key, value in parts:
        yield from arrays_in(value, (*place, key))


def test_arrays_of_another_shape_are_the_models_fault(store: Store) -> None:
    """The digest is right, and each array in turn is longer, shorter, deeper, empty or not finite.

    Of arrays of one name, as each member has them, one is changed.
    """
    path = store.find("morphology").path
    tree = read_tree(path)
    changes = [
        lambda a: np.concatenate([a, a]) if a.ndim else np.stack([a, a]),
        lambda a: a.ravel()[:0],
        lambda a: a[None],
        lambda a: np.full(a.shape, np.nan),
    ]
    refused = 0
    places = {tuple(key for key in place if isinstance(key, str)): place for place in arrays_in(tree)}
    for place in places.values():
        for change in changes:
            other = copy.deepcopy(tree)
            part: Any = other
            for key in place[:-1]:
                part = part[key]
            part[place[-1]] = change(part[place[-1]])
            write_tree(other | {"digest": digest(other)}, path)
            try:
                model = read_model(path)
            except ModelError:
                refused += 1
            else:  # more draws of the same posterior
                assert place[-1] == "draws"
                assert len(model.classifier.members[0].posterior.draws) > 0
    assert refused > 20


def test_an_asdf_file_of_something_else(tmp_path: Path) -> None:
    asdf.AsdfFile({"x": 1}).write_to(tmp_path / "x.asdf")
    with pytest.raises(ModelError, match="is not a model"):
        read_model(tmp_path / "x.asdf")


@pytest.mark.parametrize("changes", [{"name": "../elsewhere"}, {"version": "../elsewhere"}])
def test_a_model_is_called_as_its_specification(store: Store, changes: dict[str, object]) -> None:
    path = store.find("morphology").path
    changed(path, **changes)
    with pytest.raises(ModelError, match=r"it is called .*elsewhere.*, expected morphology@VERSION"):
        read_model(path)


def test_a_model_whose_classes_no_columns_can_tell_apart_is_refused_before_any_work(
    store: Store, trained: Path, tmp_path: Path
) -> None:
    """Training refuses such; a file may be another program's."""
    changed(store.find("morphology").path, classes=["Early", "early"])
    with pytest.raises(ModelError, match=r"class 'early' would clash with class 'Early'.*, and train again"):
        classify([trained / "survey.parquet"], model="morphology", store=store.root, out=tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_a_list_shows_what_else_lies_in_a_store(store: Store, capsys: pytest.CaptureFixture[str]) -> None:
    """A copy of a folder, and a champion that version control could not merge."""
    shutil.copytree(store.root / "morphology", store.root / "a copy")
    (store.root / "morphology" / "champion").write_text("<<<<<<< HEAD\n")
    run_list(store=store.root, json=True)
    listed = json.loads(capsys.readouterr().out)["models"]
    assert {(one["name"], one["champion"]) for one in listed} == {("a copy", True), ("morphology", False)}


def test_a_list_says_of_a_described_model_what_its_file_says(
    store: Store, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = store.find("morphology").folder
    run_list(store=store.root, json=True)
    (quick,) = json.loads(capsys.readouterr().out)["models"]
    losses, metrics = judged_rows(folder)["log_loss"], store.load("morphology").metrics
    by_hand = paired_gain(np.zeros(len(losses)), losses)
    assert (quick["log_loss_low"], quick["log_loss_high"]) == pytest.approx((by_hand.low, by_hand.high))
    assert quick["log_loss_low"] < metrics.log_loss < quick["log_loss_high"]
    assert (quick["log_loss"], quick["judged_on"]) == (metrics.log_loss, metrics.n)
    for text in ("", "[]", '{"model": "other@0123456789ab"}'):
        (folder / "description.json").write_text(text)
        run_list(store=store.root, json=False)
        assert "cannot be read" in capsys.readouterr().out
    store.save(replace(store.load("morphology"), version="0123456789ab"), card="")
    store.reject(store.find("morphology@0123456789ab"), why="loses the dwarfs", who="C. Critic")
    run_list(store=store.root, json=False)
    said = capsys.readouterr().out
    assert "morphology@0123456789ab: C. Critic rejected it on 20" in said
    assert "loses the dwarfs" in said


def test_a_training_keeps_them(trained: Path) -> None:
    """They are the rows that the model was judged on: their losses are those of the judgement."""
    stored = Store(trained / "models")
    model, folder = stored.load("morphology"), stored.find("morphology").folder
    rows = unseen_rows(folder, classes=len(model.classes), features=len(model.features))
    assert len(rows.y) == model.metrics.n - model.metrics.n_unclassified
    losses = -np.log(rows.probability[np.arange(len(rows.y)), rows.y])
    judged = judged_rows(folder)["log_loss"]
    assert np.isin(losses.round(9), judged.round(9)).all()
