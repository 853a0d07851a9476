"""Command-line runs that were killed: a process that is alone in their Prefect home marks them as ended."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path

from flows.orchestration.settings import crash_unended
from tests.flows.children import Child

SHARE = """
import pathlib, sys
from flows.orchestration.settings import share
print(share(pathlib.Path(sys.argv[1])) is not None, flush=True)
sys.stdin.read()
"""


def participant(home: Path) -> Child:
    """Return a process that takes part, and has said whether it was alone."""
    return Child(SHARE, home)


def test_who_is_alone_knows_it_and_others_do_not(tmp_path: Path) -> None:
    first = participant(tmp_path)
    second = participant(tmp_path)
    first.kill()
    third = participant(tmp_path)
    for process in (second, third):
        process.end()
    fourth = participant(tmp_path)
    fourth.end()
    assert [p.said for p in (first, second, third, fourth)] == ["True", "False", "False", "True"]


def test_where_nothing_can_be_written_nothing_is_known(tmp_path: Path) -> None:
    process = participant(tmp_path / "absent")
    process.end()
    assert process.said == "False"


def test_runs_of_before_are_crashed_and_no_others(prefect_server: str) -> None:
    from prefect import flow
    from prefect.client.orchestration import get_client
    from prefect.states import Completed, Running

    @flow(name="killed")
    def killed() -> None:
        """Never run: only its runs are."""

    def state(run: str) -> str:
        return client.read_flow_run(run.id).state.type.value

    with get_client(sync_client=True) as client:
        done = client.create_flow_run(killed, state=Completed())
        prepared = client.create_flow_run(killed)
        begun = client.create_flow_run(killed)
        client.set_flow_run_state(begun.id, Running())
        now = datetime.now(UTC)
        later = client.create_flow_run(killed)
        client.set_flow_run_state(later.id, Running())
        address = prefect_server.removesuffix("/api")
        assert crash_unended(address, now - timedelta(minutes=5)) == []
        assert {*crash_unended(address, now)} == {str(begun.id), str(prepared.id)}
        states = [state(run) for run in (begun, prepared, later, done)]
        assert states == ["CRASHED", "CRASHED", "RUNNING", "COMPLETED"]
        assert "was killed" in client.read_flow_run(begun.id).state.message
        client.delete_flow_run(later.id)


def test_a_server_that_does_not_answer_is_no_reason_to_do_no_work() -> None:
    from tests.flows.children import free_port

    assert crash_unended(f"http://127.0.0.1:{free_port()}", datetime.now(UTC)) == []
