"""A run as Prefect shows it: its signature, name and final state, how far it is, tables, a link to its report, events.

The file of its result is JSON.
"""

from __future__ import annotations

import inspect
import logging
import os
import re
import socket
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import is_dataclass
from functools import wraps
from pathlib import Path
from typing import Annotated, Any, Final, NoReturn, ParamSpec, TypeVar, cast, get_type_hints
from urllib.parse import quote
from uuid import UUID

from annotated_types import Ge
from httpx import HTTPError
from prefect import Flow, Task, artifacts, flow
from prefect.cache_policies import NO_CACHE
from prefect.client.orchestration import get_client
from prefect.context import FlowRunContext
from prefect.events import emit_event
from prefect.exceptions import ObjectNotFound
from prefect.flow_runs import pause_flow_run, suspend_flow_run
from prefect.input import RunInput, create_flow_run_input, read_flow_run_input
from prefect.logging import get_run_logger
from prefect.logging.handlers import APILogHandler
from prefect.runtime import deployment, flow_run, task_run
from prefect.serializers import CompressedSerializer, JSONSerializer, PickleSerializer
from prefect.states import Cancelled, Completed, Crashed, Failed
from prefect.utilities.importtools import from_qualified_name, to_qualified_name
from pydantic import BeforeValidator

from flows.documents import from_document, to_document
from flows.errors import FlowError, Interrupted, UsageError
from flows.orchestration.settings import words_of
from flows.reports.counts import classification_message, release_words, run_tables, status_table
from flows.reports.report_table import ReportTable
from flows.request import request_fields
from flows.runs.manifest import REPORT, read_status
from flows.runs.progress import LineListener, Listener, listening, tell
from flows.runs.references import name_and_version
from flows.runs.results import ClassificationResult, ClassificationTrial, ReleaseResult, Summary

DIGITS = 4  # digits of a version in the name of a run: as many as name it on the command line


def short_label(label: str) -> str:
    """Return NAME@VERSION with the first digits of the version."""
    name, version = name_and_version(label)
    return f"{name}@{version[:DIGITS]}"


def started_name(verb: str, label: str, *, release: int, trial: bool = False) -> str:
    """Return the name of a run that is to make a release, or to try a model."""
    head = f"{verb} {short_label(label)}"
    return f"{head} → release {release}" if not trial else f"{head}: trial"


def classification_name(verb: str, result: ClassificationResult) -> str:
    """Return the name of a run that has ended."""
    head = f"{verb} {short_label(result.model)}"
    if result.status == "done":
        return f"{head} → {release_words(result)}"
    if isinstance(result, ClassificationTrial) or not result.quarantined:
        return f"{head}: {result.status}"
    return f"{head}: {result.status}, {release_words(result)}"


P = ParamSpec("P")
R = TypeVar("R")
Request = TypeVar("Request")
T = TypeVar("T")
Answer = TypeVar("Answer", bound=RunInput)

BETWEEN_LOOKS = 10  # seconds between looks for the answer, of a run that waits in its process

SHOWN = "blr-shown"  # key under which the server keeps what a person is shown
MOST_CHARACTERS = 200  # length at which a name is cut; lists of runs show one line of it


def run_name(
    request: Callable[..., Request], words: Callable[[Request], str], otherwise: str
) -> Callable[[], str]:
    """Return what Prefect asks for the name of a run: the `words` on its request.

    It is called `otherwise` where there are no words, as for a model that the store does not have: what is wrong is for
    the run itself to say.
    """

    def name() -> str:
        try:
            return _cut(words(request(**flow_run.parameters)))
        except Exception:  # noqa: BLE001  a run never fails for its name
            return otherwise

    return name


def task_name(words: Callable[[Mapping[str, Any]], str]) -> Callable[[], str]:
    """Return what Prefect asks for the name of a task run: the `words` on its parameters, by their names."""
    return lambda: _cut(words(task_run.parameters))


def step(work: Callable[P, R], name: str, run_name: str | Callable[[], str]) -> Task[P, R]:
    """Return a task of Prefect, of which no result is kept: our own files say what is done."""
    return Task(work, name=name, task_run_name=run_name, cache_policy=NO_CACHE, persist_result=False)


def rename_run(name: str) -> None:
    """Give the run in hand another name, if it has not got it already."""
    context = FlowRunContext.get()
    run = None if context is None else context.flow_run
    if run is None or run.name == _cut(name):
        return
    with get_client(sync_client=True) as client:
        client.set_flow_run_name(run.id, _cut(name))
    run.name = _cut(name)


QUARANTINED = "Quarantined"
"""Name of the final state of a run that has left files out: a list of runs shows it in the place of "Completed"."""


def completed(value: T, message: str, *, name: str = "Completed") -> T:
    """Return the result of a flow so that the message of its final state says it in words; `name` is the state's.

    Prefect takes the value out of the state again: whoever calls the flow gets the value itself.
    """
    return cast("T", Completed(name=name, message=message, data=value))


def failing_in_words(context: FlowRunContext, work: Callable[[], T]) -> T:
    """Return what the work of a flow gives; where the user can correct its error, fail in one sentence.

    The name of the run, the message of its state and its log have the sentence.  The traceback is in the output of the
    process, which its worker logs.  Whoever calls the flow gets the error itself.  A Ctrl-C cancels the run.
    """

    def is_ours(record: logging.LogRecord) -> bool:
        """Say whether a record is not the traceback of an error that the user can correct."""
        error = record.exc_info[1] if record.exc_info else None
        return error is None or words_of(error) is None

    for name in ("prefect.flow_runs", "prefect.task_runs"):
        for handler in logging.getLogger(name).handlers:
            if isinstance(handler, APILogHandler):
                handler.addFilter(is_ours)
    try:
        return work()
    except Exception as error:
        words = words_of(error)
        if words is None:
            raise
        with suppress(HTTPError):  # the server is away, which is not what went wrong
            rename_run(f"{context.flow.name if context.flow else ''}: {words}")
        ended = Cancelled if isinstance(error, Interrupted) else Failed
        return cast("T", ended(message=words, data=error))


def _cut(name: str) -> str:
    return name if len(name) <= MOST_CHARACTERS else f"{name[: MOST_CHARACTERS - 1]}…"


def asked(
    form: type[Answer], what: str, make: Callable[[], dict[str, str]], timeout: int
) -> tuple[dict[str, str], Answer]:
    """Ask a person about something on the page of the run; return what was shown, of which "text" is, and the answer.

    A run that can be started again ends before the answer; the server keeps what was shown for the run that it starts.
    """
    # It would be awaited in an asynchronous flow.
    shown = cast("dict[str, str] | None", read_flow_run_input(SHOWN))
    if shown is None:
        shown = make()
        create_flow_run_input(SHOWN, shown)
        get_run_logger().info(
            "%s", f"asking a person about {what}: on this page, choose Resume, a button or in the menu ⋮"
        )
    wait_for_input = form.with_initial_data(description=shown["text"])
    if deployment.id is None:
        answer = pause_flow_run(wait_for_input=wait_for_input, timeout=timeout, poll_interval=BETWEEN_LOOKS)
    else:
        answer = suspend_flow_run(wait_for_input=wait_for_input, timeout=timeout)
    get_run_logger().info("%s", " ".join(f"{name}: {value}." for name, value in answer.model_dump().items()))
    return shown, answer


TEXTS = list[Annotated[str, BeforeValidator(str)]]
"""A list of texts; other values in it, such as paths, are converted to texts."""


def flow_of(
    request: Callable[P, Request],
    words: Callable[[Request], str],
    direct: Callable[[Request], Any] | None = None,
) -> Callable[[Callable[[Request], T]], Flow[P, T]]:
    """Return a decorator: it makes a flow of a function that took a request, with the fields as parameters.

    The signature, the annotations and the docstring of the flow show these parameters, with their types, defaults,
    bounds and descriptions.  Its runs are named by the `words` on the request, and its results are JSON.  An error that
    the user can correct ends a run in one sentence.  `direct` does the same work outside of a run.  Types in quotes, as
    of a specification, are names of the function's module.
    """
    # `request` is a class; it is annotated as a Callable so that type checkers know the parameters of the result.
    assert isinstance(request, type)  # noqa: S101
    fields = list(request_fields(request))

    def decorate(work: Callable[[Request], T]) -> Flow[P, T]:
        hints = get_type_hints(request, localns=vars(sys.modules[work.__module__]))

        @wraps(work)
        def call(*args: P.args, **kwargs: P.kwargs) -> T:
            asked, context = request(*args, **kwargs), FlowRunContext.get()
            if context is None:
                return (work if direct is None else direct)(asked)
            return failing_in_words(context, lambda: work(asked))

        parameters = []
        for field, parameter in fields:
            hint = TEXTS if hints[field.name] == list[str] else hints[field.name]
            bounded = hint if parameter.least is None else Annotated[hint, Ge(parameter.least)]
            parameters.append(field.replace(annotation=bounded))
        result = get_type_hints(work)["return"]
        call.__signature__ = inspect.Signature(parameters, return_annotation=result)  # type: ignore[attr-defined]
        call.__annotations__ = {p.name: p.annotation for p in parameters} | {"return": result}
        lines = (f"    {field.name}: {parameter.words}" for field, parameter in fields)
        call.__doc__ = "\n".join([f"{inspect.getdoc(work)}\n\nArgs:", *lines])
        name, called = work.__name__, run_name(request, words, work.__name__)
        return flow(name=name, flow_run_name=called, persist_result=True, result_serializer=RESULTS)(call)

    return decorate


# Result files of flow runs hold JSON, and give the typed value back; whatever else is put there is not loaded.
#
# Prefect's own JSON has a key "data" for a typed value, which its reader of result files takes for the mark of an old
# format, so that the type is lost.  `RESULTS` writes other keys, and reads only values of ours.
#
# A result file names the format in which Prefect reads it, and a file that says "pickle" runs code. So our processes,
# which run one flow and then end, read JSON only. Programs of users are not restricted, since they may have their own
# pickles.

KIND, DOCUMENT = "blr_kind", "blr_document"
"""The keys of a typed value: the name of its class, and its JSON object."""


def encode_value(value: Any) -> dict[str, Any]:
    """Return the JSON object of a typed value, with the name of its type; of an error, its message as a FlowError's."""
    if isinstance(value, Exception):
        return {KIND: to_qualified_name(FlowError), DOCUMENT: str(value)}
    return {KIND: to_qualified_name(type(value)), DOCUMENT: to_document(value)}


def decode_value(document: dict[str, Any]) -> Any:
    """Return the value of `encode_value`; any other JSON object as it is.

    FlowError if the type is not one of ours.
    """
    if document.keys() != {KIND, DOCUMENT}:
        return document
    name = str(document[KIND])
    if name == to_qualified_name(FlowError):
        return FlowError(document[DOCUMENT])
    kind = from_qualified_name(name) if name.startswith("flows.") else None
    if not (isinstance(kind, type) and is_dataclass(kind)):
        raise FlowError(
            f"got a result of the type '{name}', expected a type of the package 'flows': another version or "
            "another program wrote it; find out which, and empty the folder of results"
        )
    return from_document(kind, document[DOCUMENT], source="a result of a run")


RESULTS: Final[JSONSerializer[Any]] = JSONSerializer(
    object_encoder="flows.orchestration.run_page.encode_value",
    object_decoder="flows.orchestration.run_page.decode_value",
)
"""How the results of our flows are kept."""

PREFECTS: Final[dict[type, Callable[..., Any]]] = {
    s: s.loads for s in (PickleSerializer, CompressedSerializer, JSONSerializer)
}
"""Prefect's own readers."""
_PLAIN = JSONSerializer()


def read_json_only() -> None:
    """Let this process refuse every result that is not plain JSON."""
    setattr(PickleSerializer, "loads", _refuse)  # noqa: B010 - methods are not meant to be assigned
    setattr(CompressedSerializer, "loads", _refuse)  # noqa: B010
    setattr(JSONSerializer, "loads", _loads_plain)  # noqa: B010


def _refuse(serializer: Any, blob: bytes) -> NoReturn:  # noqa: ARG001
    raise FlowError(
        f"got a result in the format {serializer.type!r}, expected JSON: another program wrote it, and it "
        "may contain code; find out which, and empty the folder of results"
    )


def _loads_plain(serializer: JSONSerializer, blob: bytes) -> Any:
    ours = [(own.jsonlib, own.object_decoder, own.loads_kwargs) for own in (_PLAIN, RESULTS)]
    if (serializer.jsonlib, serializer.object_decoder, serializer.loads_kwargs) not in ours:
        _refuse(serializer, blob)
    return PREFECTS[JSONSerializer](serializer, blob)


PAGES = "BLR_PAGES"
"""Environment variable: FOLDER=URL, a folder and the address at which a web server of the team serves it."""


def page_of(path: Path) -> str:
    """Return the address of a file: that of the team's web server for files below its folder, else a file's own.

    UsageError if `BLR_PAGES` is set, and is not FOLDER=URL.
    """
    setting = os.environ.get(PAGES, "")
    if setting:
        folder, equals, url = setting.partition("=")
        if not (equals and folder and "://" in url):
            raise UsageError(
                f"{PAGES}: got '{setting}', expected FOLDER=URL, such as /srv/survey=https://survey.example.org/files"
            )
        if path.is_relative_to(Path(folder).resolve()):
            below = path.relative_to(Path(folder).resolve()).as_posix()
            return f"{url.rstrip('/')}/{quote(below)}"
    return path.as_uri()


MOST_FILES = 50  # most quarantined files that have an event each


def release_events(result: ReleaseResult) -> None:
    """Tell of a release that was done, and of what somebody should look at; an automation alerts once a day."""
    is_new = result.before is None or result.before.release != result.release
    if result.summary is not None and result.status == "done" and is_new:
        _release_done(result, result.summary)
    for file, reason in list(result.quarantined.items())[:MOST_FILES]:
        payload = {"file": file, "reason": reason, "model": result.model, "out": str(result.out)}
        _emit("blr.partition.quarantined", f"blr.partition.{file}", payload)


def _release_done(result: ReleaseResult, summary: Summary) -> None:
    name, _ = name_and_version(result.model)
    change = result.difference
    payload = {
        "release": result.release,
        "model": result.model,
        "out": str(result.out),
        "rows": summary.n_rows,
        "annotated": sum(1 for file in result.files.values() if file["why"]),
        "retired": len(result.retired),
        "quarantined": len(result.quarantined),
        "deferred": len(result.deferred),
        "class_changed": 0 if change is None else change.class_changed,
        "moved": 0 if change is None else change.moved,
    }
    _emit("blr.release.done", f"blr.release.{name}", payload)
    if result.drifted:
        features = {feature: to_document(summary.drift[feature]) for feature in result.drifted}
        _emit("blr.drift.found", f"blr.model.{name}", {"model": result.model, "features": features})


def model_promoted(model: str, *, previous: str | None, who: str | None, why: str | None) -> None:
    """Tell of a new champion, NAME@VERSION: instead of which, by whom and why."""
    promotion = {"model": model, "previous": previous, "who": who, "why": why}
    _emit("blr.model.promoted", f"blr.model.{name_and_version(model)[0]}", promotion)


def _emit(event: str, resource: str, payload: Mapping[str, object]) -> None:
    emit_event(event=event, resource={"prefect.resource.id": resource}, payload=dict(payload))


SECONDS_BETWEEN_LINES, SECONDS_BETWEEN_UPDATES = 300.0, 5.0
Logger = logging.Logger | logging.LoggerAdapter[logging.Logger]
MOST_NOTES = 50  # most notes of a run that are logged: a catalogue of a thousand files may have one for each
MOST_LEFT_OUT = 10  # most files that are named; the table of troubles has more, the manifest all


class _Log(LineListener):
    """A listener that logs, keeps a progress artifact, and passes on what it hears to who listened before.

    Few lines: at the begin and the end of a piece of work, and one every five minutes between.
    """

    def __init__(self, logger: Logger, before: Listener, artifact: str = "") -> None:
        super().__init__(lambda line: logger.info("%s", line), SECONDS_BETWEEN_LINES, shortest=0)
        context = FlowRunContext.get()
        self.run = "" if context is None or context.flow_run is None else str(context.flow_run.id)
        self._before, self._key, self._notes = before, artifact, 0
        self._artifact: UUID | None = None
        self._updated = time.monotonic()

    def start(self, what: str, total: int, unit: str) -> None:
        """Log what begins."""
        self._before.start(what, total, unit)
        super().start(what, total, unit)
        if self._key:
            with self._unless_server_is_away():
                artifact = artifacts.create_progress_artifact(0.0, key=self._key, description=self.reached())
                self._artifact = cast("UUID", artifact)  # it would be awaited in an asynchronous flow

    def advance(self, n: int) -> None:
        """Log how far the work is; every five seconds the artifact says it."""
        self._before.advance(n)
        super().advance(n)
        now = time.monotonic()
        if self._artifact is not None and (self.ended or now - self._updated > SECONDS_BETWEEN_UPDATES):
            self._updated = now
            share = 100.0 * self._done / max(1, self._total)
            said, description = min(100.0, share), self.reached()
            with self._unless_server_is_away():
                artifacts.update_progress_artifact(self._artifact, said, description=description)

    @contextmanager
    def _unless_server_is_away(self) -> Iterator[None]:
        """Do without a progress artifact from now on where the server is away: the file in hand is not at fault."""
        try:
            yield
        except (HTTPError, ObjectNotFound):
            self._key, self._artifact = "", None

    def note(self, line: str) -> None:
        """Log a line."""
        self._before.note(line)
        self._notes += 1
        if self._notes <= MOST_NOTES + 1:
            self.write(line if self._notes <= MOST_NOTES else "further notes are not logged")

    def killed(self, run: str, why: str) -> None:
        """Let the server know that a run was killed: without a worker nobody else does, and it would run for ever.

        This run itself may be the one, tried again.
        """
        if run == self.run:
            return
        with get_client(sync_client=True) as client:
            try:
                state = client.read_flow_run(UUID(run)).state
            except (ObjectNotFound, ValueError):
                return  # of another server
            if state is not None and state.is_running():
                client.set_flow_run_state(UUID(run), Crashed(message=why), force=True)
                self.write(f"flow run {run} has crashed: {why}")


@contextmanager
def run_logged(artifact: str = "") -> Iterator[None]:
    """Log the progress of the work in the block, which is a flow run's; keep a progress artifact of that name."""
    key = f"{artifact_key(artifact)}-progress" if artifact else ""
    with listening(_Log(get_run_logger(), tell(), key)):
        yield


def log_left_out(state: str, reasons: Mapping[str, str]) -> None:
    """Log which files were left out, and why; `state` says how: "deferred", "quarantined"."""
    logger = get_run_logger()
    for name, why in list(reasons.items())[:MOST_LEFT_OUT]:
        logger.warning("%s", f"{state}: {name}: {why}")
    if len(reasons) > MOST_LEFT_OUT:
        logger.warning("%s", f"{state}: {len(reasons) - MOST_LEFT_OUT:,} more files; the manifest lists them")


MOST_BYTES = 100_000  # Prefect's database keeps artifacts for ever, and has no limit of its own


def artifact_key(text: str) -> str:
    """Return a key of lower-case letters, digits and dashes."""
    return re.sub(r"[^a-z0-9]+", "-", text.lower()).strip("-") or "blr"


def keep_table(key: str, table: ReportTable, description: str) -> None:
    """Leave a table, cut where it is too long."""
    rows, size = [], 0
    for cells in table.rows:
        size += sum(len(cell.encode()) + len(name) for cell, name in zip(cells, table.columns, strict=True))
        if size > MOST_BYTES:
            break
        rows.append(dict(zip(table.columns, cells, strict=True)))
    artifacts.create_table_artifact(key=artifact_key(key), table=rows, description=description)


def keep_markdown(key: str, text: str, description: str) -> None:
    """Leave a text, cut where it is too long."""
    cut = text.encode()[:MOST_BYTES].decode(errors="ignore")
    note = "" if cut == text else "\n\n(shortened: the report has the full table)"
    artifacts.create_markdown_artifact(key=artifact_key(key), markdown=cut + note, description=description)


logger = logging.getLogger(__name__)

Result = TypeVar("Result", bound=ClassificationResult)


def keep_link(key: str, path: Path, text: str) -> None:
    """Leave a link to a file.

    It is one of the machine that ran: under `BLR_PAGES=FOLDER=URL` the link is that of a web server which serves the
    folder, else browsers open it on that machine alone.
    """
    there = path.resolve()
    said, key = f"{text}: {there} on {socket.gethostname()}", artifact_key(key)
    artifacts.create_link_artifact(link=page_of(there), link_text=text, key=key, description=said)


def keep_run(verb: str, result: Result) -> Result:
    """Leave the artifacts of a run, and tell of it; return the result, with its words for the run's final state."""
    name, _ = name_and_version(result.model)
    made, said = f"{result.status}, by {result.model}", [classification_message(result)]
    for what, table in run_tables(result).items():
        keep_table(f"{name}-{what}", table, f"{table.title}: {made}")
    ended = "Completed"
    if not isinstance(result, ClassificationTrial):
        ended = QUARANTINED if result.quarantined else ended
        if (page := result.out / REPORT).is_file():
            keep_link(f"{name}-release", page, f"Report of release {result.release}")
        release_events(result)
        if result.manifest.is_file():
            status = status_table(read_status(result.out))
            keep_table(f"{name}-status", status, f"{status.title}: {made}")
        log_left_out("quarantined", result.quarantined)
        log_left_out("deferred", result.deferred)
        for sentence in result.repeats:
            logger.warning(sentence)
            said.append(f"{sentence[:1].upper()}{sentence[1:]}.")
    rename_run(classification_name(verb, result))
    return completed(result, " ".join(said), name=ended)
