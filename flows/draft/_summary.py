"""What a first specification leaves out, in a few lines at its beginning."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from catalogs.errors import brief
from catalogs.profile.columns import Profile
from flows.draft._classes import StartingClasses
from flows.draft._columns import Chosen
from flows.draft._names import vector_name
from flows.draft._toml import comment_text, toml_text

__all__ = ["offer_lines", "reasons_of_vectors", "summary"]

MOST_NAMED = 6
"""Labels that a line names, and suspects."""


def summary(classes: StartingClasses, chosen: Chosen, other: Mapping[str, str], n_columns: int) -> list[str]:
    """Return what is left out, with counts, and the suspects; `n_columns` are all but the label.

    `other` are columns of which no number a row can be taken.
    """
    return [
        *_labels(classes),
        _columns(chosen, other, n_columns),
        *_offers(chosen),
        *_suspects(chosen),
    ]


def _labels(classes: StartingClasses) -> Iterator[str]:
    kept = sum(c.rows for c in classes.kept)
    for doubt, some in (("", classes.dropped), (" of doubt", classes.doubtful)):
        if some:
            what = f"label{'s' if len(some) > 1 else ''}{doubt}"
            total = kept + sum(classes.dropped.values()) + sum(classes.doubtful.values())
            yield (
                f"Left out: {len(some)} {what} with {sum(some.values()):,} of {total:,} labelled rows "
                f"({_named(some)})"
            )
    if classes.possible_counts is not None:
        least, most = classes.possible_counts
        yield (
            f"The labels are whole numbers from {least} to {most}. If they count votes, they are no classes: "
            "[label.votes] takes a column of counts for each class"
        )
    if not classes.dropped and not classes.doubtful:
        yield f"{len(classes.kept)} classes of all {kept:,} labelled rows: every label is in one"


def _columns(chosen: Chosen, other: Mapping[str, str], n_columns: int) -> str:
    counts = chosen.counted()
    if other:
        counts["no number a row"] += len(other)
    if not counts:
        return f"Left out: none of {n_columns} columns"
    kinds = ", ".join(f"{kind} {n}" for kind, n in counts.most_common())
    return f"Left out: {sum(counts.values())} of {n_columns} columns ({kinds}); each with its reason under [features]"


def _offers(chosen: Chosen) -> Iterator[str]:
    for offer in chosen.offers[:MOST_NAMED]:
        kind = chosen.kinds[offer.name]
        yield (
            f"Left out, but tells {offer.gain:.0%} of the class: {offer.name} ({kind}); lines to use it stand "
            "under [features]"
        )
    if len(chosen.offers) > MOST_NAMED:
        yield f"Left out, but tell of the class: {len(chosen.offers) - MOST_NAMED} more columns"


def offer_lines(chosen: Chosen) -> Iterator[str]:
    """Yield the lines of the columns that are left out and tell the class, as comments."""
    if chosen.offers:
        yield "# Left out, but they tell the class. Remove the # to use them, if the target has them made so too:"
    for offer in chosen.offers:
        for name, expression in offer.features.items():
            share = comment_text(f"{offer.name} tells {offer.gain:.0%} of the class")
            yield f"# {toml_text(name)} = {toml_text(expression)}  # {share}"


def _suspects(chosen: Chosen) -> Iterator[str]:
    for name, suspect in [*chosen.suspects.items()][:MOST_NAMED]:
        yield f"Suspect, kept: {name}, {suspect.shown}"
    if len(chosen.suspects) > MOST_NAMED:
        yield f"Suspects, kept: {len(chosen.suspects) - MOST_NAMED} more, which tell less"


def _named(some: Mapping[str, int]) -> str:
    shown = ", ".join(f"{brief(name)!r} {n:,}" for name, n in [*some.items()][:MOST_NAMED])
    return shown + (f", and {len(some) - MOST_NAMED} more" if len(some) > MOST_NAMED else "")


def reasons_of_vectors(left_out: Mapping[str, str], seen: Profile) -> dict[str, str]:
    """Return the reasons with a vector's name once, where the reason against all of its elements is the same."""
    reasons: dict[str, set[str | None]] = {}
    for name in seen.columns:
        reasons.setdefault(vector_name(name), set()).add(left_out.get(name))
    comment = {}
    for name, reason in left_out.items():
        whole = vector_name(name)
        comment[whole if reasons.get(whole) == {reason} else name] = reason
    return comment
