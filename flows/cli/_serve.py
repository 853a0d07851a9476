"""`blr serve`, `blr ui`, `blr deployments`, `blr deployments automate`."""

# ruff: noqa: PLC0415 -- Prefect reads its settings as it is imported: they come first

from __future__ import annotations

import os
import signal
import sys
import threading
import webbrowser
from pathlib import Path

from catalogs.remote.urls import shown
from flows.errors import FlowError, UsageError
from flows.orchestration import settings


def run_deployments(out: Path | None) -> None:
    """Print our `prefect.yaml`, or write it where it is missing."""
    if out is None:
        sys.stdout.write(settings.deployments_text())
        return
    try:
        with out.open("x", encoding="utf-8") as file:
            file.write(settings.deployments_text())
    except FileExistsError:
        raise UsageError(
            f"{out}: got a file that exists already, expected a new name; remove the file, or choose another "
            "name with --out"
        ) from None
    sys.stdout.write(
        f"{out}: adapt its entries to your survey, then `prefect deploy --all`, or `blr serve`\n"
    )


def run_automate(*, notify: str, idle_days: int, dry_run: bool, json: bool) -> None:
    """Create or update the automations that alert a team, on the server that is configured or that `blr serve` runs."""
    if settings.connect(console_level="CRITICAL") is None:
        raise UsageError(
            "got no Prefect server, which runs the automations; start `blr serve` in another terminal, "
            "or set PREFECT_API_URL"
        )
    from flows.cli._printing import show
    from flows.orchestration.deployments import automate

    result = automate(notify=notify, idle_days=idle_days, dry_run=dry_run)
    show(result, _show_automations, json=json)


def _show_automations(result: settings.AutomationsResult) -> None:
    from flows.cli._printing import print_table

    words = {"created": "to be created", "updated": "to be updated"} if result.status == "planned" else {}
    rows = [
        (work["name"], work["alerts"], words.get(work["status"], work["status"]))
        for work in result.automations
    ]
    print_table(f"Alerts by the block '{result.notify}'", ("automation", "alerts when", ""), rows)
    for what in result.missing:
        _say(f"missing: {what}")


def run_serve(*, file: Path, n_runs: int, port: int | None) -> None:
    """Serve the deployments until Ctrl-C."""
    settings.deployments(file)  # Errors in the file are reported before a server starts.
    if settings.configured_server() is not None:
        _say(settings.prefect_environment(console_level="INFO"))
        _serve(file, n_runs)
        return
    server = settings.start_home_server(port, console_level="INFO")
    _say(
        f"{server.line}\nits pages: {server.url}  (Ctrl-C ends it; schedules stop until the next `blr serve`)"
    )
    ended = threading.Event()

    def end_too() -> None:
        server.process.wait()
        if not ended.is_set():  # Prefect's runner would ask a server that is gone for ever
            os.kill(os.getpid(), signal.SIGTERM)

    threading.Thread(target=end_too, daemon=True).start()
    try:
        _serve(file, n_runs)
    finally:
        ended.set()
        if server.process.poll() is not None:
            raise _ended("serve")


def _ended(verb: str) -> FlowError:
    log = settings.prefect_home() / settings.SERVER_LOG
    return FlowError(f"Prefect's server has ended: the end of {log} tells why; run `blr {verb}` again")


def _serve(file: Path, limit: int) -> None:
    from flows.orchestration.deployments import serve

    source = str(file) if file.exists() else f"no {settings.FILE} here: ours"
    _say(f"serving {', '.join(d['name'] for d in settings.deployments(file))}  ({source})")
    serve(file, limit=limit)


def run_ui(*, opened: bool, port: int | None = None) -> None:
    """Show the pages of the database that runs are kept in, until Ctrl-C; those of a server that is up, at once."""
    line = settings.connect()
    if line is not None:
        _show(line, str(settings.configured_server()).removesuffix("/api"), opened=opened)
        return
    server = settings.start_home_server(port)
    _show(server.line, server.url, opened=opened)
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        server.process.wait()
    except KeyboardInterrupt:
        settings.stop_server(server.process)
    else:
        raise _ended("ui")


def _show(line: str, url: str, *, opened: bool) -> None:
    _say(f"{line}\nits pages: {shown(url)}")
    if opened:
        webbrowser.open(url)


def _say(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()
