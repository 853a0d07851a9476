"""The answers at the beginning of a report follow from the numbers, and have advice."""

from __future__ import annotations

from dataclasses import replace
from html import escape

import numpy as np
import pytest

from blr.census.results import Census, ClassCensus, SelectionCensus
from flows.reports._per_class import class_performance
from flows.reports.answers import answer_lines, training_answers
from flows.reports.catalogue_answers import (
    ClassifyingModel,
    ReleaseTroubles,
    classification_answers,
    trusted_in_part,
)
from flows.reports.census import census_table
from flows.reports.data import FlagShare, LeftOutRows, TrainReport, Verdict
from flows.reports.html import render_report
from flows.reports.picture_data import Made, NotableObject, StoredPictures
from flows.reports.shift import ComparedTarget, SetDifference, TargetShift
from flows.reports.tables import review_table
from tests.flows.reports.test_report import make_report

COUNTS = ((600, 200, 0), (100, 900, 0), (10, 30, 0))


def report(**changes: object) -> TrainReport:
    whole = make_report(("early", "late", "odd"))
    given: dict[str, object] = {
        "confusion": COUNTS,
        "accuracy": 1500 / 1840,
        "labels": tuple(replace(c, held_out=sum(n)) for c, n in zip(whole.labels, COUNTS, strict=True)),
        "trust": Verdict("green"),
        "left_out": LeftOutRows(
            n_read=20_000,
            n_selected=15_000,
            unlabelled=40,
            unknown_labels={"E?": 2_900, "S?": 53},
            conflicts=2,
            without_features=7,
        ),
        "objects": (NotableObject(name="NGC1", ra=10.0, dec=-3.0, why="labelled early"),),
        "made": Made("2026-11-23T05:00:00+00:00", "ann"),
    }
    return replace(whole, **{**given, **changes})


def target(auc: float) -> TargetShift:
    compared = ComparedTarget(name="release.fits", n_rows=9, n_compared=9, content_hash="")
    return TargetShift.of(
        SetDifference(
            target=compared,
            auc=auc,
            auc_low=auc - 0.01,
            auc_high=auc + 0.01,
            advice="",
            density_weights=False,
            n_training=9,
            n_effective=9.0,
        )
    )


def test_suspects_are_in_the_answer_itself_for_a_terminal_has_no_room_for_all_findings() -> None:
    suspects = {f"z{i}": "a distance" for i in range(6)}
    trust, *rest = training_answers(report(suspects=suspects))
    named = "Suspects among the features: z0, z1, z2, z3, and 2 more."
    without = training_answers(report())[0]
    assert trust.short == f"{without.short} {named}"
    assert trust.level == without.level
    assert "Suspects: z0 (a distance), z1 (a distance)" in trust.findings[-1].what
    lines = answer_lines([trust, *rest])
    assert len(lines) == 10
    assert named in lines[0]
    assert "Suspects" not in without.short


def test_completeness_and_purity_are_those_of_the_counts() -> None:
    early, late, odd = class_performance(COUNTS, ("early", "late", "odd"))
    assert (early.completeness.value, early.purity.value) == pytest.approx((600 / 800, 600 / 710))
    assert early.completeness.low < 0.75 < early.completeness.high
    assert early.share == pytest.approx(800 / 1840)
    assert (late.n, late.n_assigned) == (1000, 1130)
    assert odd.purity.value is None
    assert odd.completeness.value == 0


@pytest.mark.parametrize(
    ("changes", "begins", "says"),
    [
        ({"shift": target(0.52)}, "Yes:", "looks like the training set"),
        ({}, "Yes:", "no target was named"),
        ({"shift": target(0.9)}, "Yes, with care:", "unlike the training set"),
        ({"leaks": {"disk": "disk, which tells 97% of the class by itself"}}, "Yes, with care:", "(disk)"),
        ({"trust": Verdict("amber", ("The shift is 1.2 sd.",))}, "Yes, with care:", "1.2 sd"),
        (
            {"trust": Verdict("red", ("it is separable",))},
            "Its classes, yes; its probabilities",
            "it is separable",
        ),
        ({"log_loss": 0.7}, "No:", "not known to predict better"),
    ],
)
def test_the_answer_on_trust_follows_the_worst_of_three(
    changes: dict[str, object], begins: str, says: str
) -> None:
    answer = training_answers(report(**changes))[0]
    assert answer.short.startswith(begins)
    assert says in answer.short
    worst = [f for f in answer.findings if f.level in ("bad", "care")]
    assert all(f.advice for f in worst)
    assert bool(worst) == (begins != "Yes:")


def test_what_was_left_out_and_what_is_never_assigned_is_said() -> None:
    odd = training_answers(report())[2]
    said = " ".join(f.what for f in odd.findings)
    for words in (
        "2,953 objects have a label that belongs to no class",
        "E? (2,900)",
        "40 objects have no label",
    ):
        assert words in said
    for words in ("5,000 rows are outside", "2 objects have labels in conflict", "7 held-out objects"):
        assert words in said
    assert "No held-out object is assigned to odd" in said
    assert odd.level == "care"


def test_the_headline_of_what_is_odd_names_the_findings_and_repeats_none() -> None:
    odd = training_answers(report())[2]
    assert odd.short == (
        "Look at: labels of no class (2,953 objects), labels in conflict (2 objects), objects without any feature (7), "
        "classes never assigned (1)."
    )
    assert not [f.what for f in odd.findings if f.what in odd.short]
    page = render_report(report())
    for finding in odd.findings:
        assert page.count(escape(finding.what)) == 1, "said once on the page"


def test_the_headline_says_that_nothing_needs_a_look() -> None:
    found = replace(make_report().classifications[0], flags=(), drifted=())
    few = FlagShare(bit=3, name="OUT_OF_DOMAIN", meaning="unlike", count=20, share=0.002)
    none = ReleaseTroubles(quarantined={}, deferred={})
    odd = classification_answers(replace(found, flags=(few,)), MODEL, [], none)[2]
    assert odd.short == "Nothing out of the ordinary. Counted: objects unlike the training set (0.2%)."
    assert classification_answers(found, MODEL, [], none)[2].short.startswith("Nothing: every file")


def test_the_terminal_has_ten_lines_at_most_with_every_question() -> None:
    for changes in ({}, {"shift": target(0.9), "trust": Verdict("red", ("separable",))}):
        lines = answer_lines(training_answers(report(**changes)))
        assert len(lines) <= 10
        for question in (
            "Can I trust it?",
            "How good is it?",
            "What is new or odd?",
            "What should I look at?",
        ):
            assert sum(line.startswith(question) for line in lines) == 1


def test_the_page_opens_with_the_answers_and_ends_with_the_candidates() -> None:
    page = render_report(report())
    places = [
        page.index(words)
        for words in (
            "by ann.",
            "Can I trust it?",
            "How good is it?",
            "What is new or odd?",
            "What should I look at?",
            "legacysurvey.org/viewer?ra=10.000000",
            "<h2>Pictures",
            "Errors caught by review</caption>",
            '<table class="sortable">',
        )
    ]
    assert places == sorted(places)


def test_a_model_of_an_earlier_version_says_what_is_missing() -> None:
    old = report(confusion=(), objects=(), pictures=None)
    page = render_report(old)
    assert "train it again to see them" in page
    assert "did not count right objects class by class" in page


MODEL = ClassifyingModel(
    label="m@1",
    has_skill=True,
    skill_words="Skill: it predicts better.",
    trust=Verdict("green"),
    accuracy=0.8,
    log_loss=0.4,
    judged_objects="100 held-out objects",
)


def test_a_classification_is_answered_for() -> None:
    found = make_report().classifications[0]
    flag = FlagShare(bit=3, name="OUT_OF_DOMAIN", meaning="unlike", count=2_000, share=0.19)
    found = replace(found, n_classified=10_500, flags=(flag,), drifted=("b_j",))
    found = replace(
        found, counts=(*found.counts, replace(found.counts[0], name="rare", assigned=0, expected=9.0))
    )
    troubles = ReleaseTroubles(quarantined={"b.fits": "truncated"}, deferred={"c.fits": "being written"})
    trust, quality, odd, look = classification_answers(found, MODEL, [], troubles)
    assert trust.short.startswith("Yes, with care: these objects are unlike the training set in b_j")
    assert quality.short.startswith("10,500 of 10,521 objects are classified: early")
    said = " ".join(f.what for f in odd.findings)
    for words in (
        "b.fits could not be annotated: truncated",
        "c.fits is left",
        "19.0%",
        "b_j",
        "rare (9 expected)",
    ):
        assert words in said
    assert "No object is named" in look.short


def test_many_files_in_trouble_are_cut() -> None:
    found = make_report().classifications[0]
    names = {f"{i}.fits": "gone" for i in np.arange(30)}
    odd = classification_answers(found, MODEL, [], ReleaseTroubles(quarantined=names, deferred={}))[2]
    assert len(odd.findings) == 9
    assert odd.findings[-1].what == "And 22 more files"


def counted(name: str, **fields: object) -> ClassCensus:
    purity = {"purity": 0.951, "purity_low": 0.93, "purity_high": 0.97}
    completeness = {"completeness": 0.8, "completeness_low": 0.75, "completeness_high": 0.85}
    chosen = SelectionCensus(threshold=0.83, stated="purity 0.95", objects=4_000, **purity, **completeness)
    said = ClassCensus(
        count=5_000.0,
        low=4_800.0,
        high=5_200.0,
        source="model",
        assumes="shares",
        reason="chosen by a test",
        selections=(chosen,) if name == "early" else (),
    )
    return replace(said, **fields)


def test_a_classification_with_a_census_is_answered_by_it() -> None:
    found = replace(make_report().classifications[0], n_classified=10_000)
    troubles = ReleaseTroubles(quarantined={}, deferred={})
    classes = {name: counted(name) for name in ("early", "late")}
    census = Census(n_rows=10_000, level=0.95, classes=classes)
    quality = classification_answers(replace(found, census=census), MODEL, [], troubles)[1]
    assert quality.short == (
        "10,000 of 10,521 objects are classified: early 50.0% (48.0% to 52.0%), late 50.0% (48.0% to 52.0%)."
    )
    _, rests, costs = (f.what for f in quality.findings)
    assert rests == 'The counts are from the model, assuming "shares": chosen by a test'
    assert "4,000 objects, purity 95.1% (93.0% to 97.0%)" in costs
    assert "20.0% of the class are lost" in costs
    nothing = {"count": None, "low": None, "high": None, "source": "cannot be said", "selections": ()}
    unsaid = {name: counted(name, **nothing, reason="They do not look alike.") for name in classes}
    found = replace(found, census=replace(census, classes=unsaid))
    quality = classification_answers(found, MODEL, [], troubles)[1]
    assert quality.short.endswith("by sums of probabilities; the true counts are not known.")
    assert quality.level == "care"
    assert quality.findings[1].what == "The counts are not known: they do not look alike"
    assert census_table(found.census).rows[0][1:5] == ("–", "–", "–", "–")


def flagged(name: str, share: float) -> FlagShare:
    return FlagShare(bit=3, name=name, meaning="unlike", count=round(10_521 * share), share=share)


@pytest.mark.parametrize(
    ("model", "drifted", "says"),
    [
        ({}, (), "yes."),
        ({"trust": Verdict("amber", ("The shift is 1.2 sd.",))}, (), "yes, with care: the approximation has"),
        (
            {"trust": Verdict("red", ("it is separable",))},
            (),
            "its classes, yes; its probabilities, not yet:",
        ),
        ({}, ("b_j",), "yes, with care: these objects are unlike the training set in b_j."),
    ],
)
def test_a_large_part_beyond_the_labels_is_refused_first(
    model: dict[str, object], drifted: tuple[str, ...], says: str
) -> None:
    flags = (flagged("OUT_OF_DOMAIN", 0.779), flagged("BEYOND_LABELS", 0.898))
    found = replace(make_report().classifications[0], flags=flags, drifted=drifted)
    none = ReleaseTroubles(quarantined={}, deferred={})
    trust = classification_answers(found, replace(MODEL, **model), [], none)[0]
    first = "Not for 90% of the objects: they are beyond the range of the labelled objects (BEYOND_LABELS)."
    assert trust.short.startswith(f"{first} For the others: {says}")
    assert trust.level == "bad"
    assert trusted_in_part(found).startswith(first)
    few = replace(found, flags=(flagged("OUT_OF_DOMAIN", 0.1), flagged("BEYOND_LABELS", 0.19)))
    assert trusted_in_part(few) == ""
    assert "Not for" not in classification_answers(few, MODEL, [], none)[0].short
    skilless = replace(MODEL, has_skill=False)
    assert classification_answers(found, skilless, [], none)[0].short.startswith("No: it is not known")


def test_a_target_unlike_the_training_set_is_odd() -> None:
    left = replace(report().left_out, unknown_labels={}, conflicts=0, without_features=0)
    same, unlike = (
        training_answers(report(shift=target(auc), left_out=left, confusion=PERFECT))[2]
        for auc in (0.52, 0.94)
    )
    assert same.short.startswith("Nothing out of the ordinary")
    assert unlike.short == "Look at: a target unlike the training set (AUC 0.94)."


PERFECT = ((600, 0, 0), (0, 900, 0), (0, 0, 340))


def test_a_model_without_errors_is_described_without_any() -> None:
    perfect = report(confusion=PERFECT, accuracy=1.0, objects=())
    answers = training_answers(perfect)
    assert "Each class is found equally: completeness 100.0%" in [f.what for f in answers[1].findings]
    assert answers[3].short.startswith("No objects are named: each of the held-out objects is assigned to")
    table = review_table(perfect)
    assert table.columns == ("least certain reviewed", "moderated", "random")
    assert {row[1:] for row in table.rows} == {("–", "–")}
    assert table.note.endswith("there are no errors to catch.")
    page = render_report(perfect)
    assert "No object is taken for one of another class." in page
    assert "Most often" not in page


CURVES = StoredPictures(threshold=np.zeros(1), completeness=np.zeros((3, 1)), purity=np.zeros((3, 1)))


def test_why_no_object_is_named_is_said() -> None:
    for changes, why in (
        ({"pictures": None}, "the model is of an earlier version"),
        ({"pictures": CURVES}, "catalog.id"),
    ):
        assert why in training_answers(report(objects=(), **changes))[3].short


def test_one_object_has_a_label() -> None:
    left = replace(report().left_out, unlabelled=1, unknown_labels={"E?": 1})
    said = [f.what for f in training_answers(report(left_out=left))[2].findings]
    assert "1 object has a label that belongs to no class, and trains nothing: E? (1)" in said
    assert "1 object has no label, and trains nothing" in said


def test_an_audit_is_spoken_of_once() -> None:
    looked = "people looked at 58 of 60 objects that were drawn by design"
    own = {
        "early": "the model says 5 (3 to 6), which agrees",
        "late": "the model says 9 (8 to 10), which the audit rejects",
    }
    for first in ("", "an audit: "):  # as earlier snapshots wrote
        classes = {
            name: counted(
                name, source="audit", assumes=None, reason=f"{first}{looked}; {said}", selections=()
            )
            for name, said in own.items()
        }
        census = Census(n_rows=10_000, level=0.95, classes=classes)
        said = f"{looked[1:]}; early: {own['early']}; late: {own['late']}"
        assert census_table(census).note == f"Of 10,000 objects with probabilities. P{said}."
        found = replace(make_report().classifications[0], census=census)
        quality = classification_answers(found, MODEL, [], ReleaseTroubles(quarantined={}, deferred={}))[1]
        assert quality.findings[1].what == f"The counts are from an audit: p{said}"
