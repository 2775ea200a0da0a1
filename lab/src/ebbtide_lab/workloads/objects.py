# SPDX-License-Identifier: MIT OR Apache-2.0
"""What a Python service does all day: parse, group, sort and build text.

Runs under the distribution's interpreter, so it uses the standard library alone.
"""

import json
import random
import re
from collections import defaultdict

ORDERS = 30_000
ROUNDS = 2


class Order:
    def __init__(self, number: int, customer: str, lines: list[tuple[str, int, float]]) -> None:
        self.number = number
        self.customer = customer
        self.lines = lines

    def total(self) -> float:
        return sum(count * price for _, count, price in self.lines)


def make_orders(rng: random.Random) -> list[Order]:
    words = [f"part-{n:05d}-{'x' * (n % 37)}" for n in range(2000)]
    orders = []
    for number in range(ORDERS):
        lines = [
            (rng.choice(words), rng.randrange(1, 9), rng.random() * 100)
            for _ in range(rng.randrange(1, 9))
        ]
        orders.append(Order(number, f"customer {rng.randrange(3000)}", lines))
    return orders


def to_json(orders: list[Order]) -> str:
    return json.dumps([{"n": o.number, "c": o.customer, "lines": o.lines} for o in orders])


def from_json(text: str) -> list[Order]:
    rows = json.loads(text)
    return [Order(row["n"], row["c"], [tuple(line) for line in row["lines"]]) for row in rows]


def summarise(orders: list[Order]) -> dict[str, float]:
    totals: dict[str, float] = defaultdict(float)
    for order in orders:
        totals[order.customer] += order.total()
    return dict(sorted(totals.items(), key=lambda item: -item[1]))


def count_words(text: str) -> int:
    seen: dict[str, int] = {}
    for word in re.findall(r"part-\d+", text):
        seen[word] = seen.get(word, 0) + 1
    return len(seen)


def main() -> None:
    rng = random.Random(7)
    for _ in range(ROUNDS):
        orders = make_orders(rng)
        text = to_json(orders)
        again = from_json(text)
        if summarise(again) != summarise(orders):
            raise SystemExit("the totals differ")
        count_words(text)
    print("done")


if __name__ == "__main__":
    main()
