"""Annotated copies sent to an object store while others are annotated.

The folder of a release is named by its content, which is known at the end.  So a copy that waits in the staging folder
is sent to `files-incoming/SHA256`, whoever has made it, and is copied from there within the store at the end.
"""

from __future__ import annotations

import os
import threading
import time
import uuid
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

from catalogs.errors import CatalogError
from catalogs.remote.object_store import ObjectStore
from flows.runs.outputs import Output
from flows.runs.staging import staged_copies

__all__ = ["INCOMING", "sending"]

INCOMING = "files-incoming"
"""The folder of copies that are of no release yet."""
PAUSE = 2.0
"""Seconds between two looks at the staging folder, at least."""
LOOKING = 0.05
"""Share of the time that looks may take."""
AT_ONCE = 4
"""Files that are sent at the same time: the processors are busy with others."""


@contextmanager
def sending(store: ObjectStore, folder: Path) -> Iterator[None]:
    """Send what is annotated in a folder, beside the work of the block.

    What could not be sent is left to the publication, which says so where the store does not answer.
    """
    sender = _Sender(store, folder)
    thread = threading.Thread(target=sender.run, name="blr-sending", daemon=True)
    thread.start()
    try:
        yield
    finally:
        sender.ended.set()
    thread.join()  # an interrupted run does not wait for the file in hand


@dataclass
class _Sender:
    store: ObjectStore
    folder: Path
    ended: threading.Event = field(default_factory=threading.Event)
    seen: set[Path] = field(default_factory=set)

    def run(self) -> None:
        """Send each copy once, until the run has ended or the store does not answer."""
        pause, there = PAUSE, None
        with suppress(CatalogError, OSError), ThreadPoolExecutor(AT_ONCE) as pool:
            while not self.ended.wait(pause):
                began = time.monotonic()
                found = list(staged_copies(self.folder, self.seen))
                pause = max(PAUSE, (time.monotonic() - began) / LOOKING)
                if found and there is None:
                    there = self.store.sizes(INCOMING)
                wanted = [(path, o) for path, o in found if (there or {}).get(o.sha256) != o.size]
                list(pool.map(self._send, wanted))

    def _send(self, copy: tuple[Path, Output]) -> None:
        """Send a copy by a name of its own: the staged one may be given its final name meanwhile, or be replaced."""
        path, output = copy
        if self.ended.is_set():
            return
        link = self.folder / f".blr-{uuid.uuid4().hex[:16]}.tmp"
        with suppress(FileNotFoundError):
            os.link(path, link)
            try:
                if output.is_in(link):
                    self.store.upload(link, f"{INCOMING}/{output.sha256}")
            finally:
                link.unlink()
