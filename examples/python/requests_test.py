# SPDX-License-Identifier: MIT OR Apache-2.0
"""Requests say what urllib says, and what they held is gone with them."""
import gc
import random
import threading
import unittest
from urllib.parse import parse_qsl, quote_plus

from ebbtide_requests import Request, stats


def reference(query):
    pairs = parse_qsl(query, keep_blank_values=True, encoding="latin-1")
    return [(name.encode("latin-1"), value.encode("latin-1")) for name, value in pairs]


class Requests(unittest.TestCase):
    def test_names_and_values(self):
        request = Request(b"name=Ada&tag=a+b&tag=%43&empty=&bare")
        self.assertEqual(5, len(request))
        self.assertEqual([b"Ada", b"a b", b"", b"", None],
                         [request.get(name) for name in (b"name", b"tag", b"empty", b"bare", b"none")])
        self.assertEqual((b"tag", b"C"), request.fields()[2])

    def test_odd_queries(self):
        for query in ("", "&", "&&a&&", "=", "a==b", "%", "a=%4", "a=%41", "a=%zz", "a%3Db=%26", "+", "a=1&a=2&a=3", "x" * 100000):
            with self.subTest(query=query[:20]):
                self.assertEqual(reference(query), Request(query.encode()).fields())

    def test_random_queries(self):
        chance = random.Random(7)
        letters = "abcdef%+= &\u00e4\u00ff1234"
        for _ in range(300):
            parts = ["".join(chance.choices(letters, k=chance.randrange(30))) for _ in range(chance.randrange(40))]
            query = "&".join(quote_plus(part, encoding="latin-1", safe="=" if chance.random() < 0.5 else "") for part in parts)
            request = Request(query.encode())
            self.assertEqual(reference(query), request.fields())
            for name, _ in request.fields():
                self.assertEqual(dict(reversed(request.fields()))[name], request.get(name))

    def test_all_of_it_ends_with_the_request(self):
        query = b"&".join(b"name%d=value" % i for i in range(1000))
        requests = [Request(query) for _ in range(20)]
        held = stats()
        self.assertEqual(20, held["open"])
        self.assertGreaterEqual(held["live_blocks"], 20 * 3000)
        name, value = requests[0].fields()[7]
        requests.clear()
        gc.collect()
        self.assertEqual((0, 0), (stats()["open"], stats()["live_blocks"]))
        self.assertEqual(stats()["opened"], stats()["released"])
        self.assertEqual((b"name7", b"value"), (name, value))

    def test_close(self):
        with Request(b"a=1") as request:
            self.assertEqual(b"1", request.get(b"a"))
        request.close()
        self.assertEqual(0, len(request))
        for use in (lambda: request.get(b"a"), request.fields):
            with self.assertRaisesRegex(ValueError, "closed"):
                use()
        request.__init__(b"b=2")
        request.__init__(b"c=3")
        self.assertEqual([(b"c", b"3")], request.fields())
        self.assertEqual(1, stats()["open"])

    def test_wrong_arguments(self):
        for arguments in ((), ("text",), (None,), (b"a", "b"), (b"a", 1, 2)):
            with self.assertRaises(TypeError):
                Request(*arguments)
        with self.assertRaises(TypeError):
            Request(b"a=1").get("a")
        self.assertEqual(b"1", Request(bytearray(b"a=1")).get(memoryview(b"a")))

    def test_a_limit_ends_the_request_whole(self):
        query = b"&".join(b"name%d=value" % i for i in range(100000))
        with self.assertRaises(MemoryError):
            Request(query, limit=1 << 20)
        self.assertEqual((0, 0), (stats()["open"], stats()["live_blocks"]))
        self.assertEqual(100000, len(Request(query, limit=1 << 26)))

    def test_threads(self):
        failures = []

        def work(number):
            for i in range(300):
                request = Request(b"a=%d&b=%d" % (number, i))
                if request.fields() != [(b"a", b"%d" % number), (b"b", b"%d" % i)]:
                    failures.append(number)
                shared[number] = request  # another thread may end the one before

        shared = {}
        threads = [threading.Thread(target=work, args=(number % 2,)) for number in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        shared.clear()
        self.assertEqual([], failures)
        self.assertEqual(0, stats()["open"])


if __name__ == "__main__":
    unittest.main()
