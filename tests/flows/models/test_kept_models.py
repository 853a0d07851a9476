"""Models whose files were parsed before: as if they were parsed again."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from flows.errors import ModelError
from flows.models.model import MOST_KEPT, Tree, read_model, read_tree
from flows.models.store import Store


def test_the_bytes_of_a_model_are_parsed_once(
    trained: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Wherever the file lies; other bytes are parsed, of the same length too, and few models are kept."""
    parsed: list[Path] = []

    def reading(path: Path) -> Tree:
        parsed.append(path)
        return read_tree(path)

    monkeypatch.setattr("flows.models.model.read_tree", reading)
    monkeypatch.setattr("flows.models.model._KEPT", {})
    content = Store(trained / "models").find("morphology").path.read_bytes()
    paths = [tmp_path / str(n) / "model.asdf" for n in range(7)]
    for n, path in enumerate(paths):
        path.parent.mkdir()
        path.write_bytes(content + b"\n" * n)
    (tmp_path / "copy.asdf").write_bytes(content)
    models = [read_model(path) for path in (paths[0], tmp_path / "copy.asdf", paths[0])]
    assert parsed == paths[:1]
    assert models[0].classifier is models[1].classifier
    assert [model.folder for model in models] == [tmp_path / "0", tmp_path, tmp_path / "0"]
    status = paths[0].stat()
    paths[0].write_bytes(content.replace(b"early", b"eerly"))
    os.utime(paths[0], ns=(status.st_atime_ns, status.st_mtime_ns))
    with pytest.raises(ModelError, match="damaged"):
        read_model(paths[0])
    paths[0].write_bytes(content)
    del parsed[:]
    for path in (*paths, *paths[-MOST_KEPT:], paths[0]):
        read_model(path)
    assert parsed == [*paths[1:], paths[0]]
