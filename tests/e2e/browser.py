"""Headless Chromium, the system's, and what to wait for on Prefect's pages."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from selenium import webdriver
from selenium.webdriver.chrome.service import Service
from selenium.webdriver.common.by import By
from selenium.webdriver.remote.webelement import WebElement

from tests.e2e.running import wait_for

SHOTS = "BLR_SCREENSHOTS"
"""Environment variable: a folder to keep screenshots in."""


def missing() -> str | None:
    """Return the program that is not installed."""
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
        """Wait until all texts stand on the page."""
        try:
            wait_for(lambda: all(text in self.text for text in texts), f"{texts} on the page", 60)
        except AssertionError:
            self.picture("missing")
            pytest.fail(f"the page at {self.driver.current_url} does not show {texts}:\n{self.text[:3000]}")

    def all(self, selector: str) -> list[WebElement]:
        return self.driver.find_elements(By.CSS_SELECTOR, selector)

    def click(self, text: str, tag: str = "button") -> None:
        """Click the element with this text, once it is there."""
        path = f"//{tag}[normalize-space()='{text}']"
        (element, *_) = wait_for(lambda: self.driver.find_elements(By.XPATH, path), f"'{text}' to click")
        self.driver.execute_script("arguments[0].scrollIntoView({block: 'center'})", element)
        element.click()

    def field(self, value: str) -> WebElement:
        """Return the text field that holds a value, once one does."""

        def holding() -> list[WebElement]:
            return [e for e in self.all("textarea, input") if e.get_attribute("value") == value]

        return wait_for(holding, f"a field that holds '{value}'")[0]

    def picture(self, name: str) -> Path:
        """Keep a picture of the page."""
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
        "--window-size=1300,1700",
        f"--user-data-dir={folder / 'profile'}",
    ):
        options.add_argument(argument)
    driver = webdriver.Chrome(options=options, service=Service(str(shutil.which("chromedriver"))))
    try:
        yield Browser(driver, shots)
    finally:
        driver.quit()
