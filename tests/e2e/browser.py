"""Headless Chromium, the system's, and what to wait for on Prefect's pages."""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TypeVar

import pytest
from selenium import webdriver
from selenium.common.exceptions import WebDriverException
from selenium.webdriver.chrome.service import Service
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys
from selenium.webdriver.remote.webelement import WebElement

from tests.e2e.running import wait_for

SHOTS = "BLR_SCREENSHOTS"
"""Environment variable: a folder to keep screenshots in."""
BETWEEN_CLICKS = 20.0
"""Seconds in which a click has its effect."""
Seen = TypeVar("Seen")


def missing() -> str | None:
    for program in ("chromium", "chromedriver"):
        if shutil.which(program) is None:
            return f"{program} is not installed (Debian: chromium and chromium-driver)"
    return None


class Browser:
    """A window on Prefect's pages."""

    def __init__(self, driver: webdriver.Chrome, shots: Path) -> None:
        self.driver = driver
        self.shots = shots

    def open(self, url: str) -> None:
        self.driver.get(url)

    @property
    def text(self) -> str:
        return self.driver.find_element(By.TAG_NAME, "body").text

    def shows(self, *texts: str) -> None:
        try:
            self.wait_for(lambda: all(text in self.text for text in texts), f"{texts} on the page")
        except AssertionError:
            self.picture("missing")
            pytest.fail(f"the page at {self.driver.current_url} does not show {texts}:\n{self.text[:3000]}")

    def wait_for(self, condition: Callable[[], Seen], what: str) -> Seen | None:
        """Return what the condition gives as soon as that is something, on a page that is still being drawn."""

        def drawn() -> Seen | None:
            try:
                return condition()
            except WebDriverException:  # replaced between two looks, or covered by another
                return None

        return wait_for(drawn, what)

    def all(self, selector: str) -> list[WebElement]:
        return self.driver.find_elements(By.CSS_SELECTOR, selector)

    def some(self, selector: str) -> list[WebElement]:
        return self.wait_for(lambda: self.all(selector), f"'{selector}'") or []

    def click(self, text: str, tag: str = "button") -> None:
        path = f"//{tag}[normalize-space()='{text}']"

        def clicked() -> bool:
            element = self.driver.find_element(By.XPATH, path)
            self.driver.execute_script("arguments[0].scrollIntoView({block: 'center'})", element)
            element.click()
            return True

        self.wait_for(clicked, f"'{text}' to click")

    def click_until(self, text: str, done: Callable[[], object], what: str) -> None:
        """Click the button as often as it takes: a page that scrolls or is drawn again just then swallows a click."""
        button = f"//button[normalize-space()='{text}']"

        def clicked() -> bool:
            with suppress(WebDriverException):
                self.driver.execute_script("arguments[0].click()", self.driver.find_element(By.XPATH, button))
            end = time.monotonic() + BETWEEN_CLICKS
            while not (seen := bool(done())) and time.monotonic() < end:
                time.sleep(0.3)
            return seen

        wait_for(clicked, what)

    def holding(self, value: str) -> list[WebElement]:
        return [e for e in self.all("textarea, input") if e.get_attribute("value") == value]

    def change(self, old: str, new: str) -> None:
        """Replace a field's text as a person does, until it is."""

        def changed() -> bool:
            for field in self.holding(old):
                field.send_keys(Keys.CONTROL, "a")
                field.send_keys(new)
            return bool(self.holding(new))

        self.wait_for(changed, f"a field that holds '{new}' instead of '{old}'")

    def fill_approval(
        self, decision: str, who: str, why: str, *, shows: tuple[str, ...], picture: str
    ) -> None:
        """Answer a paused run of `promote` on its page, as a person does; the form `shows` texts."""
        self.click("Open menu")
        self.click("Resume", "*[@role='menuitem']")
        self.shows("Your name, for the champion's log", *shows)
        self.picture(picture)
        self.wait_for(lambda: len(self.all("[role=dialog] textarea")) == 2, "two fields")
        name, reason = self.all("[role=dialog] textarea")
        name.send_keys(who)
        reason.send_keys(why)
        if decision != "reject":  # what is chosen already
            self.click("reject")
            self.click(decision, "*[@role='option']")
        self.picture(f"{picture}-filled")
        self.click_until("Resume", lambda: not self.all("[role=dialog]"), "the end of the form")

    def picture(self, name: str) -> Path:
        path = self.shots / f"{name}.png"
        self.driver.save_screenshot(str(path))
        return path


@contextmanager
def browser(folder: Path) -> Iterator[Browser]:
    """Open a window; its profile and its pictures lie in the folder."""
    shots = Path(os.environ.get(SHOTS, folder))
    options = webdriver.ChromeOptions()
    options.binary_location = str(shutil.which("chromium"))
    for argument in (
        "--headless=new",
        "--no-sandbox",  # refuses to start as root otherwise
        "--disable-dev-shm-usage",  # containers have little of it
        "--disable-gpu",
        "--disable-background-networking",
        "--force-prefers-reduced-motion",  # pages that move take half a processor
        "--window-size=1300,1700",
        f"--user-data-dir={folder / 'profile'}",
    ):
        options.add_argument(argument)
    driver = webdriver.Chrome(options=options, service=Service(str(shutil.which("chromedriver"))))
    try:
        yield Browser(driver, shots)
    finally:
        driver.quit()
