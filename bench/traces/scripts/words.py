# SPDX-License-Identifier: MIT OR Apache-2.0
"""Counts the words of a text by line and length, and sends the counts through JSON."""

import json
import sys
from collections import defaultdict

places: dict[str, list[int]] = defaultdict(list)
for _ in range(2):
    with open(sys.argv[1], encoding="ascii") as text:
        for number, line in enumerate(text):
            for word in line.split():
                places[word.lower()].append(number)
copy = json.loads(json.dumps(places))
longest = sorted(copy, key=lambda word: (-len(copy[word]), word))[:100]
joined = {word: ",".join(map(str, copy[word])) for word in longest}
print(len(copy), sum(map(len, joined.values())))
