"""Reports and lists in a browser: nothing overflows, nothing is asked for, nothing is shut to those who cannot see it.

The accessibility check needs axe-core: `npm install axe-core`, and the path of its `axe.min.js` in `BLR_AXE`.
"""

from __future__ import annotations

import os
import runpy
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from matplotlib.image import imread

from flows.reports.catalogue_page import ClassExample, FeatureContribution, LikeObject, render_classification
from flows.reports.data import FeatureComparison, FlaggedByInput, NotableObject, TrainingPictures
from flows.reviews._lists import AUDIT_LIST, OUTLIERS, REVIEW, write_list
from flows.runs.results import SkyCounts
from tests.e2e.browser import Browser, browser, missing
from tests.flows.reports.test_answers import NOTES, classified, quality_of, summary, told
from tests.flows.reports.test_report import HOSTILE, changed, make_model, page_of
from tests.flows.verbs import listed

pytestmark = [pytest.mark.slow, pytest.mark.skipif(missing() is not None, reason=str(missing()))]

AXE = Path(os.environ.get("BLR_AXE", "node_modules/axe-core/axe.min.js"))
WIDTHS = (1280, 390)
REPORTS = ("training", "many-classes", "classification", "by-magnitude")
PAGES = (*REPORTS, "review", "outliers", "audit")


def training_page() -> str:
    K, rng = 3, np.random.default_rng(0)
    pictures = TrainingPictures(
        threshold=np.linspace(0, 1, 11),
        completeness=rng.random((K, 11)),
        purity=rng.random((K, 11)),
        magnitude_name="bmag",
        binned={"magnitude": (np.linspace(10, 20, 5), np.full((3, 5, K), 30))},
    )
    missing = {HOSTILE: {"masked": 1}, "x" * 300: {"masked": 1}}
    return page_of(told(states=missing), NOTES, pictures=pictures)


def page_of_many_classes() -> str:
    """Return the report of a model of 28 classes, each taken for the next one now and then, and with four suspects."""
    uneven = "measured for 99% of class 'SABa' and {}% of class 'SABd'"
    suspects = {f"{band}-Mag": uneven.format(share) for band, share in (("J", 33), ("H", 44), ("K", 33))}
    K = 28
    counts = 40 * np.eye(K, dtype=int) + 20 * np.eye(K, k=1, dtype=int) + 1
    classes, rows = tuple(f"class {k}" for k in range(K)), tuple(map(tuple, counts.tolist()))
    per_class = tuple(counts.sum(axis=1).tolist())
    return page_of(
        changed(
            make_model(classes),
            confusion=rows,
            n=int(counts.sum()),
            training_counts=per_class,
            held_out_counts=per_class,
            quality=(quality_of(suspects={**suspects, "RadVel": "a distance"}),),
            log_loss_logistic=0.55,
        )
    )


EXAMPLE = ClassExample(
    identifier="NGC 1 " + "x" * 200,
    classes=("early", "late"),
    probabilities=(0.52, 0.48),
    contributions=tuple(
        FeatureContribution(
            name=f"feature_{j}", expression="b - j", value=1.5, usual=1.0, contribution=0.3 - j / 10, std=0.1
        )
        for j in range(10)
    ),
    nearest=(
        LikeObject(identifier="", name="late", distance=0.3, compared=2, ra=None, dec=None, links={}),
        LikeObject(identifier="NGC 2", name="early", distance=0.4, compared=2, ra=1.0, dec=2.0, links={}),
    ),
)


def classification_page(flagged: FlaggedByInput | None = None) -> str:
    """Return the report of a classification; with what is flagged by an input, it has no positions."""
    pixels = tuple(range(0, 3072, 7))
    n, few, assigned = zip(*((i + 1, i // 2, (i, i // 3)) for i in pixels), strict=True)
    sky = SkyCounts(order=4, pixels=pixels, n=n, flagged=few, assigned=assigned)
    counts = {"training": (3, 4, 5), "target": (1, 2, 9)}
    feature = FeatureComparison(name="b_j", edges=(1.0, 2.0), **counts, low=0.0, high=4.0)
    return render_classification(
        classified(
            summary(),
            sky=None if flagged else sky,
            flagged=flagged,
            features=(feature,),
            objects=(NotableObject(name="NGC 1", ra=1.0, dec=2.0, why="low confidence"),),
            examples=(EXAMPLE,),
            quarantined={"a" * 200 + ".fits": "truncated"},
            units={"b_j": ("bmag - jmag", None)},
            provenance={"model": "m@1", "blr": "1"},
        )
    )


def magnitude_page() -> str:
    edges = tuple(12 + 0.75 * i for i in range(11))
    n, flagged = (3, *(100 * i for i in range(10)), 40, 7), (3, *(9 * i for i in range(10)), 38, 2)
    return classification_page(FlaggedByInput(name="r", edges=edges, n=n, flagged=flagged))


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("pages")
    made = (training_page, page_of_many_classes, classification_page, magnitude_page)
    written = {name: make() for name, make in zip(REPORTS, made, strict=True)}
    for name, text in written.items():
        (folder / f"{name}.html").write_text(text, encoding="utf-8")
    lists(folder)
    return {path.stem: path for path in folder.glob("*.html")}


def lists(folder: Path) -> None:
    """Write the lists that people fill in, of a model and an object with long names."""
    title, flags = f"Review of {'model' * 9}@0123456789ab", "LOW_CONFIDENCE, FLIPPED"
    classes = ["early", "late"]
    place = (HOSTILE, 10.5, -2.25)
    chosen = listed(REVIEW, *place, "early", 0.5, "late", 0.3, 0.1, 1, flags, "drawn", 123.456)
    outlier = listed(OUTLIERS, *place, "early", 0.5, "late", 0.3, 1, flags, 12.0, 1.5, "late")
    write_list(REVIEW, [chosen, chosen], folder, "name", classes, title)
    write_list(OUTLIERS, [outlier], folder, "name", classes, title)
    write_list(AUDIT_LIST, [listed(AUDIT_LIST, *place, 0, 0.1, 10.0)], folder, "name", classes, title)


@pytest.fixture(scope="module")
def window(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    with browser(tmp_path_factory.mktemp("browser")) as opened:
        yield opened


def shown(window: Browser, page: Path, width: int, *, dark: bool = False) -> None:
    """Open a page as a device of so many points shows it."""
    device = {"width": width, "height": 1000, "deviceScaleFactor": 1, "mobile": width < 500}
    scheme = [{"name": "prefers-color-scheme", "value": "dark" if dark else "light"}]
    window.driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", device)
    window.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": scheme})
    window.open(page.as_uri())


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("name", PAGES)
def test_nothing_overflows_is_asked_for_or_complains(
    window: Browser, pages: dict[str, Path], name: str, width: int
) -> None:
    shown(window, pages[name], width)
    widths = "const page = document.documentElement; return [page.scrollWidth, page.clientWidth]"
    wide, room = window.driver.execute_script(widths)
    assert wide == room > width - 20  # less a scroll bar
    asked = window.driver.execute_script("return performance.getEntriesByType('resource').map(e => e.name)")
    assert [url for url in asked if not url.startswith("data:")] == []
    broken = "return [...document.images].filter(i => !i.complete || !i.naturalWidth).length"
    assert window.driver.execute_script(broken) == 0
    assert window.driver.get_log("browser") == []


@pytest.mark.parametrize("name", REPORTS)
def test_the_first_screen_has_two_pictures_and_four_answers(
    window: Browser, pages: dict[str, Path], name: str
) -> None:
    """At 1280 x 800; on a phone, the text of the pictures can be read."""
    shown(window, pages[name], WIDTHS[0])
    found = window.driver.execute_script(
        "const first = [...document.querySelectorAll('main section img, .four > div')].slice(0, 6);"
        "return first.map(e => e.getBoundingClientRect().bottom)"
    )
    assert len(found) == 6
    assert max(found) <= 800
    shown(window, pages[name], WIDTHS[1])
    size = window.driver.execute_script("const i = document.images[0]; return 12 * i.width / i.naturalWidth")
    assert size >= 9


@pytest.mark.parametrize("dark", [False, True])
@pytest.mark.parametrize("name", PAGES)
def test_axe_finds_no_serious_fault(
    window: Browser, pages: dict[str, Path], name: str, *, dark: bool
) -> None:
    if not AXE.is_file():
        pytest.skip(f"{AXE} is not there: npm install axe-core, and give its axe.min.js in BLR_AXE")
    shown(window, pages[name], WIDTHS[0], dark=dark)
    window.driver.execute_script(AXE.read_text(encoding="utf-8"))
    found: list[dict[str, Any]] = window.driver.execute_async_script(
        "const done = arguments[0]; axe.run(document).then(r => done(r.violations))"
    )
    serious = [f"{v['id']}: {v['nodes'][0]['html']}" for v in found if v["impact"] in ("serious", "critical")]
    assert serious == []


def test_candidates_are_sorted_by_a_click(window: Browser, pages: dict[str, Path]) -> None:
    shown(window, pages["training"], WIDTHS[0])
    column = "[...document.querySelectorAll('table.sortable tbody tr')].map(r => r.cells[2].textContent)"
    before = [float(x) for x in window.driver.execute_script(f"return {column}")]
    window.driver.execute_script("document.querySelectorAll('table.sortable th button')[2].click()")
    after = [float(x) for x in window.driver.execute_script(f"return {column}")]
    assert after == sorted(before, reverse=True)
    assert after != before


def test_the_script_that_takes_pictures_of_pages(pages: dict[str, Path], tmp_path: Path) -> None:
    """docs/reading-the-report.md and docs/reviewing.md show such pictures."""
    script = Path(__file__).resolve().parents[2] / "docs" / "examples" / "picture_of_page.py"
    runpy.run_path(str(script))["main"](pages["review"], tmp_path / "review.png", 600, 400)
    picture = imread(tmp_path / "review.png")
    assert picture.shape[:2] == (400, 600)
    assert np.ptp(picture[..., :3]) > 0.5  # something stands on it
