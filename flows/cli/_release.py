"""`blr release`: draft, check, sign, publish, rollback, patch, verify, replay."""

from __future__ import annotations

from typing import TYPE_CHECKING

from catalogs.errors import counted
from flows.cli._printing import print_table, say, say_next

if TYPE_CHECKING:
    from flows.runs.results import Checked, ReleaseState, ReplayResult, Verified


NEXT = {"drafted": "check", "signed": "publish"}
"""What to do with a release after what was done to it."""


def show_checked(checked: Checked) -> None:
    """Show what does not pass, and what has changed since the last release."""
    rows = [(c.verdict, c.name, c.found, c.place) for c in checked.checks if c.verdict != "pass"]
    if rows:
        print_table("Checks", ("verdict", "check", "found", "where"), rows)
    passed = [c.name for c in checked.checks if c.verdict == "pass"]
    say(f"Passed: {', '.join(passed)}")
    if checked.last:
        changed = f"{checked.class_changed:,} of {checked.compared:,} objects have another class"
        say(f"Since release {checked.last}: {changed}")
    for cause, n in checked.attributed.items():
        say(f"  {n:,} because of {cause}")
    say(
        f"{checked.name} {checked.version}: {counted(checked.n_rows, 'row')}, {checked.n_replayed:,} scored again; "
        f"{checked.verdict}"
    )


def show_state(state: ReleaseState) -> None:
    """Show what was done to a release."""
    who = f" by {state.who}" if state.who else ""
    why = f": {state.why}" if state.why else ""
    was = "" if state.status == "is published" else "was "
    say(f"{state.name} {state.version} {was}{state.status}{who}{why}; {state.folder}")
    if state.digest:
        say(f"digest {state.digest}")
    if state.latest:
        say(f"latest: {state.latest}")
    say(*state.remarks)
    if state.status in NEXT:
        releases = state.folder.rsplit("/", 2)[0]
        named = () if releases == "releases" else ("--releases", releases)
        say_next("blr", "release", NEXT[state.status], state.name, state.version, *named)


def show_verified(verified: Verified) -> None:
    """Show the faults of a published release."""
    say(*verified.faults)
    key = " with a key" if verified.with_key else ""
    said = f"{len(verified.faults)} faults" if verified.faults else "all as it was published"
    say(
        f"{verified.folder}: {counted(verified.files, 'file')}, signed by {verified.signed_by or 'nobody'}{key}; {said}"
    )


def show_replayed(result: ReplayResult) -> None:
    """Show which columns differ, and by how much."""
    for name, n in result.differ.items():
        say(f"{name}: {n:,} rows differ, by up to {result.largest[name]:.3g}")
    said = "gives the published values" if result.agrees else "does not give the published values"
    say(f"{result.file}: {result.rows:,} rows scored again; {result.model} {said}")
