"""What is gathered while rows stream by does not depend on how they are cut into batches."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pyarrow as pa
from astropy import units
from astropy_healpix import HEALPix

from blr.decisions import Flag
from flows.classification._tally import ObjectSurvey
from flows.runs.manifest import distinct_names

N, K = 500, 3
RNG = np.random.default_rng(0)
RA, DEC = RNG.uniform(0, 360, N), np.degrees(np.arcsin(RNG.uniform(-1, 1, N)))
P = RNG.dirichlet(np.ones(K), size=N)
P[::50] = np.nan
INFORMATION = np.where(np.isnan(P[:, 0]), np.nan, RNG.random(N))
FLAGS = np.where(RNG.random(N) < 0.4, int(Flag.LOW_CONFIDENCE), int(Flag.MISSING_INPUT)).astype(np.int32)
NAMES = [f"o{i % 400}" for i in range(N)]


def surveyed(size: int, order: int = 1) -> ObjectSurvey:
    survey = ObjectSurvey(("a", "b", "c"), "name", ("ra", "dec", "deg"))
    for start in [*range(0, N, size)][::order]:
        rows = slice(start, start + size)
        batch = pa.record_batch({"name": NAMES[rows], "ra": RA[rows], "dec": DEC[rows]})
        survey.add(batch, P[rows], INFORMATION[rows], FLAGS[rows])
    return survey


def test_counts_are_those_of_each_pixel() -> None:
    sky = surveyed(N).sky()
    assert sky is not None
    pixel = HEALPix(nside=2**sky.order, order="nested").lonlat_to_healpix(RA * units.deg, DEC * units.deg)
    assert sum(sky.n) == N
    for place, n, flagged, assigned in zip(sky.pixels, sky.n, sky.flagged, sky.assigned, strict=True):
        own = pixel == place
        assert n == own.sum()
        assert flagged == np.sum(own & (int(Flag.LOW_CONFIDENCE) == FLAGS))
        known = own & np.isfinite(P[:, 0])
        assert assigned == tuple(np.bincount(P[known].argmax(axis=1), minlength=K).tolist())


def test_batches_make_no_difference() -> None:
    whole, parts, reversed_parts = surveyed(N), surveyed(37), surveyed(37, order=-1)
    assert whole.sky() == parts.sky() == reversed_parts.sky()
    assert whole.doubtful() == parts.doubtful() == reversed_parts.doubtful()


def test_the_objects_are_those_of_the_largest_information_among_those_flagged() -> None:
    objects = surveyed(N).doubtful()
    assert len(objects) == 20
    assert len({o.id for o in objects}) == 20
    worth = np.flatnonzero((int(Flag.LOW_CONFIDENCE) == FLAGS) & np.isfinite(INFORMATION))
    best = worth[np.argmax(INFORMATION[worth])]
    first = objects[0]
    assert (first.id, first.mutual_information) == (NAMES[best], round(float(INFORMATION[best]), 6))
    assert first.probabilities[0] >= first.probabilities[1]
    assert [o.mutual_information for o in objects] == sorted(
        (o.mutual_information for o in objects), reverse=True
    )


def test_objects_with_a_label_are_not_worth_a_look() -> None:
    """By the slow way: the first of all that have none, in whatever batches."""
    every = surveyed(N).doubtful()
    names = [o.id for o in every[:15]] + ["o399"]
    found = []
    for size in (N, 37):
        survey = replace(ObjectSurvey(("a", "b", "c"), "name", None), labelled=distinct_names(names))
        for start in range(0, N, size):
            rows = slice(start, start + size)
            batch = pa.record_batch({"name": NAMES[rows]})
            survey.add(batch, P[rows], INFORMATION[rows], FLAGS[rows])
        found.append([o.id for o in survey.doubtful()])
    worth = np.flatnonzero((int(Flag.LOW_CONFIDENCE) == FLAGS) & np.isfinite(INFORMATION))
    ordered = [NAMES[i] for i in worth[np.argsort(-INFORMATION[worth])] if NAMES[i] not in names]
    assert found[0] == found[1] == list(dict.fromkeys(ordered))[:20]
    nobody = replace(ObjectSurvey(("a", "b", "c"), "name", None), labelled=distinct_names(NAMES))
    nobody.add(pa.record_batch({"name": NAMES}), P, INFORMATION, FLAGS)
    assert nobody.doubtful() == ()
