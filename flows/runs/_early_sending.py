"""Sending annotated copies to an object store while other files are being annotated.

The name of a release's folder depends on its content, which is known only at the end.  So each finished copy in the
staging folder is first sent to `files-incoming/SHA256`.  At the end, the store copies it from there to its folder.
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
"""Folder for copies that belong to no release yet."""
PAUSE = 2.0
"""Shortest pause between two searches of the staging folder, in seconds."""
SEARCHING = 0.05
"""Largest share of the time that the searches may take."""
AT_ONCE = 4
"""Files that are sent at the same time: few, since the processors annotate other files."""


@contextmanager
def sending(store: ObjectStore, folder: Path) -> Iterator[None]:
    """Send the annotated files of a folder while the block works.

    Files that could not be sent are left to the publication, which raises an error if the store does not answer.
    """
    sender = _Sender(store, folder)
    thread = threading.Thread(target=sender.run, name="blr-sending", daemon=True)
    thread.start()
    try:
        yield
    finally:
        sender.ended.set()
    thread.join()  # only after success: an interrupted run does not wait for the file that is being sent


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
                pause = max(PAUSE, (time.monotonic() - began) / SEARCHING)
                if found and there is None:
                    there = self.store.sizes(INCOMING)
                wanted = [(path, o) for path, o in found if (there or {}).get(o.sha256) != o.size]
                list(pool.map(self._send, wanted))

    def _send(self, copy: tuple[Path, Output]) -> None:
        """Send a copy by a hard link, since the run may rename or replace the staged file meanwhile."""
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
