"""The picture of a report in docs/images, taken of its page in headless Chromium.

safecritic report results/quick.parquet --page quick.html
python docs/report_picture.py quick.html
"""

import subprocess
import sys
import tempfile
from pathlib import Path

from PIL import Image, ImageChops

WIDTH, TALLEST, SHOWN = 1360, 12_000, 0.6
IMAGES = Path(__file__).parent / "images"


def screenshot(page: Path, path: Path) -> None:
    with tempfile.TemporaryDirectory() as profile:
        command = ["chromium", "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic"]
        command += ["--disable-background-networking", "--disable-component-update"]
        command += ["--no-first-run", f"--user-data-dir={profile}", "--disable-sync"]
        command += [f"--window-size={WIDTH},{TALLEST}", "--virtual-time-budget=30000"]
        command += ["--hide-scrollbars", f"--screenshot={path}", page.resolve().as_uri()]
        subprocess.run(command, check=True, capture_output=True, timeout=300)


def main(page: Path) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "page.png"
        screenshot(page, path)
        image = Image.open(path).convert("RGB")
    box = ImageChops.difference(image, Image.new("RGB", image.size, "white")).getbbox()
    assert box is not None
    image = image.crop((0, 0, WIDTH, min(box[3] + 40, image.height)))
    image = image.resize((round(SHOWN * image.width), round(SHOWN * image.height)))
    # small, and with the rare colours kept: the top of a map is a few cells
    image = image.quantize(256, Image.Quantize.MAXCOVERAGE)
    image.save(IMAGES / "report-quick.png", optimize=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
