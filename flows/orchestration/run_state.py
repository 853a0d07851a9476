"""The signature of a flow, the name of its run, what its final state says, and the file of its result."""

from __future__ import annotations

import inspect
import logging
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import is_dataclass
from functools import wraps
from typing import Annotated, Any, Final, NoReturn, ParamSpec, TypeVar, cast, get_type_hints

from annotated_types import Ge
from prefect.client.orchestration import get_client
from prefect.context import FlowRunContext
from prefect.flow_runs import pause_flow_run, suspend_flow_run
from prefect.input import RunInput
from prefect.logging.handlers import APILogHandler
from prefect.runtime import deployment, flow_run, task_run
from prefect.serializers import CompressedSerializer, JSONSerializer, PickleSerializer
from prefect.states import Completed, Failed
from prefect.utilities.importtools import from_qualified_name, to_qualified_name
from pydantic import BeforeValidator

from catalogs.errors import CatalogError
from catalogs.remote.urls import scrubbed
from flows.documents import from_document, to_document
from flows.errors import FlowError, Terminated
from flows.runs.parameters import Parameter, request_fields
from flows.runs.references import ModelReference
from flows.runs.results import ClassificationResult, ClassificationTrial, ReleaseResult

DIGITS = 4
"""Digits of a version in the name of a run: as many as name it on the command line."""


def short_label(label: str) -> str:
    """Return NAME@VERSION with the first digits of the version."""
    reference = ModelReference.parse(label)
    return ModelReference(reference.name, reference.version[:DIGITS]).label


def started_name(verb: str, label: str, *, release: int, trial: bool = False) -> str:
    """Return the name of a run that is to make a release, or to try a model."""
    head = f"{verb} {short_label(label)}"
    return f"{head} → release {release}" if not trial else f"{head}: trial"


def classification_name(verb: str, result: ClassificationResult) -> str:
    """Return the name of a run that has ended."""
    head = f"{verb} {short_label(result.model)}"
    if result.status == "done":
        return f"{head} → {_release(result)}"
    if isinstance(result, ClassificationTrial) or not result.quarantined:
        return f"{head}: {result.status}"
    return f"{head}: {result.status}, {_release(result)}"


def classification_message(result: ClassificationResult) -> str:
    """Return the result of a run in words."""
    if isinstance(result, ClassificationTrial):
        return f"Trial on {result.summary.n_rows:,} rows; nothing was written."
    rows = result.summary.n_rows if result.summary else 0
    left = {*result.quarantined, *result.deferred}
    files = {name: file for name, file in result.files.items() if name not in left}
    whole = f"{_n(len(files), 'file')}, {_n(rows, 'object')}"
    if result.status == "waiting":
        return f"Nothing could be done yet: {_left_out(result) or 'all inputs wait for the next run'}."
    if result.status != "done":
        parts = [f"Nothing to do: {whole}, as at {_release(result)}", _left_out(result)]
        return f"{'; '.join(filter(None, parts))}."
    why = Counter(file["why"] for file in files.values() if file["why"])
    now = ", ".join(f"{n:,} {reason}" for reason, n in sorted(why.items()))
    parts = [
        f"R{_release(result)[1:]}: {whole}",
        f"annotated now: {now or 'none'}",
        _changed(result),
        _left_out(result),
        f"unlike the training set: {', '.join(result.drifted)}" if result.drifted else "",
    ]
    return f"{'; '.join(filter(None, parts))}."


def _changed(result: ReleaseResult) -> str:
    difference = result.difference
    if difference is None or not difference.compared:
        return ""
    return f"{difference.class_changed:,} of {difference.compared:,} objects changed class"


def _release(result: ReleaseResult) -> str:
    """Return the number of the release in a folder, with the number of quarantined files."""
    number = "no release" if result.release is None else f"release {result.release}"
    return f"{number}, {len(result.quarantined):,} quarantined" if result.quarantined else number


def _left_out(result: ReleaseResult) -> str:
    counts = {
        "stale": len(result.stale),
        "retired": len(result.retired),
        "deferred": len(result.deferred),
    }
    left = ", ".join(f"{n:,} {state}" for state, n in counts.items() if n)
    repeats = "objects are in two files" if result.repeats else ""
    return "; ".join(filter(None, (left, repeats)))


def _n(count: int, what: str) -> str:
    return f"{count:,} {what}{'' if count == 1 else 's'}"


def words_of(error: BaseException) -> str | None:
    """Return the message of an error that the user can correct, without secrets; None for a fault of ours."""
    match error:
        case FlowError() | CatalogError() | Terminated():
            return scrubbed(str(error))  # a URL may be given where a path is expected
        case OSError():
            place = f"{error.filename}: " if error.filename else ""
            return scrubbed(f"{place}{error.strerror or error}; every file with a final name is complete")
    return None


Request = TypeVar("Request")
T = TypeVar("T")
Answer = TypeVar("Answer", bound=RunInput)

BETWEEN_LOOKS = 10
"""Seconds between looks for the answer, of a run that waits in its process."""

MOST_CHARACTERS = 200
"""Length at which a name is cut; lists of runs show one line of it."""


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


def failing_in_words(work: Callable[[], T]) -> T:
    """Return what the work of a flow gives; where the user can correct its error, fail in one sentence.

    The name of the run, the message of its state and its log have the sentence.  The traceback is in the output of the
    process, which its worker logs.  Whoever calls the flow gets the error itself.
    """
    context = FlowRunContext.get()
    if context is None:
        return work()

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
        rename_run(f"{context.flow.name if context.flow else ''}: {words}")
        return cast("T", Failed(message=words, data=error))


def _cut(name: str) -> str:
    return name if len(name) <= MOST_CHARACTERS else f"{name[: MOST_CHARACTERS - 1]}…"


def answer_of(asked: type[Answer], timeout: int) -> Answer:
    """Return what a person says on the page of the run; a run that can be started again ends here first."""
    if deployment.id is None:
        return pause_flow_run(wait_for_input=asked, timeout=timeout, poll_interval=BETWEEN_LOOKS)
    return suspend_flow_run(wait_for_input=asked, timeout=timeout)


P = ParamSpec("P")
R = TypeVar("R")

TEXTS = list[Annotated[str, BeforeValidator(str)]]
"""A list of texts; other values in it, such as paths, are converted to texts."""


def takes(
    request: Callable[P, R], names: Mapping[str, object] | None = None
) -> Callable[[Callable[[R], T]], Callable[P, T]]:
    """Return a decorator: a function that took a request takes the request's fields as its parameters instead.

    An error that the user can correct ends its run in one sentence.

    The signature, the annotations and the docstring of the decorated function show these parameters, with their types,
    defaults, bounds and descriptions.  `names` maps a name in the annotations, in quotes and not imported by the
    request's module, to what it stands for.
    """
    # `request` is a class; it is annotated as a Callable so that type checkers know the parameters of the result.
    assert isinstance(request, type)  # noqa: S101
    hints = get_type_hints(request, localns=dict(names or {}))
    fields = list(request_fields(request))

    def decorate(work: Callable[[R], T]) -> Callable[P, T]:
        @wraps(work)
        def call(*args: P.args, **kwargs: P.kwargs) -> T:
            return failing_in_words(lambda: work(request(*args, **kwargs)))

        parameters = [
            field.replace(annotation=_bounded(hints[field.name], parameter)) for field, parameter in fields
        ]
        result = get_type_hints(work)["return"]
        call.__signature__ = inspect.Signature(parameters, return_annotation=result)  # type: ignore[attr-defined]
        call.__annotations__ = {p.name: p.annotation for p in parameters} | {"return": result}
        lines = (f"    {field.name}: {parameter.words}" for field, parameter in fields)
        call.__doc__ = "\n".join([f"{inspect.getdoc(work)}\n\nArgs:", *lines])
        return call

    return decorate


def _bounded(hint: Any, parameter: Parameter) -> Any:
    """Return the type that Prefect checks with pydantic: the annotated one with the parameter's bound."""
    if hint == list[str]:
        return TEXTS
    return hint if parameter.least is None else Annotated[hint, Ge(parameter.least)]


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

    Raises
    ------
    FlowError
        If the type is not one of ours.
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
    object_encoder="flows.orchestration.run_state.encode_value",
    object_decoder="flows.orchestration.run_state.decode_value",
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
