"""A real browser for the tests of reports; where there is none they skip and say how to get it."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

HOW = "install it with `make browser`, or name one in SNACS_CHROMIUM"
NAMES = ("chromium", "chromium-browser", "google-chrome")
FLAGS = ["--no-sandbox", "--disable-gpu", "--disable-background-networking"]


@pytest.fixture(scope="session")
def browser():
    """Headless Chromium."""
    api = pytest.importorskip(
        "playwright.sync_api", reason=f"reports are not tested in a browser: no Playwright; {HOW}"
    )
    with api.sync_playwright() as playwright:
        own = playwright.chromium.executable_path
        found = next(
            filter(None, [os.environ.get("SNACS_CHROMIUM"), *map(shutil.which, NAMES)]), own
        )
        if not Path(found).exists():
            pytest.skip(f"reports are not tested in a browser: no Chromium here; {HOW}")
        chromium = playwright.chromium.launch(executable_path=found, args=FLAGS)
        yield chromium
        chromium.close()


@pytest.fixture
def open_page(browser):
    """Opens a report and, at the end, holds it to silence: no errors, no requests."""
    contexts, troubles = [], []

    def opened(path: Path, *, width: int = 1400, height: int = 900, scheme: str = "light"):
        context = browser.new_context(
            viewport={"width": width, "height": height}, color_scheme=scheme, offline=True
        )
        contexts.append(context)
        context.set_default_timeout(10_000)
        page = context.new_page()
        page.on("console", lambda message: troubles.append(f"{message.type}: {message.text}"))
        page.on("pageerror", lambda error: troubles.append(f"error: {error}"))
        page.on(
            "request",
            lambda request: (
                request.url.startswith(("file:", "data:", "blob:"))
                or troubles.append(f"request: {request.url}")
            ),
        )
        page.goto(path.resolve().as_uri())
        return page

    yield opened
    for context in contexts:
        context.close()
    assert troubles == []
