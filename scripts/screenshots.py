"""Make the pictures of the README from the report of a run, in headless Chromium.

python scripts/screenshots.py runs/demo/seed-0            # writes docs/images/*.png
python scripts/screenshots.py runs/resnet56 --to /tmp/images --layer layer3.0.conv1
"""

from __future__ import annotations

import argparse
import io
import os
import shutil
import tempfile
from pathlib import Path

from PIL import Image
from playwright.sync_api import Page, sync_playwright

import snacs

ROOT = Path(__file__).resolve().parent.parent
FLAGS = ["--no-sandbox", "--disable-gpu", "--disable-background-networking"]
# name, width, height, colours, what is at the top of the window
PICTURES = (
    ("report-light", 1400, 1000, "light", "outcome"),
    ("report-dark", 1400, 1000, "dark", "network"),
    ("report-layer-light", 1400, 1180, "light", "chosen-title"),
    ("report-layer-dark", 1400, 1180, "dark", "chosen-title"),
    ("report-phone-light", 390, 844, "light", "outcome"),
    ("report-phone-dark", 390, 844, "dark", "chosen-title"),
)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("run", type=Path, help="run folder")
    parser.add_argument("--to", type=Path, default=ROOT / "docs" / "images")
    parser.add_argument("--layer", help="layer to show (the one that loses most)")
    arguments = parser.parse_args()
    arguments.to.mkdir(parents=True, exist_ok=True)
    chromium = os.environ.get("SNACS_CHROMIUM") or shutil.which("chromium")
    with tempfile.TemporaryDirectory() as folder, sync_playwright() as playwright:
        report = snacs.report(arguments.run, Path(folder) / "report.html")
        browser = playwright.chromium.launch(executable_path=chromium, args=FLAGS)
        for name, width, height, scheme, top in PICTURES:
            page = browser.new_page(
                viewport={"width": width, "height": height}, color_scheme=scheme
            )
            page.goto(report.as_uri())
            if arguments.layer:
                page.locator("#picker").select_option(label=arguments.layer)
            save(shoot(page, top), arguments.to / f"{name}.png")
            page.close()
        browser.close()


def shoot(page: Page, top: str) -> bytes:
    """The window with an element at its top, once all charts in it are drawn."""
    for _ in range(2):  # charts that are drawn on the way change where the element is
        page.evaluate(
            """async (top) => {
                const element = document.getElementById(top);
                const at = element.getBoundingClientRect().top + window.scrollY;
                const place = top === "outcome" ? 0 : at - 70;
                window.scrollTo({ top: place, behavior: "instant" });
                await new Promise((done) => setTimeout(done, 1500));
            }""",
            top,
        )
    return page.screenshot()


def save(picture: bytes, path: Path) -> None:
    Image.open(io.BytesIO(picture)).convert("RGB").save(path, optimize=True)
    print(f"{path} ({path.stat().st_size / 1000:.0f} kB)")


if __name__ == "__main__":
    main()
