"""Write the pictures of a report as SVG files: python pictures_of_report.py REPORT.html FOLDER."""

from __future__ import annotations

import base64
import re
import sys
from html import unescape
from pathlib import Path

PICTURE = re.compile(
    r'<img src="data:image/svg\+xml;base64,([^"]+)"[^>]*>\s*(?:</div>\s*)?<figcaption><b>([^<]+)</b>',
    flags=re.DOTALL,
)


def main(report: Path, folder: Path) -> None:
    """Write each picture of a report into the folder."""
    folder.mkdir(parents=True, exist_ok=True)
    for image, title in PICTURE.findall(report.read_text(encoding="utf-8")):
        name = re.sub(r"[^a-z0-9]+", "-", unescape(title).lower()).strip("-")
        (folder / f"{name}.svg").write_bytes(base64.b64decode(image))


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
