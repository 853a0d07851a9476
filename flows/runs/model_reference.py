"""References to a model in texts: NAME means its champion, NAME@VERSION one of its versions."""

from __future__ import annotations

import re
from dataclasses import dataclass

from catalogs.remote.urls import is_remote, shown
from flows.errors import ModelError

NAME_PATTERN = r"^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$"
"""Names of models become folders: they have no separators, no leading dot, and fit any file system."""
VERSION_LENGTH = 12
VERSION_PATTERN = r"^[0-9a-f]{12}$"


@dataclass(frozen=True)
class ModelReference:
    """The name of a model and its version."""

    name: str
    version: str = ""  # or its first digits; empty for the champion

    @classmethod
    def parse(cls, text: str) -> ModelReference:
        """Return the reference in a text; only the store knows whether there is such a model."""
        if is_remote(text):
            raise ModelError(
                f"got '{shown(text)}' as a model, expected NAME or NAME@VERSION; choose one of the store's"
            )
        name, _, version = text.partition("@")
        return cls(name, version)

    @property
    def label(self) -> str:
        """The reference as `NAME@VERSION`."""
        return f"{self.name}@{self.version}"


def check_name(name: str) -> str:
    """Return the name of a model, which becomes a folder; ModelError where it would lead elsewhere."""
    if not re.fullmatch(NAME_PATTERN, name):
        raise ModelError(
            f"got '{name}' as a model's name, expected up to 64 letters, digits, '.', '_' and '-', beginning "
            "with a letter or digit; choose such a name"
        )
    return name


def check_version(version: str) -> str:
    """Return the version of a model, which becomes a folder; ModelError where it cannot be a folder."""
    if not re.fullmatch(VERSION_PATTERN, version):
        raise ModelError(
            f"got '{version}' as a model's version, expected {VERSION_LENGTH} hexadecimal digits; "
            "`blr models list` shows them"
        )
    return version
