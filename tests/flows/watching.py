"""Events of a Prefect server, the automations that react to them, and a receiver of their messages."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import Any
from urllib.request import Request, urlopen
from uuid import UUID

import yaml


def ask(server: str, path: str, body: object) -> Any:
    headers = {"Content-Type": "application/json"}
    request = Request(f"{server}{path}", json.dumps(body).encode(), headers)  # noqa: S310 - our own server
    with urlopen(request, timeout=60) as answer:  # noqa: S310
        return json.load(answer)


def events(server: str, name: str) -> list[dict[str, Any]]:
    return ask(server, "/events/filter", {"filter": {"event": {"name": [name]}}, "limit": 50})["events"]


def automation(text: str) -> UUID:
    from prefect.automations import Automation

    return Automation.model_validate(yaml.safe_load(text)).create().id


def deployment(name: str) -> UUID:
    """Make a deployment that nobody serves, so that its runs stay where an automation puts them; return its id."""
    from prefect.client.orchestration import get_client

    with get_client(sync_client=True) as client:
        return client.create_deployment(client.create_flow_from_name(name), name=name)


def runs_of(server: str, deployment_id: UUID) -> list[dict[str, Any]]:
    return ask(server, "/flow_runs/filter", {"deployments": {"id": {"any_": [str(deployment_id)]}}})


@contextmanager
def listener() -> Iterator[tuple[str, list[Any]]]:
    """Listen on 127.0.0.1; yield the address, and the list of the JSON documents that are sent there."""
    heard: list[Any] = []

    class Ear(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            heard.append(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
            self.send_response(204)
            self.end_headers()

        def log_message(self, *said: object) -> None:
            """Say nothing."""

    with HTTPServer(("127.0.0.1", 0), Ear) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}/", heard
        finally:
            server.shutdown()
            thread.join()
