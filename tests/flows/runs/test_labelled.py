"""Names of the labelled objects in an output folder: whole, and without what a killed run has left."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from flows.runs.manifest import is_labelled, read_labelled_names, write_labelled_names


def test_names_are_read_as_written_and_remains_of_a_killed_run_go(tmp_path: Path) -> None:
    write_labelled_names(["b", "", "a", "b"], tmp_path)
    (folder,) = tmp_path.iterdir()
    (folder / ".blr-0123456789abcdef.tmp").write_bytes(b"half")
    write_labelled_names(["a", "c"], tmp_path)
    assert len(list(folder.iterdir())) == 1
    names = read_labelled_names(tmp_path)
    assert names is not None
    assert is_labelled(np.array(["a", "b", "c"], dtype=object), names).tolist() == [True, False, True]
