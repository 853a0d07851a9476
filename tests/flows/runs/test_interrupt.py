"""SIGTERM ends a run, whatever it waits for."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

from tests.flows.children import Child

WAITING = """
import sys
import pyarrow as pa
from flows.errors import Terminated
from flows.runs.progress import terminable
try:
    with terminable("run it again", within=1):
        print("begun", flush=True)
        OPENED
except Terminated as error:
    sys.exit(error.exit_status)
"""


@pytest.mark.parametrize("opened", ["open(sys.argv[1])", "pa.OSFile(sys.argv[1])"])
def test_no_read_outlasts_sigterm(tmp_path: Path, opened: str) -> None:
    """A FIFO stands for a file server that is gone; compiled code waits for it again after each signal."""
    os.mkfifo(tmp_path / "x.parquet")
    child = Child(WAITING.replace("OPENED", opened), tmp_path / "x.parquet")
    assert child.said == "begun"
    child.process.send_signal(signal.SIGTERM)
    child.end()
    assert child.process.returncode == 143
