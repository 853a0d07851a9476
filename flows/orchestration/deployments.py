"""Deployments of a `prefect.yaml`: served by one process, and automations that alert a team of them.

One process that waits for their times and runs them beside itself is for a laptop: it needs no work pool and no worker.
A team has those, and `prefect deploy`.

An alert says that a scheduled run failed, is late, or released nothing for days.  Deployments, blocks and automations
are found by their names, so that no id has to be copied.  An automation is created once and updated after that; one
that somebody has paused stays paused.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from datetime import timedelta
from pathlib import Path
from typing import Any, Literal

import prefect
from prefect.client.orchestration import SyncPrefectClient, get_client
from prefect.client.schemas.objects import BlockDocument, StateType
from prefect.client.schemas.responses import DeploymentResponse
from prefect.deployments.runner import RunnerDeployment
from prefect.events import DeploymentTriggerTypes
from prefect.events.actions import ActionTypes, CallWebhook, ChangeFlowRunState, DoNothing, SendNotification
from prefect.events.schemas.automations import Automation, AutomationCore, EventTrigger, Posture
from prefect.exceptions import ObjectNotFound
from prefect.schedules import Schedule
from pydantic import TypeAdapter, ValidationError

from flows.errors import UsageError
from flows.orchestration.run_page import QUARANTINED
from flows.orchestration.settings import AutomationsResult, AutomationWork, deployments

ENTRY = "deployed.py"  # the file that the entry points of our deployments name
ONE_ALERT = timedelta(hours=1)
"""Time after the alert of a run that failed in which no other comes of it: a worker reports its process besides."""
DAY = timedelta(hours=20)
"""Time after which a file that is still quarantined is reported again: runs of a daily schedule differ by minutes."""
SILENCE = timedelta(minutes=9)  # three heartbeats of a run, which sends one every three minutes
ENDS = ("Completed", QUARANTINED, "Failed", "TimedOut", "Cancelled", "Crashed", "Suspended", "AwaitingRetry")
"""States after which no heartbeat is to be expected; events bear the names of states, not their types."""
MAKE_BLOCK = (
    "python -c \"from prefect.blocks.notifications import SlackWebhook as S; S(url=input()).save('{name}')\""
)

Alert = tuple[str, AutomationCore]
"""What it reports, in words, and the automation."""


def automate(*, notify: str, idle_days: int, dry_run: bool = False) -> AutomationsResult:
    """Create or update the automations of all deployments of ours that have a schedule.

    `notify` names the block that sends the alerts: one that notifies (Slack, mail, ...) or a webhook.  A dry run says
    what is missing; otherwise that is an error, and nothing is written.
    """
    with get_client(sync_client=True) as client:
        watched, missing = _watched(client)
        block = _block(client, notify)
        if block is None:
            missing.append(
                f"--notify: got no block '{notify}' that notifies, expected one, such as Slack, e-mail or a webhook; "
                f"create it on the server's page Blocks, or by {MAKE_BLOCK.format(name=notify)}, which asks for the "
                "address"
            )
        if missing and not dry_run:
            raise UsageError("; ".join(missing))
        action = _action_maker(block)
        alerts = [one for label, d in watched.items() for one in _alerts_of(label, d, idle_days, action)]
        known = {found.name: found for found in client.read_automations()}
        work = []
        for tells, wanted in (*alerts, *_server_alerts(action)):
            status = _create_or_update(client, wanted, known.get(wanted.name), dry_run=dry_run)
            work.append(AutomationWork(name=wanted.name, alerts=tells, status=status))
    return AutomationsResult(
        status="planned" if dry_run else "done",
        deployments=tuple(watched),
        notify=notify,
        automations=tuple(work),
        missing=tuple(missing),
    )


def _watched(client: SyncPrefectClient) -> tuple[dict[str, DeploymentResponse], list[str]]:
    """Return the deployments with a schedule by FLOW/NAME, and a sentence where no deployment has one."""
    flows = {flow.id: flow.name for flow in client.read_flows()}
    ours = {
        f"{flows[d.flow_id]}/{d.name}": d
        for d in client.read_deployments()
        if Path((d.entrypoint or "").partition(":")[0]).name == ENTRY
    }
    scheduled = {label: d for label, d in ours.items() if any(s.active for s in d.schedules)}
    if scheduled:
        return scheduled, []
    nothing = (
        f"got no deployment with an active schedule ({', '.join(ours) or 'none at all'}), expected one to watch; set "
        "`active: true` in prefect.yaml and run `prefect deploy --all`"
    )
    return {}, [nothing]


def _block(client: SyncPrefectClient, name: str) -> BlockDocument | None:
    """Return the block of that name which can send alerts; the first, where several kinds have it."""
    named = [b for b in client.read_block_documents(include_secrets=False) if b.name == name]
    notify = [b for b in named if b.block_schema is not None and "notify" in b.block_schema.capabilities]
    return next((b for b in named if b in notify or _is_webhook(b)), None)


def _is_webhook(block: BlockDocument) -> bool:
    return block.block_type is not None and block.block_type.slug == "webhook"


MakeAction = Callable[[str, Sequence[str]], ActionTypes]
"""Makes the action of an alert, of its subject and of expressions of Jinja that are put together."""


def _action_maker(block: BlockDocument | None) -> MakeAction:
    """Return what makes the action of an alert; without a block, in a dry run, an action that is never written."""

    def action(subject: str, parts: Sequence[str]) -> ActionTypes:
        if block is not None and _is_webhook(block):
            said = " ~ ".join(f"({part})" for part in parts)  # `~` binds tighter than `or`
            return CallWebhook(block_document_id=block.id, payload=f'{{"text": {{{{ ({said}) | tojson }}}}}}')
        body = "".join(f"{{{{ {part} }}}}" for part in parts)
        if block is None:
            return DoNothing()
        return SendNotification(block_document_id=block.id, subject=subject, body=body)

    return action


PAGE = ("' '", "(flow_run | ui_url) or ''")
"""The end of what is said of a run: its page, where the server knows its own address."""


def _trigger(
    of: str, expect: Iterable[str], within: timedelta, *, each: bool = True, **more: Any
) -> EventTrigger:
    """Return what one event of some resources triggers; for `each` resource apart."""
    one = {"prefect.resource.id"} if each else set[str]()
    reactive = {"posture": Posture.Reactive, "match": {"prefect.resource.id": of}, "for_each": one}
    return EventTrigger(**reactive | more, expect=set(expect), threshold=1, within=within)


def _alerts_of(label: str, deployment: DeploymentResponse, idle_days: int, action: MakeAction) -> list[Alert]:
    of = f"prefect.deployment.{deployment.id}"
    related = {"prefect.resource.id": of, "prefect.resource.role": "deployment"}

    def of_runs(*states: str) -> EventTrigger:
        """Trigger once for each run that enters one of the states."""
        expect = (f"prefect.flow-run.{state}" for state in states)
        return _trigger("prefect.flow-run.*", expect, ONE_ALERT, match_related=related)

    alerts = [
        (
            f"blr: {label} failed",
            "a run failed, crashed or took too long",
            of_runs("Failed", "Crashed", "TimedOut"),
            ("flow_run.name", "': '", "flow_run.state.name", "'. '", "flow_run.state.message or ''", *PAGE),
        ),
        (
            f"blr: {label} is late",
            "a run was due but no worker has started it: there is no worker, or its queue is full",
            of_runs("Late"),
            (f"'A run of {label} is late: no worker has started it.'", *PAGE),
        ),
    ]
    if idle_days:
        said = f"'{label} has released nothing for {idle_days} days: no new input, or no run'"
        days, more = timedelta(days=idle_days), {"posture": Posture.Proactive, "match_related": related}
        idle = _trigger("blr.release.*", ["blr.release.done"], days, each=False, **more)
        words = f"there was no release for {idle_days} days"
        alerts.append((f"blr: {label} releases nothing", words, idle, (said,)))
    return [_alert(name, tells, trigger, action(name, parts)) for name, tells, trigger, parts in alerts]


def _server_alerts(action: MakeAction) -> list[Alert]:
    quarantined = _trigger("blr.partition.*", ["blr.partition.quarantined"], DAY)
    beat, ends = "prefect.flow-run.heartbeat", (f"prefect.flow-run.{state}" for state in ENDS)
    silent = _trigger("prefect.flow-run.*", [beat, *ends], SILENCE, posture=Posture.Proactive, after={beat})
    quiet = "no heartbeat for nine minutes"
    crash = ChangeFlowRunState(state=StateType.CRASHED, name="Crashed", message=quiet, force=False)
    name = "blr: a file is quarantined"
    words = "a file could not be annotated; again every day while that lasts"
    said = action(name, ("event.payload.file", "' is quarantined: '", "event.payload.reason"))
    ended = "a run sent no heartbeat for nine minutes: its state becomes Crashed"
    return [
        _alert(name, words, quarantined, said),
        _alert("blr: silent runs are crashed", ended, silent, crash),
    ]


def _alert(name: str, tells: str, trigger: EventTrigger, action: ActionTypes) -> Alert:
    return tells, AutomationCore(
        name=name,
        description=f"When {tells}. Made by `blr deployments automate`.",
        enabled=True,
        tags=["blr"],
        trigger=trigger,
        actions=[action],
    )


def _create_or_update(
    client: SyncPrefectClient, wanted: AutomationCore, found: Automation | None, *, dry_run: bool
) -> Literal["created", "updated", "unchanged"]:
    """Create an automation, or update the one that was found; say which."""
    if found is None:
        if not dry_run:
            client.create_automation(wanted)
        return "created"
    wanted = wanted.model_copy(update={"enabled": found.enabled})
    if _content(found) == _content(wanted):
        return "unchanged"
    if not dry_run:
        client.update_automation(found.id, wanted)
    return "updated"


def _content(automation: AutomationCore) -> object:
    """Return the parts of an automation that an update would change; events are sets, in no order."""
    return automation.model_dump(include={"name", "description", "tags", "trigger", "actions"})


_TRIGGER: TypeAdapter[Any] = TypeAdapter(DeploymentTriggerTypes)


def serve(file: Path, *, limit: int) -> None:
    """Serve the deployments of a file until Ctrl-C or SIGTERM, at most `limit` runs at a time.

    While nobody serves them, their schedules rest: what was missed is not made up for.
    """
    for category in (ResourceWarning, RuntimeWarning):
        # Prefect's runner does not await its end, nor close its client.
        warnings.filterwarnings("ignore", category=category)
    ours = served(file)
    _check_not_a_teams(ours)
    prefect.serve(*ours, limit=limit, print_starting_message=False)


def _check_not_a_teams(ours: Sequence[RunnerDeployment]) -> None:
    """Raise UsageError where workers run deployments of these names: serving would replace them, and pause them."""
    pools: dict[str, str] = {}
    with get_client(sync_client=True) as client:
        for one in ours:
            with suppress(ObjectNotFound):
                pool = client.read_deployment_by_name(f"{one.flow_name}/{one.name}").work_pool_name
                pools |= {str(one.name): pool} if pool else {}
    if pools:
        raise UsageError(
            f"the server has deployments for the workers of a team: {', '.join(pools)}, of the pool "
            f"'{next(iter(pools.values()))}', expected a server without them, since `blr serve` would replace and then "
            "pause them; start a worker, or unset PREFECT_API_URL"
        )


def served(file: Path) -> list[RunnerDeployment]:
    """Return the deployments of a file as Prefect's runner takes them."""
    return [_served(deployment, file) for deployment in deployments(file)]


def _served(deployment: Mapping[str, Any], file: Path) -> RunnerDeployment:
    try:
        return RunnerDeployment.from_entrypoint(
            deployment["entrypoint"],
            deployment["name"],
            parameters=dict(deployment.get("parameters") or {}),
            schedules=[
                Schedule(**entry | {k: timedelta(seconds=entry[k]) for k in ("interval",) if k in entry})
                for entry in deployment.get("schedules") or ()
            ],
            triggers=[
                _TRIGGER.validate_python({"name": f"{deployment['name']} {t.get('expect', '')}"} | dict(t))
                for t in deployment.get("triggers") or ()
            ],
            tags=list(deployment.get("tags") or ()),
            description=deployment.get("description"),
            paused=False,  # the runner pauses them when it ends
        )
    except (ValidationError, ValueError, TypeError) as error:
        raise UsageError(
            f"{file}: deployment '{deployment['name']}': {error}; see docs/operations.md for entries that work"
        ) from error
