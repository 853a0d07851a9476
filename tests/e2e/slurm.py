"""A Slurm of the test's own: Debian's programs, one node, on 127.0.0.1, in a folder that goes with it.

Its node claims more processors than there are, so that job scripts of a cluster are taken as they stand.
"""

from __future__ import annotations

import os
import pwd
import secrets
import shutil
import socket
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.e2e.running import running, wait_for
from tests.flows.children import free_port, ran

PROGRAMS = ("munged", "slurmctld", "slurmd", "sbatch", "squeue", "scancel")
PATIENCE = 60.0
"""Seconds in which the node has to be ready."""

CONFIGURATION = """
ClusterName=blr
SlurmctldHost={host}(127.0.0.1)
SlurmUser={user}
SlurmdUser={user}
AuthType=auth/munge
AuthInfo=socket={folder}/munge.socket
CredType=cred/munge
SlurmctldPort={controller}
SlurmdPort={node}
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd.pid
SlurmdParameters=config_overrides
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
SwitchType=switch/none
MpiDefault=none
ReturnToService=2
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
NodeName={host} NodeAddr=127.0.0.1 CPUs=64 CoresPerSocket=64 RealMemory=512000
PartitionName=main Nodes={host} Default=YES MaxTime=INFINITE
"""


@dataclass(frozen=True)
class Slurm:
    """A queue, whose programs find it by their `environment`."""

    environment: dict[str, str]

    def ask(self, *command: str, cwd: Path | None = None) -> str:
        done = ran(*command, env=self.environment, cwd=cwd, timeout=PATIENCE)
        assert done.returncode == 0, f"{command}: {done.stdout}{done.stderr}"
        return done.stdout.strip()

    def submit(self, script: str, *, folder: Path) -> str:
        return self.ask("sbatch", "--parsable", script, cwd=folder)

    def jobs(self) -> list[str]:
        return self.ask("squeue", "--noheader", "--format=%j").split()

    def is_ready(self) -> bool:
        told = ran("sinfo", "--noheader", "--format=%t", env=self.environment, timeout=PATIENCE)
        return told.stdout.strip() == "idle"


@contextmanager
def slurm() -> Iterator[Slurm]:
    """Run a Slurm; skip the test, with the reason, where it cannot start."""
    # Debian has the servers where users do not look.
    path = os.pathsep.join([os.environ.get("PATH", os.defpath), "/usr/sbin"])
    if absent := [name for name in PROGRAMS if shutil.which(name, path=path) is None]:
        pytest.skip(f"no {', '.join(absent)} here (Debian: apt-get install slurm-wlm munge)")
    # Not below pytest's folder: a socket's path may have a hundred characters, and Munge looks who may enter.
    with tempfile.TemporaryDirectory(prefix="blr-slurm-") as name, ExitStack() as stack:
        folder = Path(name)
        folder.chmod(0o711)
        _write_configuration(folder)
        queue = Slurm(os.environ | {"PATH": path, "SLURM_CONF": str(folder / "slurm.conf")})

        def start(*command: str) -> None:
            stack.enter_context(running(list(command), folder / f"{command[0]}.log", env=queue.environment))

        start(
            "munged", "--foreground", f"--key-file={folder}/munge.key", f"--socket={folder}/munge.socket",
            f"--pid-file={folder}/munge.pid", f"--log-file={folder}/munge.log", f"--seed-file={folder}/munge.seed",
        )  # fmt: skip
        end = time.monotonic() + PATIENCE
        while not (folder / "munge.socket").exists() and time.monotonic() < end:
            time.sleep(0.1)
        start("slurmctld", "-D", "-c")
        start("slurmd", "-D", "-c")
        while not queue.is_ready():
            if time.monotonic() > end:
                logs = (
                    f"{log.name}: {log.read_text().strip()[-200:]}" for log in sorted(folder.glob("*.log"))
                )
                pytest.skip(f"Slurm does not start here: {'; '.join(logs)}")
            time.sleep(0.3)
        try:
            yield queue
        finally:
            queue.ask("scancel", f"--user={_user()}")
            wait_for(lambda: not queue.jobs(), "the end of all jobs", PATIENCE)


def _write_configuration(folder: Path) -> None:
    key = folder / "munge.key"
    key.touch(mode=0o600)
    key.write_bytes(secrets.token_bytes(1024))
    for name in ("state", "spool"):
        (folder / name).mkdir()
    host = socket.gethostname().partition(".")[0]
    text = CONFIGURATION.format(
        host=host, user=_user(), folder=folder, controller=free_port(), node=free_port()
    )
    (folder / "slurm.conf").write_text(text)


def _user() -> str:
    return pwd.getpwuid(os.getuid()).pw_name
