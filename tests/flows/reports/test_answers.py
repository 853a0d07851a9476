"""The answers at the beginning of a report follow from the numbers, and have advice."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import fields, replace
from html import escape, unescape
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from blr.census.results import Census, ClassCensus, SelectionCensus
from catalogs.profile.quality import Quality, SuspectedLeak
from flows.documents import word_table
from flows.models.description import ComparedTarget, ModelDescription, TargetShift
from flows.reports.answers import answer_lines, training_answers
from flows.reports.catalogue_page import (
    ClassificationReport,
    classification_answers,
    render_classification,
    use_lines,
)
from flows.reports.counts import census_table, first_words
from flows.reports.data import Made, NotableObject, ReportNotes
from flows.reports.report_table import named
from flows.reports.tables import class_tables
from flows.runs.results import (
    ClassEstimate,
    ClassificationTrial,
    Counts,
    FeatureDrift,
    FlagCount,
    ShiftRecord,
    Summary,
)
from tests.flows.reports.test_report import changed, make_model, page_of, verdict
from tests.flows.verbs import classify

COUNTS = ((600, 200, 0), (100, 900, 0), (10, 30, 0))


NOTES = ReportNotes(
    made=Made(when="2026-11-23T05:00:00+00:00", who="ann"),
    objects=(NotableObject(name="NGC1", ra=10.0, dec=-3.0, why="labelled early"),),
)


def told(**values: object) -> ModelDescription:
    whole = make_model(("early", "late", "odd"))
    labels = replace(whole.training.labels, conflicts=2)
    given: dict[str, object] = {
        "confusion": COUNTS,
        "accuracy": 1500 / 1840,
        "n": 1840,
        "n_unclassified": 7,
        "held_out_counts": tuple(map(sum, COUNTS)),
        "n_read": 20_000,
        "n_selected": 15_000,
        "unlabelled": 40,
        "unknown_labels": {"E?": 2_900, "S?": 53},
        "labels": labels,
        "trust": verdict("green"),
    }
    return changed(whole, **{**given, **values})


def quality_of(**found: object) -> Quality:
    unknown = ("repeated_identifiers", "repeated_positions", "positions_without", "positions_out_of_range")
    nothing = {"missing": {}, "outliers": {}, "absent": {}}
    nothing |= dict.fromkeys(("constant", "duplicate_columns"), ()) | dict.fromkeys(unknown)
    return Quality(
        **nothing | {"n_rows": 9, "n_files": 1, "catalogue": "a", "leaks": (), "commented_out": ""} | found
    )


def with_suspects(**suspects: str) -> ModelDescription:
    return told(quality=(quality_of(suspects=suspects),))


LEAK = SuspectedLeak(columns=("disk",), gain=0.97, beyond=0.97, used=True)


def target(auc: float) -> TargetShift:
    compared = ComparedTarget(name="release.fits", n_rows=9, n_compared=9, content_hash="")
    found = {"auc": auc, "auc_low": auc - 0.01, "auc_high": auc + 0.01}
    return TargetShift(
        target=compared, **found, advice="", density_weights=False, n_training=9, n_effective=9.0
    )


def test_suspects_are_in_the_answer_itself_for_a_terminal_has_no_room_for_all_findings() -> None:
    answers = training_answers(with_suspects(**{f"z{i}": "a distance" for i in range(6)}), NOTES.objects)
    named = ", ".join(f"z{i} (a distance)" for i in range(2)) + ", and 4 more"
    without = training_answers(told(), NOTES.objects)
    assert named in answers[4].short
    assert answers[0] == without[0], "the verdict stays"
    lines = answer_lines(answers)
    assert len(lines) == 10
    assert any(named in line for line in lines)
    assert "Suspects:" not in without[4].short


def test_completeness_and_purity_are_those_of_the_counts() -> None:
    early, late, odd = class_tables(told())[0].rows
    assert early == ("early", "800", "43.5%", "75.0% (71.9% to 77.9%)", "710", "84.5% (81.7% to 87.0%)")
    assert late[1:5:3] == ("1,000", "1,130")
    assert odd[3:] == ("0.0% (0.0% to 8.8%)", "0", "–")


@pytest.mark.parametrize(
    ("changes", "begins", "says"),
    [
        ({"shift": target(0.52)}, "Yes:", "computed rightly"),
        ({}, "Yes:", "Of objects unlike the labelled ones nothing is known"),
        ({"shift": target(0.9)}, "Yes, with care:", "unlike the training set"),
        ({"quality": (quality_of(leaks=(LEAK,)),)}, "Yes, with care:", "(disk)"),
        ({"trust": verdict("amber", "The shift is 1.2 sd.")}, "Yes, with care:", "err by 0.020 ± 0.005"),
        ({"trust": verdict("red", "it is separable")}, "Its classes, yes; its probabilities", "err by 0.020"),
        ({"trust": verdict("green", known="red")}, "No:", "not known to predict better"),
        ({"log_loss": 0.65}, "Yes, with care:", "it removes 4% of the doubt that class shares leave"),
    ],
)
def test_the_answer_on_use_follows_the_worst_of_the_four(
    changes: dict[str, object], begins: str, says: str
) -> None:
    use, *four, _, _ = training_answers(told(**changes), NOTES.objects)
    assert use.short.startswith(begins)
    assert says in use.short
    worst = [answer for answer in four if answer.level in ("bad", "care")]
    assert all(answer.findings for answer in worst), "each says what to do"
    assert bool(worst) == (begins != "Yes:")


JARGON = re.compile(
    r"k-hat|\bnats?\b|AUC|Occam|shift norm|log loss|log evidence|BIC|posterior\b(?! =)|plug-in|logit|moderation"
)


def sentences(page: str) -> list[str]:
    text = unescape(re.sub(r"<style>.*?</style>|<script>.*?</script>", " ", page, flags=re.DOTALL))
    pieces = re.findall(r">([^<]+)<", text)
    said = [s.strip() for piece in pieces for s in re.split(r"(?<=[.!?]) ", piece)]
    return [s for s in said if len(s.split()) > 4 and s.endswith((".", "!", "?"))]


def test_the_page_of_a_classification_is_plain_and_says_nothing_twice(trained: Path, tmp_path: Path) -> None:
    """It explains three objects however many files there are."""
    (tmp_path / "two").mkdir()
    table = pq.read_table(trained / "survey.parquet")
    for name, part in (("a.parquet", table.slice(0, 200)), ("b.parquet", table.slice(200))):
        pq.write_table(part, tmp_path / "two" / name)
    classify([tmp_path / "two"], model="morphology", store=trained / "models", out=tmp_path / "out")
    page = (tmp_path / "out" / "report.html").read_text()
    assert page.count(") rather than ") == 2 * 3, "caption and region"
    text = re.sub(r"<style>.*?</style>|<[^>]*>", " ", page, flags=re.DOTALL)
    before, last = text.split("Why this class?")
    assert not JARGON.search(before)
    assert last.count("What a feature adds to the logarithm of") == 1
    said = sentences(page)
    assert len(said) > 20
    assert [s for s in set(said) if said.count(s) > 1] == []


def test_of_many_classes_a_sentence_names_the_first() -> None:
    assert named(("early", "late")) == "early, late"
    assert named(tuple("abcdefgh")) == "8 classes (a, b, c and 5 more)"
    assert first_words("abcdefgh") == "a, b, c, d, e, f and 2 classes more, in the table"


def test_no_word_of_statisticians_stands_before_the_last_sections() -> None:
    """Evidence, nats and the reasons of the verdict have a line of explanation each in the last section."""
    reasons = ("22% of the mixture: k-hat 1.03 of importance draws", "the shift norm is 2.1")
    page = page_of(told(trust=verdict("amber", *reasons), shift=target(0.9)), NOTES)
    text = re.sub(r"<style>.*?</style>|<[^>]*>", " ", page, flags=re.DOTALL)
    before, last = text.split("For statisticians")
    assert not JARGON.search(before)
    for word in ("k-hat 1.03", "shift norm", "Occam factor", "nats"):
        assert word in last
    assert {"k-hat", "nat", "Occam factor", "shift norm", "BIC", "slope"} <= word_table("terms.toml").keys()


def test_no_sentence_of_the_page_is_said_twice() -> None:
    page = page_of(with_suspects(z="a distance"), NOTES)
    said = sentences(page)
    assert len(said) > 30
    assert [s for s in set(said) if said.count(s) > 1] == []


def test_skill_of_an_unknown_size_is_probable_and_no_more_than_all_doubt_is_removed() -> None:
    skill = replace(told().metrics.skill, gain=0.3, low=0.02, high=2.0)
    few = told(skill=skill, trust=verdict("green", known="amber"))
    use, *_, known = training_answers(few, NOTES.objects)[:4]
    assert known.short.startswith("Probably: it is right for")
    than = "better than the class shares alone"
    assert use.short == f"Yes, with care: it is not known how much {than} it predicts."
    assert "to 100% at 95%)" in known.findings[0].what


def test_what_is_odd_is_said_once_and_named_in_the_headline() -> None:
    odd = training_answers(told(), NOTES.objects)[5]
    said = " ".join(f.what + f.advice for f in odd.findings)
    for words in (
        "2,953 objects have a label that belongs to no class",
        "E? (2,900)",
        "40 objects have no label",
        "5,000 rows are outside",
        "labels in conflict (2 objects)",
        "7 held-out objects",
        "Few held-out objects are assigned to odd (0, where 40 are labelled so)",
        'To find its objects, state completeness = { "odd" = 0.9 } under [flags], selected = true under [output]',
    ):
        assert words in said
    assert odd.level == "care"
    assert odd.short == (
        "Look at: labels of no class (2,953 objects), labels in conflict (2 objects), objects without any feature (7), "
        "classes seldom assigned (1)."
    )
    page = page_of(told(), NOTES)
    for finding in odd.findings:
        assert finding.what not in odd.short
        assert page.count(escape(finding.what)) == 1, "said once on the page"
    few = training_answers(told(unknown_labels={"E": 1}), NOTES.objects)[5]
    assert "labels of no class (1 object)" in [f.short for f in few.findings]
    counted = replace(few, short="Counted: objects without a label (40).")
    assert not [line for line in answer_lines([counted]) if "40 objects have no label" in line]
    odd = classification_answers(classified(summary(flags=flagged(OUT_OF_DOMAIN=0.002))))[6]
    assert odd.short == "Nothing out of the ordinary. Counted: objects unlike the training set (0.2%)."
    assert classification_answers(classified(summary(flags={})))[6].short.startswith("Nothing: every file")


def test_the_terminal_has_ten_lines_at_most_with_every_question() -> None:
    for changes in ({}, {"shift": target(0.9), "trust": verdict("red", "separable")}):
        answers = training_answers(told(**changes), NOTES.objects)
        lines = answer_lines(answers)
        assert len(lines) <= 10
        for answer in answers:
            assert sum(line.startswith(answer.question) for line in lines) == 1


def test_the_page_opens_with_the_answers_and_ends_with_the_candidates() -> None:
    page = page_of(told(), NOTES)
    order = (
        "by ann",
        "Can I use it?",
        "<b>Reliability",
        "<b>Confusion",
        "computed rightly?",
        "Does 70 % mean 70 %?",
        "more than the class shares?",
        "hold for the objects to classify?",
        "What is new or odd?",
        "What should I look at?",
        "legacysurvey.org/viewer?ra=10.000000",
        "<h2>More pictures",
        "Errors caught by review</caption>",
        '<table class="sortable">',
        "Words of this section",
    )
    places = [page.index(words) for words in order]
    assert places == sorted(places)


def summary(*, drifted: Sequence[str] = (), **values: object) -> Summary:
    """Return the summary of a classification, in which some features have drifted, with other values."""
    error = {"error": 31.4, "error_objects": None, "error_weights": None}
    classes = {
        name: ClassEstimate(assigned=5000 + i, expected=4987.25, **error)
        for i, name in enumerate(("early", "late"))
    }
    flags = {"LOW_CONFIDENCE": FlagCount(bit=0, meaning="near one half", count=2911, share=0.2767)}
    counts = Counts(n_rows=10_521, n_classified=10_521, classes=classes, flags=flags, missing={})
    nothing = dict.fromkeys((f.name for f in fields(FeatureDrift)), 0.0)
    drift = {name: FeatureDrift(**nothing | {"index": 1.0}) for name in drifted}
    whole = Summary(**vars(counts) | {"model": "m@1"}, shift=ShiftRecord(), drift=drift)
    return replace(whole, **values)


def classified(found: Summary, **more: object) -> ClassificationReport:
    good = changed(make_model(), log_loss=0.4, accuracy=0.8).metrics
    made = Made(when="2026-11-23T05:00:00+00:00", who="ann")
    report = ClassificationReport(
        catalogue="openngc.fits", summary=found, trust=verdict("green"), metrics=good, made=made, release=3
    )
    return replace(report, **more)


def test_a_classification_is_answered_for() -> None:
    classes = summary().classes
    classes = {**classes, "rare": classes["early"] | {"assigned": 4, "expected": 9.0}}
    classes["few"] = classes["early"] | {"assigned": 0, "expected": 4.0}  # that may be chance
    flags = flagged(OUT_OF_DOMAIN=0.19)
    found = summary(n_classified=10_500, flags=flags, drifted=("b_j",), classes=classes)
    troubled = classified(found, quarantined={"b.fits": "truncated"}, deferred={"c.fits": "being written"})
    use, *_, quality, odd, look = classification_answers(troubled)
    assert use.short.startswith("Yes, with care: these objects are unlike the training set in b_j")
    assert quality.short.startswith("10,500 of 10,521 objects are classified: early")
    said = " ".join(f.what for f in odd.findings)
    for words in (
        "1 file could not be annotated; first b.fits: truncated",
        "1 file left for the next run; first c.fits: being written",
        "19.0%",
        "b_j",
        "Few objects are assigned to rare (4, where 9 are expected)",
    ):
        assert words in said
    assert "No object is named" in look.short


def counted(name: str, **fields: object) -> ClassCensus:
    purity = {"purity": 0.951, "purity_low": 0.93, "purity_high": 0.97}
    completeness = {"completeness": 0.8, "completeness_low": 0.75, "completeness_high": 0.85}
    chosen = SelectionCensus(threshold=0.83, stated="purity 0.95", objects=4_000, **purity, **completeness)
    count = {"count": 5_000.0, "low": 4_800.0, "high": 5_200.0, "source": "model", "assumes": "shares"}
    selections = (chosen,) if name == "early" else ()
    return ClassCensus(**count | {"reason": "chosen by a test", "selections": selections} | fields)


def test_a_classification_with_a_census_is_answered_by_it() -> None:
    classes = {name: counted(name) for name in ("early", "late")}
    census = Census(n_rows=10_000, level=0.95, classes=classes)
    quality = classification_answers(classified(summary(n_classified=10_000, census=census)))[5]
    assert quality.short == (
        "10,000 of 10,521 objects are classified: early 50.0% (48.0% to 52.0%), late 50.0% (48.0% to 52.0%)."
    )
    (rests,) = (f.what for f in quality.findings)
    assert rests == 'The counts are from the model, assuming "shares": chosen by a test'
    nothing = {"count": None, "low": None, "high": None, "source": "cannot be said", "selections": ()}
    unsaid = {name: counted(name, **nothing, reason="They do not look alike.") for name in classes}
    census = replace(census, classes=unsaid)
    quality = classification_answers(classified(summary(census=census)))[5]
    assert quality.short.endswith("by sums of probabilities; the true counts are not known.")
    assert quality.level == "care"
    assert quality.findings[0].what == "The counts are not known: they do not look alike"
    assert (census_table(census).rows, "They do not look alike." in census_table(census).note) == ((), True)
    assert ">Census<" not in render_classification(classified(summary(census=census)))
    contradicted = classified(summary(census=replace(census, contradicted=True)))
    use, _, _, _, holds = classification_answers(contradicted)[:5]
    reason = "the census finds the objects without a label unlike the labelled ones"
    assert (use.short, holds.level) == (f"Yes, with care: {reason}.", "care")


def flagged(**shares: float) -> dict[str, FlagCount]:
    return {
        name: FlagCount(bit=3, meaning="unlike", count=round(10_521 * share), share=share)
        for name, share in shares.items()
    }


@pytest.mark.parametrize(
    ("colour", "drifted", "says"),
    [
        ("green", (), "yes."),
        ("amber", (), "yes, with care: probabilities err by 0.020 ± 0.005 on average"),
        ("red", (), "its classes, yes; its probabilities, not yet:"),
        ("green", ("b_j",), "yes, with care: these objects are unlike the training set in b_j."),
    ],
)
def test_a_large_part_beyond_the_labels_is_refused_first(
    colour: str, drifted: tuple[str, ...], says: str
) -> None:
    flags = flagged(OUT_OF_DOMAIN=0.779, BEYOND_LABELS=0.898)
    found = summary(flags=flags, drifted=drifted)
    trust = classification_answers(classified(found, trust=verdict(colour)))[0]
    first = "Not for 90% of the objects: they are beyond the range of the labelled objects (BEYOND_LABELS)."
    assert trust.short.startswith(f"{first} For the others: {says}")
    assert trust.level == "bad"
    trial = ClassificationTrial(status="trial", model="morphology@1", summary=found, rows=())
    line, advice = use_lines(trial)
    assert line == f"Can I use it? {first}"
    assert "Label some of them and train again" in advice
    few = replace(found, flags=flagged(OUT_OF_DOMAIN=0.1, BEYOND_LABELS=0.19))
    assert use_lines(replace(trial, summary=few)) == []
    assert "Not for" not in classification_answers(classified(few))[0].short
    skilless = classified(found, trust=verdict("green", known="red"))
    assert classification_answers(skilless)[0].short.startswith("No: it is not known")


def test_how_unlike_the_target_is_stands_in_words_of_one_syllable() -> None:
    same, unlike = (training_answers(told(shift=target(auc)), NOTES.objects)[4] for auc in (0.52, 0.94))
    assert same.short == "Yes: the objects of release.fits look like the labelled ones."
    assert unlike.short == "With care: the objects of release.fits are unlike the labelled ones."
    assert "the labelled one in 94.0 of 100 tries (93.0 to 95.0 at 90 %" in unlike.findings[0].what


def test_an_audit_is_spoken_of_once() -> None:
    looked = "people looked at 58 of 60 objects that were drawn by design"
    own = {
        "early": "the model says 5 (3 to 6), which agrees",
        "late": "the model says 9 (8 to 10), which the audit rejects",
    }
    classes = {
        name: counted(name, source="audit", assumes=None, reason=f"{looked}; {said}", selections=())
        for name, said in own.items()
    }
    census = Census(n_rows=10_000, level=0.95, classes=classes)
    said = f"{looked[1:]}; early: {own['early']}; late: {own['late']}"
    assert census_table(census).note == f"Of 10,000 objects with probabilities. P{said}."
    quality = classification_answers(classified(summary(census=census)))[5]
    assert quality.findings[0].what == f"The counts are from an audit: p{said}"
