"""What a challenger would change in the last release: both models classify a sample, and nothing is written."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from catalogs.errors import CatalogError
from flows.classification._class_shares import chosen_shift
from flows.classification.scoring import Scorer, annotation_settings
from flows.inputs.opening import first_rows
from flows.models.model import Model
from flows.models.request import PromoteRequest
from flows.runs.allowed_roots import check_inside
from flows.runs.counts import SampledChange, Transition
from flows.runs.manifest import Manifest, annotated_manifest
from flows.runs.outputs import Output

MOST_ROWS = 20_000
MOST_FILES = 20
"""Files and rows of the sample: two models score them in a second or two."""


def in_release(request: PromoteRequest, champion: Model, challenger: Model) -> SampledChange | None:
    """Return what a challenger would change in the last release; None where no release is found.

    That is in the folder which the request names, or in the specification's if that has a release of the name.
    """
    folder = request.release or _usual_folder(champion)
    return None if folder is None else sampled_change(champion, challenger, folder)


def _usual_folder(champion: Model) -> Path | None:
    folder = Path(champion.specification.output.folder)
    manifest = Manifest.read(folder)
    return folder if manifest is not None and manifest.model_name == champion.name else None


def sampled_change(champion: Model, challenger: Model, folder: Path) -> SampledChange | None:
    """Return what the challenger would change in the release in a folder; None where its inputs cannot be read.

    The first rows of up to twenty files, spread over the release, are read from the inputs, as a release would be made.
    Inputs at URLs, and those that have gone, are left out.

    Raises
    ------
    UsageError
        If the folder has no manifest.
    """
    manifest = annotated_manifest(check_inside(folder, key="release"))
    inputs = [path for o in _spread(manifest.outputs) if (path := _input(o, folder)) is not None]
    transitions: Counter[tuple[str, str]] = Counter()
    compared = files = 0
    troubles: list[str] = []
    for path in inputs:
        try:
            pairs = list(_classes(champion, challenger, path, MOST_ROWS // len(inputs)))
        except CatalogError as error:
            troubles.append(f"{path.name}: {error}")
            continue
        files += 1
        compared += len(pairs)
        transitions.update(pair for pair in pairs if pair[0] != pair[1])
    if not compared and not troubles:
        return None
    return SampledChange(
        folder=str(folder),
        release=manifest.release,
        n_files=len(manifest.outputs),
        n_rows=sum(o.n_rows for o in manifest.outputs),
        files=files,
        compared=compared,
        changed=sum(transitions.values()),
        transitions=tuple(Transition(was, now, n) for (was, now), n in transitions.most_common()),
        troubles=tuple(troubles),
    )


def _spread(outputs: tuple[Output, ...]) -> list[Output]:
    """Return up to so many outputs, evenly over their order."""
    if len(outputs) <= MOST_FILES:
        return list(outputs)
    places = np.linspace(0, len(outputs) - 1, MOST_FILES).round().astype(int)
    return [outputs[i] for i in places]


def _input(output: Output, folder: Path) -> Path | None:
    """Return the input of a file, where it is still there."""
    path = folder / output.input_path
    if "://" in output.input_path or not path.exists():
        return None
    return check_inside(path, key="release")


def _classes(champion: Model, challenger: Model, path: Path, limit: int) -> Iterator[tuple[str, str]]:
    """Yield the class of each row by the champion and by the challenger; '' where it has none."""
    before, after = (_of(model, path, limit) for model in (champion, challenger))
    yield from zip(before, after, strict=True)


def _of(model: Model, path: Path, limit: int) -> Iterator[str]:
    """Yield the class of each of the first rows of a file, as `reprocess` would write it."""
    settings = annotation_settings(model, model.specification)
    shift = chosen_shift(model, model.specification.shift)
    scorer = Scorer.of(model, settings.model_copy(update={"shift": shift}))
    catalog = scorer.choice.open(path)
    here = scorer.on(catalog)
    for batch in first_rows(catalog, here.reader.read, limit):
        yield from here(batch)[scorer.prefix + "class"].tolist()
