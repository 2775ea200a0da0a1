# SPDX-License-Identifier: MIT OR Apache-2.0
"""Texts, records and statements."""

import json
import random
from collections.abc import Iterator
from typing import NamedTuple

from inputs.words import sentence


def text_txt(rand: random.Random, words: list[str]) -> str:
    return "".join(sentence(rand, words, 4, 14) + "\n" for _ in range(25000))


class Record(NamedTuple):
    number: int
    name: str
    tags: list[str]
    price: float
    text: str


def make_records(rand: random.Random, words: list[str]) -> list[Record]:
    return [
        Record(
            number,
            sentence(rand, words, 1, 2),
            [rand.choice(words) for _ in range(rand.randrange(6))],
            rand.randrange(10000) / 100,
            sentence(rand, words, 3, 20),
        )
        for number in range(20000)
    ]


def records_json(rand: random.Random, words: list[str]) -> str:
    return json.dumps([record._asdict() for record in make_records(rand, words)], indent=1)


def element(record: Record) -> str:
    tags = "".join(f"<tag>{tag}</tag>" for tag in record.tags)
    start = f'<record number="{record.number}" price="{record.price}">'
    return f"{start}<name>{record.name}</name>{tags}<p>{record.text}</p></record>\n"


def records_xml(rand: random.Random, words: list[str]) -> str:
    return "<records>\n" + "".join(map(element, make_records(rand, words))) + "</records>\n"


def statements(rand: random.Random, words: list[str], count: int) -> Iterator[str]:
    yield "CREATE TABLE item (id INTEGER PRIMARY KEY, name TEXT, amount INTEGER, note TEXT)"
    yield "CREATE INDEX by_name ON item (name)"
    yield "BEGIN"
    for number in range(count):
        note = sentence(rand, words, 2, 12)
        amount = rand.randrange(1000)
        yield f"INSERT INTO item VALUES ({number}, '{rand.choice(words)}', {amount}, '{note}')"
        if number % 20 == 0:
            yield f"UPDATE item SET amount = amount + 1 WHERE name = '{rand.choice(words)}'"
    yield "COMMIT"
    for limit in range(0, 1000, 25):
        group = f"FROM item WHERE amount > {limit} GROUP BY name LIMIT 3"
        yield f"SELECT name, count(*), max(note) {group}"


def sqlite_sql(rand: random.Random, words: list[str]) -> str:
    return "".join(f"{each};\n" for each in statements(rand, words, 40000))


def postgres_sql(rand: random.Random, words: list[str]) -> str:
    return "".join(f"{each};\n" for each in statements(rand, words, 40000))


def messages_txt(rand: random.Random, words: list[str]) -> str:
    return "".join(sentence(rand, words, 2, 60) + "\n" for _ in range(30000))


def hosts(_rand: random.Random, _words: list[str]) -> str:
    return "".join(f"10.{i >> 16}.{i >> 8 & 255}.{i & 255} host{i}.test\n" for i in range(60000))
