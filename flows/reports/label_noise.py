"""What a report says of wrong labels: their shares with intervals, and what the labels that judge then say."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

__all__ = ["noise_words"]


def noise_words(noise: Mapping[str, Any]) -> Iterator[str]:
    """Yield the sentences on what a training noted as `label_noise`; none where labels are taken to be right."""
    if not noise:
        return
    if noise["by"] == "stated":
        yield f"Labels may be wrong, in shares that the specification states: {_listed(noise['rates'])}."
    else:
        yield (
            f"Labels may be wrong, in shares found from {noise['rows']:,} training rows with 95 % intervals: "
            f"{_listed(noise['rates'])}."
        )
    for name, rates in noise.get("annotators", {}).items():
        yield f"Wrong labels by {noise['column']} '{name}': {_listed(rates)}."
    yield "Probabilities are of the true class, not of what would be recorded."
    if "log_loss" in noise:
        yield (
            "The labels that judge the model are as wrong as those that train it. Scores are therefore of the "
            f"probability of what was recorded (log loss {noise['log_loss']:.4f} nats an object); against the recorded "
            f"labels the probabilities of the true class have {noise['log_loss_of_true_classes']:.4f}, which says "
            "little of them where labels are wrong."
        )


def _listed(rates: Mapping[str, Mapping[str, float]]) -> str:
    return ", ".join(f"{name} {_share(found)}" for name, found in rates.items())


def _share(found: Mapping[str, float]) -> str:
    if "low" not in found:
        return f"{found['rate']:.1%}"
    return f"{found['rate']:.1%} ({found['low']:.1%} to {found['high']:.1%})"
