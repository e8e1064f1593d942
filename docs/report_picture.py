"""The pictures of a report in docs/images, taken of its page in headless Chromium.

safecritic study quick.toml && safecritic report studies/quick
python docs/report_picture.py studies/quick
"""

import subprocess
import sys
import tempfile
from pathlib import Path

from PIL import Image, ImageChops

WIDTH, TALLEST = 1360, 12_000
IMAGES = Path(__file__).parent / "images"


def screenshot(page: Path, path: Path) -> None:
    with tempfile.TemporaryDirectory() as profile:
        command = ["chromium", "--headless", "--no-sandbox", "--disable-gpu", "--no-first-run"]
        command += ["--disable-background-networking", "--disable-component-update"]
        command += [f"--user-data-dir={profile}", "--hide-scrollbars", "--disable-sync"]
        command += [f"--window-size={WIDTH},{TALLEST}", "--virtual-time-budget=30000"]
        command += [f"--screenshot={path}", page.resolve().as_uri()]
        subprocess.run(command, check=True, capture_output=True, timeout=300)


def main(study: Path) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "page.png"
        screenshot(study / "report" / "index.html", path)
        image = Image.open(path).convert("RGB")
    empty = Image.new("RGB", image.size, "white")
    box = ImageChops.difference(image, empty).getbbox()
    assert box is not None
    image = image.crop((0, 0, WIDTH, min(box[3] + 40, image.height)))
    save(image, "report-quick.png")
    maps = Image.open(study / "report" / "figures" / "cost-maps-CarGoal1.png").convert("RGB")
    size = (maps.width * 2 // 3, maps.height * 2 // 3)
    save(maps.resize(size, Image.Resampling.LANCZOS), "report-quick-maps.png")


def save(image: Image.Image, name: str) -> None:
    """Small, and with the rare colours kept: the top of a map is a few cells."""
    image.quantize(256, Image.Quantize.MAXCOVERAGE).save(IMAGES / name, optimize=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
