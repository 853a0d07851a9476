"""Answers of several people: votes where they differ, abstentions, weights of drawn lists."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import catalogs
from flows.errors import SpecificationError, TrainingError
from flows.labels.reader import read_reviews
from flows.specification.catalog import Label
from flows.specification.toml_file import parse_specification
from flows.training._gather import gather

CLASSES = {"early": ["E", "S0"], "late": ["Sb", "Sc"]}


def written(folder: Path, **tables: str) -> list[Path]:
    paths = []
    for name, text in tables.items():
        paths.append(folder / f"{name}.csv")
        paths[-1].write_text(text)
    return paths


def test_answers_that_differ_are_votes_and_spellings_of_a_class_agree(tmp_path: Path) -> None:
    paths = written(
        tmp_path,
        a="name,label\nA,early\nB,E\nC,late\nD,?\nE,early\nF,?\n",
        b="name,label\nA,S0\nB,Sc\nC,\nD,late\nE,late\nE,Sb\nF,?\n",
    )
    found = read_reviews(paths, "name", Label(column="hubble", classes=CLASSES))
    assert found.labels == {"A": "E", "B": "E", "C": "Sb", "D": "Sb", "E": "Sb", "F": "?"}
    assert found.votes == {
        "B": {"E": 0.5, "Sc": 0.5},
        "E": {"Sb": pytest.approx(2 / 3), "E": pytest.approx(1 / 3)},
    }
    assert found.shown_disputes == {"B": ("E", "Sc"), "E": ("Sb", "E")}
    assert found.weights == {}


def test_weights_are_of_drawn_objects_and_have_mean_one_in_each_list(tmp_path: Path) -> None:
    paths = written(
        tmp_path,
        a="name,how,weight,label\nA,drawn,10,E\nB,drawn,30,E\nC,drawn,999,\nD,top,1,Sc\n",
        b="name,weight,label\nE,2,E\nA,6,E\n",
    )
    label = Label(column="hubble", classes=CLASSES, extra=("a.csv",), review_weights=True)
    assert read_reviews(paths, "name", label).weights == {"A": 1.0, "B": 1.5, "E": 0.5}
    written(tmp_path, a="name,how,weight,label\nA,drawn,0,E\n")
    with pytest.raises(
        TrainingError, match=r"not positive numbers, the first for 'A',.*review_weights = false"
    ):
        read_reviews(paths, "name", label)
    with pytest.raises(ValueError, match="'review_weights' without 'extra'"):
        Label(column="hubble", review_weights=True)
    with pytest.raises(SpecificationError, match="without the column 'objid'"):
        read_reviews(paths, "objid", label)


def test_an_object_in_dispute_trains_as_the_shares_of_its_answers(folder: Path) -> None:
    """Once for each class, its weights summing to one: on the same side of the split, and no conflict of rows."""
    written(folder, a="name,label\nG00000,early\nG00001,early\nG00002,Sb\n", b="name,label\nG00000,late\n")
    text = (folder / "spec.toml").read_text().replace("[label]\n", '[label]\nextra = ["a.csv", "b.csv"]\n')

    def rows(text: str) -> Any:
        specification = parse_specification(text, source="here", base_folder=str(folder))
        return gather(specification, [catalogs.open(folder / "survey.parquet")])

    found = rows(text)
    mine = np.flatnonzero(found.rows.identifier == b"G00000")
    assert len(mine) == 2
    assert found.rows.weight[mine].tolist() == [0.5, 0.5]
    assert [found.classes[k] for k in found.rows.target[mine]] == ["early", "late"]
    assert len(set(found.rows.held_out[mine])) == len(set(found.rows.group[mine])) == 1
    assert found.sample.labels.repeated == 0
    others = np.delete(found.rows.weight, mine)
    assert (others == 1).all()
    told = found.sample.labels
    assert (told.disputed, told.weighted, told.weighted_as) == (1, 0, None)
    assert told.disputing == {"G00000": ("E", "Sb")}

    drawn = "name,how,weight,label\nG00001,drawn,1,early\nG00002,drawn,3,Sb\n"
    written(folder, a=drawn, b="name,label\nG00000,late\n")
    weighted = rows(text.replace("[label]\n", "[label]\nreview_weights = true\n"))
    index = {name.decode(): i for i, name in enumerate(weighted.rows.identifier.tolist())}
    assert [weighted.rows.weight[index[name]] for name in ("G00000", "G00001", "G00002")] == [1, 0.5, 1.5]
    assert weighted.sample.labels.weighted_as == pytest.approx(4 / 2.5)
    assert weighted.sample.content_hash != rows(text).sample.content_hash
