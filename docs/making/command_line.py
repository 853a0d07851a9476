"""The page of the command line, from Typer: every command with its arguments and options."""

from __future__ import annotations

__all__ = ["command_line_page", "commands"]

from collections.abc import Iterator
from typing import Any, get_args

import typer

from flows.cli.app import application


def commands(command: Any = None, name: str = "blr") -> Iterator[tuple[str, Any]]:
    """Yield each command that users see after its whole name, a group before its commands."""
    command = typer.main.get_command(application()) if command is None else command
    yield name, command
    for word, inner in getattr(command, "commands", {}).items():
        if not inner.hidden:
            yield from commands(inner, f"{name} {word}")


def command_line_page() -> str:
    """Return the page, as Markdown."""
    lines = [
        "# Command line",
        "",
        "This page is written from the commands themselves when the site is built: it says what `--help` says.",
        "`blr --install-completion` teaches your shell all of it. [JSON](../json.md) tells what `--json` prints.",
    ]
    for name, command in commands():
        rows = [_row(parameter) for parameter in command.params if not getattr(parameter, "hidden", False)]
        lines += [
            "",
            f"## {name}",
            "",
            _plain(command.help or ""),
            "",
            "```text",
            _usage(name, command),
            "```",
        ]
        lines += ["", "| option | default | meaning |", "|---|---|---|", *rows] if rows else []
    return "\n".join(lines) + "\n"


def _usage(name: str, command: Any) -> str:
    arguments = [p for p in command.params if p.param_type_name == "argument"]
    words = [f"{_argument(p)}{'...' if p.nargs == -1 else ''}" for p in arguments]
    words = [word if p.required else f"[{word}]" for word, p in zip(words, arguments, strict=True)]
    return " ".join([name, "[OPTIONS]", *words, *(["COMMAND"] if hasattr(command, "commands") else [])])


def _argument(parameter: Any) -> str:
    return str(parameter.metavar or parameter.name.upper())


def _row(parameter: Any) -> str:
    if parameter.param_type_name == "argument":
        words = f"`{_argument(parameter)}`"
    else:
        metavar = "" if parameter.is_flag or not parameter.metavar else f" {parameter.metavar}"
        words = ", ".join(f"`{word}{metavar}`" for word in (*parameter.opts, *parameter.secondary_opts))
    annotation = getattr(getattr(parameter, "type_descriptor", None), "annotation", None)
    choices = [value for value in get_args(annotation) if isinstance(value, str)]
    meaning = _plain(parameter.help or "")
    if choices:
        meaning = f"{meaning.rstrip('.')}: {', '.join(f'`{value}`' for value in choices)}."
    shown = "required" if parameter.required else _default(parameter.default)
    return f"| {words.replace('|', chr(92) + '|')} | {shown} | {meaning} |"


def _default(value: object) -> str:
    if value in (None, "", (), [], False) or callable(value):
        return ""
    return f"`{getattr(value, 'value', value)}`"


def _plain(text: str) -> str:
    """Return one paragraph in which Markdown sees no markup of its own."""
    joined = " ".join(text.replace("\b", "").split())
    for mark in ("|", "*", "[", "<", "_"):
        joined = joined.replace(mark, f"\\{mark}")
    return joined
