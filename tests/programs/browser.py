"""A page of the console in Debian's chromium, as a person sees it.

screen = Screen(driver, "http://127.0.0.1:8085")
screen.open("/topics")
screen.heading, screen.verdict, screen.unknown, screen.violations()
"""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from selenium.webdriver import Chrome, ChromeOptions
from selenium.webdriver.chrome.service import Service
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys
from selenium.webdriver.remote.webelement import WebElement

from local.scripts import path_of

LOAD_S = 120.0
"""Far above what a quiet machine takes; only a fault meets it."""


@contextmanager
def browser(profile: Path) -> Iterator[Chrome]:
    """Start a browser with a profile of its own and close it with the context."""
    options = ChromeOptions()
    options.binary_location = "/usr/bin/chromium"
    # As root it runs without its sandbox only; it reads nothing but pages of the test.
    for argument in (
        "--headless=new",
        "--no-sandbox",
        "--disable-gpu",
        "--disable-dev-shm-usage",
        "--disable-background-networking",
        "--no-first-run",
        "--window-size=1200,1000",
        f"--user-data-dir={profile}",
    ):
        options.add_argument(argument)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    options.set_capability("acceptInsecureCerts", True)  # their authority is one of the test's
    driver = Chrome(options=options, service=Service("/usr/bin/chromedriver"))
    driver.set_page_load_timeout(LOAD_S)
    driver.set_script_timeout(LOAD_S)
    try:
        yield driver
    finally:
        driver.quit()


class Screen:
    """What is on the screen.

    Args:
        driver: the browser.
        url: of the console, without a path.
    """

    def __init__(self, driver: Chrome, url: str) -> None:
        self.driver = driver
        self.url = url

    def open(self, path: str) -> "Screen":
        """Open a page."""
        self.driver.get(self.url + path)
        return self

    def reload(self) -> "Screen":
        """Load the page again, as its foot advises."""
        self.driver.refresh()
        return self

    @property
    def path(self) -> str:
        """Where the browser is."""
        return self.driver.current_url.removeprefix(self.url)

    @property
    def heading(self) -> str:
        """The page's one heading of the first level."""
        [heading] = self.driver.find_elements(By.TAG_NAME, "h1")
        return heading.text

    @property
    def verdict(self) -> str:
        """The first verdict, in words."""
        return self.driver.find_element(By.CSS_SELECTOR, ".verdict").text

    @property
    def unknown(self) -> list[str]:
        """What the page says that it does not know."""
        return [one.text for one in self.driver.find_elements(By.CSS_SELECTOR, "section.unknown li")]

    @property
    def text(self) -> str:
        """All that is written on the page; by one command, since a page that looks again may change between two."""
        return str(self.driver.execute_script("return document.body ? document.body.innerText : ''"))

    def rows(self, caption: str) -> list[list[str]]:
        """Return the cells of the table whose caption begins with *caption*."""
        for table in self.driver.find_elements(By.TAG_NAME, "table"):
            if table.find_element(By.TAG_NAME, "caption").text.startswith(caption):
                return [
                    [cell.text for cell in row.find_elements(By.CSS_SELECTOR, "th, td")]
                    for row in table.find_elements(By.CSS_SELECTOR, "tbody tr")
                ]
        raise AssertionError(f"no table {caption!r} in: {self.text}")

    def follow(self, words: str) -> "Screen":
        """Follow the first link that has *words*."""
        self.driver.find_element(By.PARTIAL_LINK_TEXT, words).click()
        return self

    def fill(self, label: str, value: str) -> "Screen":
        """Type *value* into the field with that label."""
        field = self._field(label)
        field.clear()
        field.send_keys(value)
        return self

    def send(self, label: str) -> "Screen":
        """Send the form of the field with that label."""
        self._field(label).send_keys(Keys.ENTER)
        return self

    def _field(self, label: str) -> WebElement:
        [found] = [one for one in self.driver.find_elements(By.TAG_NAME, "label") if one.text == label]
        return self.driver.find_element(By.ID, str(found.get_attribute("for")))

    @property
    def focused(self) -> WebElement:
        """What the keyboard would act on."""
        return self.driver.switch_to.active_element

    def press(self, *keys: str) -> None:
        """Press keys one after the other."""
        for key in keys:
            self.focused.send_keys(key)

    def emulate(self, media: str = "", **features: str) -> None:
        """Let the browser show *media*, such as ``print``, and prefer, for example, ``prefers_color_scheme="dark"``."""
        named = [{"name": name.replace("_", "-"), "value": value} for name, value in features.items()]
        self.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": media, "features": named})

    def violations(self, *rules: str) -> list[str]:
        """Return what axe finds wrong with the page: the rule and the first place of each.

        Args:
            rules: the only ones to judge by; none for all.
        """
        if not self.driver.execute_script("return 'axe' in window"):
            self.driver.execute_script(path_of("axe-core").read_text())
        found: dict[str, Any] = self.driver.execute_async_script(
            "const done = arguments[1];"
            "axe.run(document, arguments[0]).then(done, error => done({failed: String(error)}));",
            {"runOnly": list(rules)} if rules else {},
        )
        assert "failed" not in found, found
        return [f"{one['id']}: {one['nodes'][0]['html']}" for one in found["violations"]]

    def complaints(self) -> list[str]:
        """Return what the browser wrote to its log since the last call, such as what the content policy refused."""
        return [json.dumps(entry["message"]) for entry in self.driver.get_log("browser")]  # type: ignore[no-untyped-call]

    def photograph(self, path: Path) -> None:
        """Write the window as a PNG."""
        path.write_bytes(self.driver.get_screenshot_as_png())
