"""The table [output]: what annotated catalogues look like."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Literal

from pydantic import Field

from flows.specification._fields import SpecificationTable
from flows.specification.label import Label

__all__ = ["Output", "check_selected", "check_sets"]

MOST_SET_CLASSES = 31
"""Most classes of prediction sets: each has a bit of a 32-bit integer, whose last bit is the sign."""


class Output(SpecificationTable):
    """What annotated catalogues look like."""

    folder: str = Field(
        default="annotated", description="Folder of the copies, relative to the specification"
    )
    columns: Literal["standard", "full"] = Field(default="standard", description="Which columns are added")
    mode: Literal["annotated", "slim"] = Field(
        default="annotated",
        description="Every input column and the new ones, or id, position and the new ones",
    )
    format: Literal["same", "parquet", "fits"] = Field(
        default="same", description="Format of the copies: each input's own, or another"
    )
    sets: float | None = Field(
        default=None,
        ge=0.5,
        lt=1,
        description="Add the prediction set: classes not excluded; objects of a class keep it in this share of cases",
    )
    set_thresholds: dict[str, Annotated[float, Field(ge=0, lt=1)]] = Field(
        default={},
        description="Class = probability from which on it is in the set, as `blr audit estimate --sets` prints; "
        "default: learnt from labelled rows",
    )
    selected: bool | Literal["bins"] = Field(
        default=False,
        description="Add a column for each class of flags.purity and flags.completeness: whether an object is "
        'selected; "bins" for a threshold in each bin of census.by',
    )
    prefix: str = Field(
        default="blr_",
        pattern=r"^[A-Za-z_][A-Za-z0-9_]{0,15}$",
        description="Prefix of the new columns' names",
    )

    @property
    def form(self) -> str | None:
        """The format of the copies; None for the format of each input."""
        return None if self.format == "same" else self.format


def check_sets(output: Output, label: Label, n_classes: int | None = None) -> None:
    """Raise ValueError where prediction sets are not possible with these labels, or with so many classes."""
    if output.sets is None:
        if output.set_thresholds:
            raise ValueError(
                "output.set_thresholds: got thresholds without output.sets, expected the share of each class "
                "that the thresholds keep; add sets = 0.9"
            )
        return
    if n_classes is None and label.classes is not None:
        n_classes = len(label.classes)
    learnt = not output.set_thresholds
    if learnt and label.votes is not None:
        raise ValueError(
            "output.sets: got a share with [label.votes], expected one label for each object, since the sets "
            "are learnt from objects whose class is known; remove the key"
        )
    if learnt and label.noise is not None:
        raise ValueError(
            "output.sets: got a share with label.noise, expected correct labels, since the sets are learnt "
            "from objects whose class is known; remove one of the two keys"
        )
    if n_classes is not None and n_classes > MOST_SET_CLASSES:
        raise ValueError(
            f"output.sets: got {n_classes} classes, expected at most {MOST_SET_CLASSES}, since each class "
            "has one bit of a 32-bit integer; remove the key, or join classes"
        )


def check_selected(
    output: Output,
    label: Label,
    purity: Mapping[str, float],
    completeness: Mapping[str, float],
    *,
    binned: bool,
) -> None:
    """Raise ValueError where columns of selections lack a stated purity or completeness, or do not fit the labels."""
    if not output.selected:
        return
    if not (purity or completeness):
        raise ValueError(
            "output.selected: got a column but no purity or completeness of a class, for which thresholds "
            "could be found; add purity = { CLASS = 0.95 } under [flags], or drop the key"
        )
    if output.selected == "bins" and not binned:
        raise ValueError(
            'output.selected: got "bins" without census.by, expected the expression whose bins have their '
            'own thresholds; add by = "..." under [census]'
        )
    both = sorted(set(purity) & set(completeness))
    if both:
        raise ValueError(
            f"output.selected: got a purity and a completeness of '{both[0]}', expected one of the two, "
            "since a class has one column; remove one of them"
        )
    if label.votes is not None or label.noise is not None:
        what = "[label.votes]" if label.votes is not None else "label.noise"
        raise ValueError(
            f"output.selected: got true with {what}, expected labels that state the class of each object, "
            "since thresholds are learnt from them; remove one of the two keys"
        )
