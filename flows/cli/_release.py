"""`blr release`: draft, check, sign, publish, rollback, patch, verify, replay."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

import typer

from flows.cli._options import PrintOptions
from flows.cli._printing import plain_table, print_tables, say, show
from flows.release.check import Checked
from flows.release.draft import draft, patch
from flows.release.record import ReleaseState, Verified, check, publish, rollback, sign, verify
from flows.release.replay import ReplayResult, replay_file
from flows.release.request import ReleaseRequest, ReplayRequest, VerifyRequest

STOPPED = 1

Request = TypeVar("Request")


def _showing(
    work: Callable[[Request], ReleaseState],
) -> Callable[[Request, PrintOptions], None]:
    """Return the command that does a piece of work and shows the state of the release after it."""

    def run(request: Request, options: PrintOptions) -> None:
        show(work(request), _show_state, json=options.json)

    return run


run_draft = _showing(draft)
run_sign = _showing(sign)
run_publish = _showing(publish)
run_rollback = _showing(rollback)
run_patch = _showing(patch)


def run_check(request: ReleaseRequest, options: PrintOptions) -> None:
    """Check a draft; leave with status 1 where a check says stop."""
    checked = check(request)
    show(checked, _show_checked, json=options.json)
    if checked.stops:
        raise typer.Exit(STOPPED)


def run_verify(request: VerifyRequest, options: PrintOptions) -> None:
    """Verify a release's folder; leave with status 1 where something is wrong."""
    verified = verify(request)
    show(verified, _show_verified, json=options.json)
    if verified.faults:
        raise typer.Exit(STOPPED)


def run_replay(request: ReplayRequest, options: PrintOptions) -> None:
    """Score rows of a file again; leave with status 1 where they differ."""
    result = replay_file(request)
    show(result, _show_replayed, json=options.json)
    if not result.agrees:
        raise typer.Exit(STOPPED)


def _show_checked(checked: Checked) -> None:
    """Show the checks, the worst first."""
    rows = [(c.verdict, c.name, c.found, c.place) for c in checked.checks if c.verdict != "pass"]
    if rows:
        print_tables(plain_table("Checks", ("verdict", "check", "found", "where"), rows))
    passed = [c.name for c in checked.checks if c.verdict == "pass"]
    say(f"Passed: {', '.join(passed)}")
    if checked.last:
        changed = f"{checked.class_changed:,} of {checked.compared:,} objects have another class"
        say(f"Since release {checked.last}: {changed}")
    for cause, n in checked.attributed.items():
        say(f"  {n:,} because of {cause}")
    verdict = f"{len(checked.stops)} checks say stop" if checked.stops else "no check says stop"
    say(
        f"{checked.name} {checked.version}: {checked.n_rows:,} rows, {checked.n_replayed:,} scored again; {verdict}"
    )


def _show_state(state: ReleaseState) -> None:
    who = f" by {state.who}" if state.who else ""
    why = f": {state.why}" if state.why else ""
    was = "" if state.status == "is published" else "was "
    say(f"{state.name} {state.version} {was}{state.status}{who}{why}; {state.folder}")
    if state.digest:
        say(f"digest {state.digest}")
    if state.latest:
        say(f"latest: {state.latest}")
    for remark in state.remarks:
        say(remark)


def _show_verified(verified: Verified) -> None:
    for fault in verified.faults:
        say(fault)
    key = " with a key" if verified.with_key else ""
    said = f"{len(verified.faults)} faults" if verified.faults else "all as it was published"
    say(
        f"{verified.folder}: {verified.files:,} files, signed by {verified.signed_by or 'nobody'}{key}; {said}"
    )


def _show_replayed(result: ReplayResult) -> None:
    for name, n in result.differ.items():
        say(f"{name}: {n:,} rows differ, by up to {result.largest[name]:.3g}")
    said = "gives the published values" if result.agrees else "does not give the published values"
    say(f"{result.file}: {result.rows:,} rows scored again; {result.model} {said}")
