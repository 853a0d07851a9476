"""How texts name a model: NAME is its champion, NAME@VERSION one of its versions; only here are they taken apart."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["ModelReference"]


@dataclass(frozen=True)
class ModelReference:
    """The name of a model, and the version that is meant."""

    name: str
    version: str = ""  # or its first digits; empty for the champion

    @classmethod
    def parse(cls, text: str) -> ModelReference:
        """Return what a text means; whether there is such a model is for the store to say."""
        name, _, version = text.partition("@")
        return cls(name, version)

    @property
    def label(self) -> str:
        """`NAME@VERSION`."""
        return f"{self.name}@{self.version}"
