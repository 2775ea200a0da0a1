# SPDX-License-Identifier: MIT OR Apache-2.0
"""The words that all texts are made of, and sentences of them."""

import random
from pathlib import Path

LICENSES = Path("/usr/share/common-licenses")


def read_words() -> list[str]:
    text = "".join(
        (LICENSES / name).read_text("utf-8") for name in ("GPL-2", "GPL-3", "Apache-2.0")
    )
    return sorted({word for word in text.split() if word.isascii() and word.isalpha()})


def sentence(rand: random.Random, words: list[str], least: int, most: int) -> str:
    return " ".join(rand.choice(words) for _ in range(rand.randint(least, most)))
