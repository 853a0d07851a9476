"""Files reach their final name whole or not at all."""

import errno
import os
import resource
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from catalogs.errors import CatalogError
from catalogs.files import (
    StorageError,
    atomic_path,
    atomic_write_array,
    atomic_write_bytes,
    atomic_write_text,
    own_folder,
    sweep,
)

WRITER = """
import sys, time
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from catalogs.files import atomic_write_array
from catalogs.files import atomic_path
with atomic_path(Path(sys.argv[1])) as temporary:
    temporary.write_bytes(b"half")
    print("writing", flush=True)
    time.sleep(60)
"""


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_the_file_appears_when_the_block_ends(tmp_path: Path) -> None:
    """A new one, and one in the place of another; text keeps its line ends and is UTF-8."""
    final = tmp_path / "table.fits"
    for old, new in ((None, "whole"), ("whole", "α\r\nβ\n")):
        with atomic_path(final) as temporary:
            atomic_write_text(temporary, new)
            assert temporary.parent == tmp_path
            assert old == (final.read_text() if old else None)
            assert final.exists() == bool(old)
        assert final.read_bytes() == new.encode()
        assert names(tmp_path) == ["table.fits"]


@pytest.mark.parametrize("error", [ValueError("compute failed"), KeyboardInterrupt()])
def test_a_failure_leaves_everything_as_it_was(tmp_path: Path, error: BaseException) -> None:
    final = tmp_path / "table.fits"
    atomic_write_bytes(final, b"old")

    def write() -> None:
        with atomic_path(final) as temporary:
            temporary.write_bytes(b"new, but not fin")
            raise error

    with pytest.raises(type(error)):
        write()
    assert final.read_bytes() == b"old"
    assert names(tmp_path) == ["table.fits"]


def test_the_file_has_the_permissions_of_any_new_file(tmp_path: Path) -> None:
    (tmp_path / "plain").write_bytes(b"")
    atomic_write_bytes(tmp_path / "atomic", b"")
    assert (tmp_path / "atomic").stat().st_mode == (tmp_path / "plain").stat().st_mode


def test_a_folder_in_the_place_of_the_file_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "taken").mkdir()
    with pytest.raises(StorageError, match="taken is a folder"):
        atomic_write_bytes(tmp_path / "taken", b"")


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT])
def test_a_full_disk_says_what_to_do(tmp_path: Path, number: int) -> None:
    with (
        pytest.raises(StorageError, match=r"could not be finished.*free some space") as caught,
        atomic_path(tmp_path / "file"),
    ):
        raise OSError(number, os.strerror(number))
    assert isinstance(caught.value, CatalogError)
    assert names(tmp_path) == []


def test_other_errors_pass_through(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="input"), atomic_path(tmp_path / "file"):
        raise FileNotFoundError(errno.ENOENT, "input")


def test_sweep_removes_left_overs_and_nothing_else(tmp_path: Path) -> None:
    (tmp_path / ".blr-0123456789abcdef.tmp").write_bytes(b"left over")
    (tmp_path / ".other.tmp").write_bytes(b"")
    atomic_write_bytes(tmp_path / "kept", b"")
    assert [path.name for path in sweep(tmp_path)] == [".blr-0123456789abcdef.tmp"]
    assert names(tmp_path) == [".other.tmp", "kept"]


def test_sweep_spares_what_is_being_written(tmp_path: Path) -> None:
    with atomic_path(tmp_path / "file") as temporary:
        assert sweep(tmp_path) == ()
        assert temporary.exists()


def test_a_killed_writer_leaves_no_final_file_and_is_swept(tmp_path: Path) -> None:
    final = tmp_path / "table.fits"
    with subprocess.Popen([sys.executable, "-c", WRITER, str(final)], stdout=subprocess.PIPE) as writer:
        assert writer.stdout is not None
        assert writer.stdout.readline() == b"writing\n"
        assert sweep(tmp_path) == ()  # it lives
        writer.kill()
    assert not final.exists()
    deadline = time.monotonic() + 10
    while not (swept := sweep(tmp_path)) and time.monotonic() < deadline:
        time.sleep(0.01)
    assert len(swept) == 1
    assert names(tmp_path) == []


def test_a_link_that_takes_the_place_of_a_folder_is_not_followed(tmp_path: Path) -> None:
    """Neither between two files nor while one is written."""
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    folder = own_folder(tmp_path / "out" / "_census", tmp_path / "out")
    atomic_write_text(folder / "a", "before")

    def swapped() -> None:
        with atomic_path(folder / "b") as temporary:
            temporary.write_text("x")
            folder.rename(tmp_path / "moved")
            folder.symlink_to(elsewhere)

    with pytest.raises(StorageError, match="another folder"):
        swapped()
    with pytest.raises(StorageError, match="got a symbolic link"):
        atomic_write_text(folder / "c", "x")
    assert names(elsewhere) == []


def test_an_array_that_finds_no_room_says_so(tmp_path: Path) -> None:
    """NumPy said "16000 requested and 7664 written"."""
    atomic_write_array(tmp_path / "x.npy", np.arange(20_000.0))
    assert np.array_equal(np.load(tmp_path / "x.npy"), np.arange(20_000.0))
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (64_000, hard))
    try:
        with pytest.raises(StorageError, match=r"x\.npy could not be finished"):
            atomic_write_array(tmp_path / "x.npy", np.zeros(20_000))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert np.load(tmp_path / "x.npy")[-1] == 19_999
