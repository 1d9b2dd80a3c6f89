"""The README's picture, as a browser shows it: every label inside the frame, none over another."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from itertools import combinations
from pathlib import Path

import pytest

pytestmark = pytest.mark.system

ROOT = Path(__file__).resolve().parents[2]
PAGE = """<!doctype html><meta charset="utf-8"><body style="margin:0">{svg}<pre id="found"></pre>
<script>
const frame = document.querySelector("svg").getBoundingClientRect();
const boxes = [...document.querySelectorAll("svg text")].map(text => {{
  const box = text.getBoundingClientRect();
  return {{label: text.textContent.trim(), left: box.left, right: box.right, top: box.top,
          bottom: box.bottom, fill: getComputedStyle(text).fill}};
}});
const card = getComputedStyle(document.querySelector("svg .card")).fill;
const size = {{width: frame.width, height: frame.height}};
const found = JSON.stringify({{size, card, boxes}});
document.getElementById("found").textContent = "FOUND" + found + "END";
</script>"""


def rendered(tmp_path: Path, *flags: str) -> dict:
    chromium = shutil.which("chromium")
    assert chromium, "install Debian's package chromium"
    page = tmp_path / "page.html"
    page.write_text(PAGE.format(svg=(ROOT / "docs" / "ttft.svg").read_text()))
    result = subprocess.run(
        [
            chromium,
            "--headless",
            "--no-sandbox",
            "--disable-gpu",
            "--disable-background-networking",
            "--disable-component-update",
            "--disable-sync",
            "--no-first-run",
            f"--user-data-dir={tmp_path / 'profile'}",
            "--window-size=900,600",
            *flags,
            "--dump-dom",
            page.as_uri(),
        ],
        capture_output=True,
        text=True,
        check=True,
        timeout=120,
    )
    found = re.search(r"FOUND(\{.*?\})END</pre>", result.stdout, re.DOTALL)
    assert found, result.stdout[-500:]
    return json.loads(found[1].replace("&amp;", "&").replace("&lt;", "<").replace("&gt;", ">"))


def overlap(left: dict, right: dict) -> bool:
    slack = 1
    return (
        left["left"] + slack < right["right"]
        and right["left"] + slack < left["right"]
        and left["top"] + slack < right["bottom"]
        and right["top"] + slack < left["bottom"]
    )


def test_every_label_is_inside_the_frame_and_over_no_other(tmp_path: Path) -> None:
    seen = rendered(tmp_path)
    boxes = [box for box in seen["boxes"] if box["label"]]
    labels = [box["label"] for box in boxes]
    assert {"injected", "as text"} <= set(labels), labels
    for box in boxes:
        assert box["left"] >= 0, box
        assert box["top"] >= 0, box
        assert box["right"] <= seen["size"]["width"], box
        assert box["bottom"] <= seen["size"]["height"], box
    assert [(a["label"], b["label"]) for a, b in combinations(boxes, 2) if overlap(a, b)] == []


def test_the_picture_follows_a_dark_page(tmp_path: Path) -> None:
    light = rendered(tmp_path)
    dark = rendered(tmp_path, "--blink-settings=preferredColorScheme=0")
    assert light["card"] != dark["card"]
    assert light["boxes"][0]["fill"] != dark["boxes"][0]["fill"]
