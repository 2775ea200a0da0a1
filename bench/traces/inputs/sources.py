# SPDX-License-Identifier: MIT OR Apache-2.0
"""Sources for the compilers."""

import random


def containers_cc(rand: random.Random, _words: list[str]) -> str:
    names = ("algorithm", "map", "memory", "string", "vector")
    parts = [f"#include <{name}>" for name in names]
    parts += [sorting(i, rand) if i % 12 == 0 else counting(i, rand) for i in range(72)]
    return "\n".join(parts) + "\n"


def sorting(i: int, rand: random.Random) -> str:
    """A class and what it makes of the library's templates: nearly all of a compiler's time."""
    return f"""
struct item{i} {{
    std::vector<int> value;
    std::string name;
    bool operator<(const item{i} &other) const {{ return name < other.name; }}
}};

std::size_t use{i}(const std::vector<std::string> &names)
{{
    std::map<std::string, std::shared_ptr<item{i}>> by_name;
    std::vector<item{i}> all;
    for (const auto &name : names) {{
        auto made = std::make_shared<item{i}>();
        made->name = name + "{rand.randrange(1000)}";
        by_name.emplace(made->name, made);
        all.push_back(*made);
    }}
    std::sort(all.begin(), all.end());
    return all.size() + by_name.size();
}}"""


def counting(i: int, rand: random.Random) -> str:
    return f"""
class counter{i} {{
public:
    explicit counter{i}(const std::vector<std::string> &names) : names_(names) {{}}
    std::size_t count(char first) const
    {{
        std::size_t found = {rand.randrange(9)};
        for (const auto &name : names_)
            found += !name.empty() && name.front() == first;
        return found * {rand.randrange(2, 9)};
    }}

private:
    std::vector<std::string> names_;
}};

std::size_t count{i}(const std::vector<std::string> &names)
{{
    return counter{i}(names).count('a');
}}"""


def calls_c(rand: random.Random, _words: list[str]) -> str:
    parts = ["#include <stdio.h>", "#include <stdlib.h>", "#include <string.h>"]
    for i in range(260):
        before = rand.randrange(i) if i else 0
        call = f"f{before}(text, n - 1)" if i else "(int)strlen(text)"
        parts.append(f"""
struct s{i} {{ int a[{rand.randint(2, 40)}]; const char *text; double d; }};
int f{i}(const char *text, int n)
{{
    struct s{i} s = {{.text = text, .d = {rand.random():.3f}}};
    for (int i = 0; i < n; i++)
        s.a[i % (int)(sizeof s.a / sizeof s.a[0])] += text[i] * {rand.randint(2, 99)};
    switch (n % 4) {{
    case 0: return s.a[1] + {call};
    case 1: printf("%s %f\\n", s.text, s.d * n); return n;
    case 2: return (int)(s.d * s.a[0]) ^ {rand.randrange(1 << 16)};
    default: return n > 0 ? {call} : s.a[0];
    }}
}}""")
    return "\n".join(parts) + "\n"


def shapes_rs(rand: random.Random, _words: list[str]) -> str:
    parts = ["use std::collections::BTreeMap;\npub trait Shape { fn area(&self) -> f64; }"]
    for i in range(90):
        parts.append(f"""
#[derive(Clone, Debug, PartialEq, PartialOrd)]
pub struct Shape{i} {{
    pub side: f64,
    pub name: String,
    pub parts: Vec<u{rand.choice((8, 16, 32))}>,
}}
impl Shape for Shape{i} {{ fn area(&self) -> f64 {{ self.side * {rand.random():.3f} }} }}
pub fn sum{i}(shapes: &[Shape{i}]) -> BTreeMap<String, f64> {{
    let mut sums = BTreeMap::new();
    for shape in shapes.iter().filter(|s| s.parts.len() > {rand.randrange(9)}) {{
        *sums.entry(shape.name.clone()).or_insert(0.0) += shape.area();
    }}
    sums
}}""")
    return "\n".join(parts) + "\n"


def orders_java(rand: random.Random, _words: list[str]) -> str:
    parts = ["import java.util.*;", "public class Orders {"]
    for i in range(200):
        parts.append(f"""
    static class Order{i} implements Comparable<Order{i}> {{
        final Map<String, List<Integer>> lines = new TreeMap<>();
        int number = {rand.randrange(1000)};
        public int compareTo(Order{i} other) {{ return Integer.compare(number, other.number); }}
        int total() {{ return lines.values().stream().mapToInt(l -> l.size() * {i}).sum(); }}
    }}""")
    return "\n".join(parts) + "\n}\n"
