"""A PostgreSQL of the test's own: Debian's programs, a cluster in a folder, on 127.0.0.1, with a password."""

from __future__ import annotations

import os
import pwd
import secrets
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.e2e.running import end, running, wait_for
from tests.flows.children import free_port, ran


def programs() -> Path | None:
    found = shutil.which("initdb")
    if found is not None:
        return Path(found).resolve().parent
    debian = Path("/usr/lib/postgresql").glob("*/bin/initdb")
    return max((path.parent for path in debian), key=lambda path: int(path.parent.name), default=None)


def _unprivileged() -> dict[str, Any]:
    """Return how to start a program as somebody else: PostgreSQL refuses to run as root."""
    if os.getuid() != 0:
        return {}
    names = {entry.pw_name for entry in pwd.getpwall()}
    user = "postgres" if "postgres" in names else "nobody"
    return {"user": user, "group": pwd.getpwnam(user).pw_gid, "extra_groups": []}


@contextmanager
def postgresql() -> Iterator[str]:
    """Run a new cluster; yield its address, as Prefect's server takes it."""
    found, port, password = programs(), free_port(), secrets.token_urlsafe(12)
    assert found is not None
    who = _unprivileged()
    # Not below pytest's folder, which nobody else may enter.
    with tempfile.TemporaryDirectory(prefix="blr-postgres-") as name:
        folder = Path(name)
        (folder / "password").write_text(password)
        if who:
            for path in (folder, folder / "password"):
                shutil.chown(path, who["user"], who["group"])
        initdb: list[str | Path] = [found / "initdb", "--pgdata", folder / "data", "--username", "postgres"]
        initdb += ["--pwfile", folder / "password", "--auth=scram-sha-256", "--no-sync", "--encoding=UTF8"]
        subprocess.run(initdb, cwd=folder, check=True, capture_output=True, **who)
        server: list[str | Path] = [found / "postgres", "-D", folder / "data", "-p", str(port)]
        server += ["-h", "127.0.0.1", "-k", folder]
        ready = [found / "pg_isready", "-h", "127.0.0.1", "-p", str(port)]
        with running(server, folder / "log", cwd=folder, **who) as process:
            wait_for(lambda: ran(*ready).returncode == 0, "PostgreSQL")
            try:
                # As docs/operations.md has it: the server's role owns its database, and rules no other.
                who_asks = f"-h 127.0.0.1 -p {port} -U postgres -v ON_ERROR_STOP=1 --dbname postgres"
                environment = os.environ | {"PGPASSWORD": password}
                role = f"CREATE ROLE prefect LOGIN PASSWORD '{password}'"
                for statement in (role, "CREATE DATABASE prefect OWNER prefect"):
                    command = [found / "psql", *who_asks.split(), "--command", statement]
                    subprocess.run(command, env=environment, check=True, capture_output=True)
                yield f"postgresql+asyncpg://prefect:{password}@127.0.0.1:{port}/prefect"
            finally:
                process.send_signal(signal.SIGINT)  # its fast way to stop: SIGTERM waits for clients
                process.wait(timeout=30)
                end(process)
