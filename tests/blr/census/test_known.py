"""A target in which some objects have labels: these are counted, and only the others are estimated."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.special import expit

from blr.census.bins import BinnedRows, bin_shares
from blr.census.counts import count_classes, count_with_labels
from blr.census.shares import LabelledRows, TargetRows


def field(
    seed: int, *, n: int = 300, N: int = 1500, share: float = 0.25
) -> tuple[LabelledRows, TargetRows, np.ndarray, np.ndarray]:
    """Return labelled rows, a target of which they are a part, the known classes of its rows, and all classes.

    Objects of a class look alike everywhere; half of the labelled ones are of the first class, of the others `share`.
    """
    rng = np.random.default_rng(seed)
    y = (rng.random(N) > share).astype(np.intp)
    y[:n] = rng.random(n) > 0.5
    x = rng.normal(size=N) + 1.5 * y
    p = expit(1.5 * x - 0.5 * 1.5**2)  # at equal shares
    P, X = np.column_stack([1 - p, p]), x[:, None]
    labelled = LabelledRows(P[:n], y[:n], np.ones(n), X[:n])
    known = np.full(N, -1)
    known[:n] = y[:n]
    return labelled, TargetRows(P, np.ones(N), X, N), known, y


def test_counts_are_those_of_labels_and_of_the_others_object_by_object() -> None:
    """The slow way: the others are counted alone, and each labelled object is added to each draw."""
    labelled, target, known, _ = field(1)
    found = count_with_labels(labelled, target, known)
    rest = np.flatnonzero(known < 0)
    alone = count_classes(
        labelled, TargetRows(target.probability[rest], target.weight[rest], target.X[rest], len(rest))
    )
    assert alone.shares is not None
    assert found.shares is not None
    slow = []
    for draw in alone.shares.draws[:50]:
        counts = [float(share) * len(rest) for share in draw]
        for k in known.tolist():
            if k >= 0:
                counts[k] += 1
        slow.append([count / target.n_objects for count in counts])
    np.testing.assert_allclose(found.shares.draws[:50], slow, rtol=1e-12)
    assert found.counted.tolist() == np.bincount(known[known >= 0]).tolist()
    assert found.assumes == alone.assumes == "shares"
    assert (
        found.reason == f"300 objects have a label and are counted by it; of the 1,200 others: {alone.reason}"
    )


def test_a_sampled_target_stands_for_its_objects() -> None:
    """Every third row of either kind, with weight 3: the labels are counted in full."""
    labelled, target, known, _ = field(2)
    third = np.arange(0, 1500, 3)
    sampled = TargetRows(target.probability[third], np.full(500, 3.0), target.X[third], 1500)
    found = count_with_labels(labelled, sampled, known[third])
    assert found.counted.tolist() == (3 * np.bincount(known[third][known[third] >= 0])).tolist()
    assert (found.shares.draws * 1500 >= found.counted - 1e-9).all()


@pytest.mark.parametrize("left", [0, 7])
def test_where_nearly_all_have_labels_the_others_may_be_anything(left: int) -> None:
    labelled, target, _, y = field(3, n=300, N=300 + left)
    known = np.where(np.arange(300 + left) < 300, y, -1)
    found = count_with_labels(labelled, target, known)
    low, high = (end * target.n_objects for end in found.shares.interval())
    counted = np.bincount(y[:300])
    np.testing.assert_allclose(low, counted)
    np.testing.assert_allclose(high, counted + left)
    assert found.of_labels
    assert found.assumes is None
    assert "300 objects have a label" in found.reason


def test_any_of_many_classes_may_have_the_few_objects_without_a_label() -> None:
    K, rng = 60, np.random.default_rng(0)
    y = np.arange(600) % K
    p = np.eye(K)[y] * 0.9 + 0.1 / K
    labelled = LabelledRows(p, y, np.ones(600), rng.normal(size=(600, 2)))
    target = TargetRows(p[:307], np.ones(307), labelled.X[:307], 307)
    found = count_with_labels(labelled, target, np.where(np.arange(307) < 300, y[:307], -1))
    low, high = (end * 307 for end in found.shares.interval())
    np.testing.assert_allclose(low, np.bincount(y[:300], minlength=K))
    np.testing.assert_allclose(high, low + 7)
    np.testing.assert_allclose(found.shares.mean.sum(), 1)


def test_without_labels_the_counts_are_the_models() -> None:
    labelled, target, known, _ = field(4)
    found = count_with_labels(labelled, target, np.full_like(known, -1))
    np.testing.assert_array_equal(found.shares.draws, count_classes(labelled, target).shares.draws)
    assert found.counted is None


def test_what_cannot_be_said_of_the_others_is_not_said_of_all() -> None:
    labelled, target, known, _ = field(5)
    far = TargetRows(target.probability, target.weight, target.X + np.where(known < 0, 40, 0)[:, None], 1500)
    found = count_with_labels(labelled, far, known)
    assert found.shares is None
    assert found.contradicted
    assert found.reason.startswith(
        "300 objects have a label and are counted by it; of the 1,200 others: the labelled objects do not"
    )


def test_few_objects_of_which_nothing_can_be_said_may_be_of_any_class() -> None:
    labelled, target, _, y = field(8)
    known = np.where(np.arange(1500) < 1400, y, -1)
    far = TargetRows(target.probability, target.weight, target.X + np.where(known < 0, 40, 0)[:, None], 1500)
    found = count_with_labels(labelled, far, known)
    assert found.shares is not None
    low, high = (end * 1500 for end in found.shares.interval())
    np.testing.assert_allclose(low, np.bincount(y[:1400]))
    np.testing.assert_allclose(high, low + 100)
    assert found.of_labels
    assert found.contradicted
    assert "may be of any class, which the intervals hold. No more can be said of them" in found.reason


def test_bins_add_up_to_the_whole() -> None:
    labelled, target, known, _ = field(6)
    found = count_with_labels(labelled, target, known, assumes="shares")
    places = BinnedRows((labelled.X[:, 0] > 1).astype(np.intp), (target.X[:, 0] > 1).astype(np.intp), 2)
    shares = bin_shares(labelled, target, found, places)
    total = np.einsum("b,sbk->sk", shares.n_objects / 1500, shares.draws).mean(axis=0)
    np.testing.assert_allclose(total, found.shares.mean, atol=0.01)


@pytest.mark.parametrize("wrong", [np.zeros(3, dtype=np.intp), np.full(1500, 2), np.full(1500, -2)])
def test_known_classes_fit_the_target(wrong: np.ndarray) -> None:
    labelled, target, _, _ = field(7)
    with pytest.raises(ValueError, match=r"got known classes of shape \(\d+,\), expected \(1500,\)"):
        count_with_labels(labelled, target, wrong)
