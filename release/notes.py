"""Print the changelog's section of a release: `python release/notes.py v0.1.0`; stop where there is none."""

from __future__ import annotations

import re
import sys
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent


def release_notes(tag: str, changelog: str, version: str) -> str:
    """Return the section of version X.Y.Z that a tag vX.Y.Z names; SystemExit where tag, version and text differ."""
    if tag != f"v{version}":
        raise SystemExit(
            f"got the tag {tag}, expected v{version}, the version in pyproject.toml; correct one of them"
        )
    section = re.search(
        rf"^## \[{re.escape(version)}\].*?\n(.*?)(?=^## \[|\Z)", changelog, flags=re.MULTILINE | re.DOTALL
    )
    if section is None or not section[1].strip():
        raise SystemExit(
            f"CHANGELOG.md has no section [{version}]; rename [Unreleased] to [{version}], with the date, and tag again"
        )
    return section[1].strip()


if __name__ == "__main__":
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    changelog = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    print(release_notes(sys.argv[1], changelog, project["version"]))  # noqa: T201
