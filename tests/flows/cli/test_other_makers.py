"""A package of another maker in the place of ours, or among our files, is named in one sentence."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import flows

HOME = Path(flows.__file__).parent.parent


def test_a_package_that_comes_first_on_the_path_is_named(tmp_path: Path) -> None:
    other = tmp_path / "first" / "catalogs"
    other.mkdir(parents=True)
    (other / "__init__.py").write_text("")
    script = f"import flows, sys; sys.path.insert(0, {str(other.parent)!r}); from flows.cli.app import "
    done = subprocess.run(
        [sys.executable, "-c", script + "check_packages; check_packages()"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert (
        f"got the package 'catalogs' in {other}, expected the one of galaxyblr in"
        in done.stderr.splitlines()[-1]
    )


def test_a_distribution_among_our_files_is_named(tmp_path: Path) -> None:
    """As pip leaves it: both in one folder, each with its record; by the command itself."""
    for package in ("blr", "catalogs", "flows"):
        shutil.copytree(HOME / package, tmp_path / package)
    record = tmp_path / "blr-0.4.dist-info" / "RECORD"
    record.parent.mkdir()
    record.write_text("blr-0.4.dist-info/RECORD,,\nblr/client.py,,\n")
    command = [sys.executable, "-m", "flows", "models", "list"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=tmp_path)
    assert done.returncode == 2
    (said,) = done.stderr.splitlines()
    assert said.startswith(
        "blr: error: got the package 'blr' of the distribution blr 0.4, whose files are in the same"
    )
