"""A review list in a browser: labels by keyboard, kept over a reload, written as the file that training reads."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys

from flows.labels.reader import read_reviews
from flows.reviews._lists import AUDIT_LIST, REVIEW, write_list
from flows.specification.catalog import Label
from tests.e2e.browser import Browser, browser, missing
from tests.flows.verbs import listed

pytestmark = [pytest.mark.slow, pytest.mark.skipif(missing() is not None, reason=str(missing()))]

NAMES = ('NGC "1", a', "<b>2</b>", "3")


@pytest.fixture(scope="module")
def window(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    """Yield a browser that keeps what a page tells it to: one that has just started may lose it."""
    folder = tmp_path_factory.mktemp("browser")
    page = folder / "page.html"
    page.write_text("<title>Nothing</title>", encoding="utf-8")
    with browser(folder) as opened:
        opened.open(page.as_uri())

        def keeps() -> bool:
            found = opened.driver.execute_script("return localStorage.getItem('ready')")
            opened.driver.execute_script("localStorage.setItem('ready', 'yes')")
            opened.driver.refresh()
            return found == "yes"

        opened.wait_for(keeps, "a browser that keeps what it is told")
        yield opened


def answers(window: Browser) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(window.driver.execute_script("return table()"))))


def reload_until(window: Browser, text: str) -> None:
    """Load the page again until it shows a text: a browser writes what it keeps some time after it was told to."""

    def shown() -> bool:
        window.driver.refresh()
        return text in window.text

    window.wait_for(shown, f"{text!r} on the page, loaded again")


def answer_until_kept(window: Browser, keys: str, text: str) -> None:
    """Press the keys until the page shows a text when it is loaded again.

    A loaded Chromium loses what the page of a file kept first, one time in fifty; a page keeps all answers at each.
    """

    def kept() -> bool:
        for key in keys:
            window.driver.switch_to.active_element.send_keys(key)
        window.shows(text)
        window.driver.refresh()
        return text in window.text

    window.wait_for(kept, f"{text!r} on the page, answered and loaded again")


def open_reviews(
    window: Browser,
    folder: Path,
    title: str,
    names: Sequence[str],
    classes: Sequence[str] = ("early", "late"),
) -> Path:
    """Open a page of objects to review; return its table."""
    one, other = classes
    rows = [
        listed(REVIEW, name, 10.0, -2.0, one, 0.6, other, 0.4, 0.1, 1, "LOW_CONFIDENCE", "drawn", 7.5)
        for name in names
    ]
    table, _, page = write_list(REVIEW, rows, folder, "name", classes, title)
    window.open(page.as_uri())
    return table


def open_audit(window: Browser, folder: Path, title: str) -> None:
    rows = [listed(AUDIT_LIST, name, 10.0, 2.0, 0, 0.5, 2.0) for name in NAMES]
    window.open(write_list(AUDIT_LIST, rows, folder, "name", ["early", "late"], title)[2].as_uri())


def test_labels_by_keyboard_are_the_list_with_its_answers(window: Browser, tmp_path: Path) -> None:
    table = open_reviews(window, tmp_path, "Review of m@1", NAMES)
    window.shows("0 of 3 answered", "low confidence")
    body = window.driver.find_element(By.TAG_NAME, "body")
    body.send_keys("2")
    window.driver.switch_to.active_element.send_keys("n")
    window.driver.switch_to.active_element.send_keys("3")
    window.shows("2 of 3 answered")
    found = answers(window)
    with table.open(encoding="utf-8") as stream:
        before = list(csv.DictReader(stream))
    assert [row["label"] for row in found] == ["late", "", "?"]
    assert [row | {"label": ""} for row in found] == [row | {"label": ""} for row in before]
    answer_until_kept(window, "2n3", "2 of 3 answered")
    assert [row["label"] for row in answers(window)] == ["late", "", "?"]
    logged = [entry["message"] for entry in window.driver.get_log("browser")]
    assert [text for text in logged if "favicon" not in text] == []


def test_answers_stay_with_their_list_and_their_object(window: Browser, tmp_path: Path) -> None:
    """A later list of the same model, on the same place, has other objects: it opens without an answer."""
    open_reviews(window, tmp_path, "Review of m@2", ("a", "b", "b"))
    window.shows("0 of 3 answered")
    answer_until_kept(window, "21", "2 of 3 answered")
    open_reviews(window, tmp_path, "Review of m@2", ("c", "a", "d"))
    window.shows("0 of 3 answered")
    open_reviews(window, tmp_path, "Review of m@2", ("a", "b", "b"))
    reload_until(window, "2 of 3 answered")
    assert [row["label"] for row in answers(window)] == ["late", "early", ""]


def test_a_label_that_is_a_formula_is_harmless_and_comes_back(window: Browser, tmp_path: Path) -> None:
    names = ("=1+1", "-2+3", "'tis", "a\rb", '@"x"')
    open_reviews(window, tmp_path, "Review of m@3", names, ("=early", "+late"))
    for _ in names:
        window.driver.switch_to.active_element.send_keys("2")
    window.shows("5 of 5 answered")
    downloaded = tmp_path / "answers.csv"
    downloaded.write_text(window.driver.execute_script("return table()"), encoding="utf-8", newline="")
    with downloaded.open(encoding="utf-8", newline="") as stream:
        for row in csv.reader(stream):
            assert not [c for c in row if c[:1] in "=+@\t\r" and c], "a formula"
            assert [c for c in row if c.startswith("-")] in ([], ["-2.0"]), (
                "only a number begins with a minus"
            )
    label = Label(column="class", classes={"=early": ["E"], "+late": ["L"]})
    assert read_reviews([downloaded], "name", label)[0] == dict.fromkeys(names, "L")


def test_a_list_fits_a_window_of_1200_pixels(window: Browser, tmp_path: Path) -> None:
    flags = "LOW_CONFIDENCE, CLOSE_CALL, OUT_OF_DOMAIN, BEYOND_LABELS"
    likely = ("galaxy", 0.6, "quasar", 0.4)
    row = listed(REVIEW, "5000000000000017645", 10.0, 2.0, *likely, 0.1, 1, flags, "drawn", 1228)
    paths = write_list(REVIEW, [row], tmp_path, "objid", ["galaxy", "quasar", "star"], "Review of m@1")
    before = window.driver.get_window_size()
    window.driver.set_window_size(1200, 900)
    window.open(paths[2].as_uri())
    window.shows("0 of 1 answered")
    widths = "const w = document.querySelector('.wide'); return [w.scrollWidth, w.clientWidth]"
    needed, there = window.driver.execute_script(widths)
    window.driver.set_window_size(before["width"], before["height"])
    assert needed <= there


def test_an_audit_offers_what_is_no_class(window: Browser, tmp_path: Path) -> None:
    open_audit(window, tmp_path, "Audit of m@1")
    window.shows("0 of 3 answered")
    window.driver.find_element(By.TAG_NAME, "body").send_keys("3")
    window.driver.switch_to.active_element.send_keys(Keys.END)
    window.shows("2 of 3 answered")
    assert [row["label"] for row in answers(window)] == ["other", "?", ""]


def test_a_browser_that_keeps_nothing_is_told(window: Browser, tmp_path: Path) -> None:
    refusing = "Object.defineProperty(window, 'localStorage', { get() { throw new Error('denied'); } });"
    added = window.driver.execute_cdp_cmd("Page.addScriptToEvaluateOnNewDocument", {"source": refusing})
    try:
        open_audit(window, tmp_path, "Audit of nobody")
        window.shows("0 of 3 answered")
        window.driver.find_element(By.TAG_NAME, "body").send_keys("1")
        window.shows(
            "1 of 3 answered; this browser does not keep them: download them before you leave the page"
        )
        assert [row["label"] for row in answers(window)] == ["early", "", ""]
    finally:
        window.driver.execute_cdp_cmd("Page.removeScriptToEvaluateOnNewDocument", added)


def test_loading_a_page_erases_no_answers(window: Browser, tmp_path: Path) -> None:
    """What a page could not read for the moment is still there when it is loaded again."""
    open_audit(window, tmp_path, "Audit read twice")
    answer_until_kept(window, "1", "1 of 3 answered")
    unread = "Storage.prototype.getItem = () => null;"
    added = window.driver.execute_cdp_cmd("Page.addScriptToEvaluateOnNewDocument", {"source": unread})
    window.driver.refresh()
    window.shows("0 of 3 answered")
    window.driver.execute_cdp_cmd("Page.removeScriptToEvaluateOnNewDocument", added)
    reload_until(window, "1 of 3 answered")
