"""Write a picture of the top of a page: python picture_of_page.py PAGE.html PICTURE.png [WIDTH HEIGHT].

It needs Chromium (Debian: chromium).
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
from pathlib import Path


def main(page: Path, picture: Path, width: int = 1100, height: int = 800) -> None:
    """Write what a window of that size shows of a page."""
    program = shutil.which("chromium") or shutil.which("google-chrome")
    if program is None:
        raise SystemExit("got no chromium and no google-chrome on PATH, expected one of them; install it")
    with tempfile.TemporaryDirectory() as profile:
        subprocess.run(  # noqa: S603  a page of our own
            [
                program,
                "--headless=new",
                "--no-sandbox",
                "--disable-gpu",
                "--hide-scrollbars",
                "--run-all-compositor-stages-before-draw",  # else parts of a page may be blank
                f"--user-data-dir={profile}",
                f"--window-size={width},{height}",
                f"--screenshot={picture.resolve()}",
                page.resolve().as_uri(),
            ],
            check=True,
            capture_output=True,
        )


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]), *map(int, sys.argv[3:5]))
