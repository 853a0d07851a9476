"""A server of files on this machine, which answers for some files as badly as real servers do."""

from __future__ import annotations

import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from hashlib import sha256
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import unquote, urlsplit

CUT = 1000


@dataclass
class Web:
    """Where it is, what was asked of it, and what it does with the paths that match: `odd` is read from its end.

    Words: a status; `cut` and `fewer` (than promised, the connection broken or not); `more`; `silent`; `whole` (gives
    no ranges); `tagged` (an entity tag of the content); `weak`; `ages` (changed long ago); `unknown` (no length);
    `slash` (knows a folder by its name with a slash only); `to URL`; `password` (asks for user:secret); `moving` (each
    answer has another tag); `packed` (says it is gzip).
    """

    url: str
    folder: Path
    odd: list[tuple[str, str]] = field(default_factory=list)
    asked: list[str] = field(default_factory=list)
    released: threading.Event = field(default_factory=threading.Event)

    def words(self, path: str) -> list[str]:
        return [word for pattern, word in self.odd if re.search(pattern, path)]

    def bodies(self) -> list[str]:
        """Return the files that were sent, in part or whole."""
        return [a.partition(" ")[2] for a in self.asked if a.startswith("GET ") and "." in a]


class Handler(SimpleHTTPRequestHandler):
    """Ranges, tags, and what it is told."""

    web: Web

    def log_message(self, *_: object) -> None:
        """Say nothing."""

    def do_HEAD(self) -> None:
        self.answer(body=False)

    def do_GET(self) -> None:
        self.answer(body=True)

    def answer(self, *, body: bool) -> None:
        web, path = self.web, unquote(urlsplit(self.path).path)
        web.asked.append(f"{self.command} {path}")
        words, file = web.words(self.path), web.folder / path.lstrip("/")
        if status := next((w for w in words if w.isdigit()), None):
            return self.refuse(int(status))
        if "password" in words and self.headers.get("Authorization") != "Basic dXNlcjpzZWNyZXQ=":
            return self.refuse(401)
        if target := next((w[3:] for w in words if w.startswith("to ")), None):
            return self.refuse(302, Location=target)
        if "slash" in words and file.is_dir() and not path.endswith("/"):
            return self.refuse(404)
        if not file.is_file():
            return super().do_GET() if body else super().do_HEAD()
        return self.send(file.read_bytes(), words, body=body)

    def refuse(self, status: int, **headers: str) -> None:
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def send(self, whole: bytes, words: list[str], *, body: bool) -> None:
        asked = re.fullmatch(r"bytes=(\d+)-(\d+)", self.headers.get("Range") or "")
        first, last = (
            (int(asked[1]), int(asked[2])) if asked and "whole" not in words else (0, len(whole) - 1)
        )
        content = whole[first : last + 1]
        if "fewer" in words and body:
            content = content[:-CUT]
        if "more" in words and body:
            content += bytes(CUT)
        self.send_response(200 if len(content) == len(whole) or not asked else 206)
        if "unknown" not in words:
            self.send_header("Content-Length", str(len(content)))
        if asked and "whole" not in words:
            self.send_header("Content-Range", f"bytes {first}-{last}/{len(whole)}")
        for name, value in self.state(whole, words):
            self.send_header(name, value)
        self.send_header("Content-Type", "application/octet-stream")
        if "packed" in words:
            self.send_header("Content-Encoding", "gzip")
        self.end_headers()
        if not body:
            return
        if "silent" in words:
            self.wfile.write(content[: len(content) // 2])
            self.wfile.flush()
            self.web.released.wait()
        elif "cut" in words:
            self.wfile.write(content[:-CUT])
        else:
            self.wfile.write(content)
        self.close_connection = True

    def state(self, whole: bytes, words: list[str]) -> Iterator[tuple[str, str]]:
        tag = f'"{sha256(whole).hexdigest()[:16]}"'
        if "moving" in words:
            tag = f'"{len(self.web.asked)}"'
        if "tagged" in words or "moving" in words:
            yield "ETag", tag
        if "weak" in words:
            yield "ETag", f"W/{tag}"
        if "ages" in words:
            yield "Last-Modified", "Sun, 04 Jan 2026 10:00:00 GMT"


@contextmanager
def serving(folder: Path, *odd: tuple[str, str]) -> Iterator[Web]:
    """Serve a folder on a free port."""
    handler = type("Told", (Handler,), {})
    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(handler, directory=str(folder)))
    web = Web(f"http://127.0.0.1:{server.server_address[1]}", folder, [*odd])
    handler.web = web
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    try:
        yield web
    finally:
        web.released.set()
        server.shutdown()
        server.server_close()
        thread.join()
