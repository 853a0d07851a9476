"""The process of the user's Prefect server: `python -P server.py FD` serves the API on that socket.

Prefect can start such a process itself.  But Prefect's process keeps running if its parent is killed, and Ctrl-C ends
it while the parent still finishes its work. This one ends when its standard input is closed.
"""

from __future__ import annotations

import socket
import sys
import threading

import uvicorn


def serve(fd: int) -> None:
    """Serve Prefect's API on the listening socket `fd` until standard input ends, as it does with the parent."""
    application = "prefect.server.api.server:create_app"
    server = uvicorn.Server(uvicorn.Config(application, factory=True, lifespan="on", log_level="error"))
    threading.Thread(target=_stop_at_end_of_input, args=[server], daemon=True).start()
    server.run(sockets=[socket.socket(fileno=fd)])


def _stop_at_end_of_input(server: uvicorn.Server) -> None:
    sys.stdin.buffer.read()
    server.should_exit = True


if __name__ == "__main__":
    serve(int(sys.argv[1]))
