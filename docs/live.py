"""Draws docs/pictures/live.png: the page that `axiograd export --page` writes, with a drawing dropped on it.

`python docs/live.py FOLDER`, the folder being the page of a network that knows traffic lights.
"""

import shutil
import sys
import tempfile
from pathlib import Path

import numpy as np
from PIL import Image, ImageDraw, ImageFilter
from playwright.sync_api import sync_playwright

DOCS = Path(__file__).parent
sys.path.insert(0, str(DOCS.parent / "tests" / "helpers"))
from support.served import served  # noqa: E402  # the tests' helper

SIDE = 768
LAMPS = ((255, 60, 40), (90, 70, 20), (20, 70, 40))


def traffic_light() -> Image.Image:
    """Sky, a tree, and a light that is red."""
    high, low = np.array([86, 140, 205]), np.array([205, 222, 238])
    sky = high + (low - high) * np.linspace(0, 1, SIDE)[:, None, None]
    picture = Image.fromarray(np.broadcast_to(sky, (SIDE, SIDE, 3)).astype(np.uint8).copy())
    draw, generator = ImageDraw.Draw(picture), np.random.default_rng(4)
    for _ in range(900):
        x = generator.uniform(-0.05, 0.35)
        y = 1 - generator.uniform(0, 0.55) * (1 - 1.6 * x)
        radius, green = generator.uniform(6, 26), int(generator.uniform(70, 140))
        draw.circle((x * SIDE, y * SIDE), radius, fill=(green // 2, green, green // 3))
    picture = picture.filter(ImageFilter.GaussianBlur(5))
    draw = ImageDraw.Draw(picture)
    draw.rectangle((0.56 * SIDE, 0.7 * SIDE, 0.62 * SIDE, SIDE), fill=(70, 72, 74))
    box = (0.44 * SIDE, 0.12 * SIDE, 0.74 * SIDE, 0.8 * SIDE)
    draw.rounded_rectangle(box, 30, fill=(34, 36, 36), outline=(14, 14, 14), width=6)
    for number, colour in enumerate(LAMPS):
        x, y, r = 0.59 * SIDE, (0.23 + 0.225 * number) * SIDE, 0.088 * SIDE
        draw.pieslice((x - 1.25 * r, y - 1.3 * r, x + 1.25 * r, y + 1.2 * r), 180, 360, fill=(18, 18, 18))
        draw.circle((x, y), r, fill=colour)
        shine = tuple(min(255, int(1.25 * c + 25)) for c in colour)
        draw.ellipse((x - 0.55 * r, y - 0.6 * r, x + 0.2 * r, y + 0.05 * r), fill=shine)
    return picture.filter(ImageFilter.GaussianBlur(1.2))


def main() -> None:
    """Open the page, give it the drawing, keep what is seen."""
    target = DOCS / "pictures" / "live.png"
    with tempfile.TemporaryDirectory() as folder, served(Path(sys.argv[1])) as address, sync_playwright() as driver:
        photo = Path(folder) / "light.png"
        traffic_light().save(photo)
        browser = driver.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
        page = browser.new_page(viewport={"width": 1180, "height": 860})
        page.goto(address)
        page.wait_for_selector("html[data-state=ready]", timeout=120_000)
        page.set_input_files("#file", photo)
        page.wait_for_selector("html[data-state=done]", timeout=120_000)
        page.screenshot(path=target)
        browser.close()
    Image.open(target).convert("RGB").save(target, optimize=True)


if __name__ == "__main__":
    main()
