# SPDX-License-Identifier: MIT OR Apache-2.0
"""Problems for the solvers."""

import random


def colours_lp(rand: random.Random, _words: list[str]) -> str:
    """A graph to colour, with the paths that lead from node to node."""
    edges = [f"edge({rand.randrange(i)},{i})." for i in range(1, 1500)]
    edges += [f"edge({rand.randrange(750)},{rand.randrange(750, 1500)})." for _ in range(2000)]
    rules = """
node(X) :- edge(X,_).
node(Y) :- edge(_,Y).
path(X,Y) :- edge(X,Y).
path(X,Z) :- path(X,Y), edge(Y,Z).
colour(1..6).
{ has(X,C) : colour(C) } = 1 :- node(X).
:- edge(X,Y), has(X,C), has(Y,C).
near(X,Y,Z) :- path(X,Y), path(Y,Z), has(X,1), has(Z,2).
#show has/2.
"""
    return "\n".join(edges) + rules


def knapsack_lp(rand: random.Random, _words: list[str]) -> str:
    """Items into sacks: each item at most once, each sack up to its weight, by two measures."""
    items, sacks = range(36), range(6)
    worth = " + ".join(f"{rand.randint(10, 99)} x{i}_{j}" for i in items for j in sacks)
    lines = ["Maximize", f" obj: {worth}", "Subject To"]
    for i in items:
        lines.append(f" once{i}: " + " + ".join(f"x{i}_{j}" for j in sacks) + " <= 1")
    for j in sacks:
        for measure in range(2):
            load = " + ".join(f"{rand.randint(5, 60)} x{i}_{j}" for i in items)
            lines.append(f" load{j}_{measure}: {load} <= {rand.randint(90, 130)}")
    names = [f"x{i}_{j}" for i in items for j in sacks]
    return "\n".join((*lines, "Binaries", *(f" {name}" for name in names), "End")) + "\n"


def bounds_smt2(rand: random.Random, _words: list[str]) -> str:
    names = [f"x{i}" for i in range(90)]
    lines = [f"(declare-const {name} Int)\n(assert (<= 0 {name} 50))" for name in names]
    for _ in range(220):
        a, b, c = rand.sample(names, 3)
        first = f"(<= (+ {a} {rand.randint(1, 9)}) {b})"
        lines.append(f"(assert (or {first} (> (- {c} {a}) {rand.randint(1, 20)}) (= {b} {c})))")
    return "\n".join((*lines, "(check-sat)", "(get-model)")) + "\n"
