# SPDX-License-Identifier: MIT OR Apache-2.0
"""Each C++ header compiles by itself, by C++17 and without exceptions; what it refuses to compile is refused in its words."""
import pathlib
import shutil
import subprocess
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
HEADERS = sorted(path for path in (ROOT / "include").rglob("*.hpp") if path.parent.name != "detail")
COMPILERS = [name for name in ("g++", "clang++") if shutil.which(name)]
STRICT = ["-std=c++17", "-pedantic-errors", "-Wall", "-Wextra", "-Wshadow", "-Wconversion", "-Werror", "-fsyntax-only"]

RCU = "#include <ebbtide/rcu.hpp>\n"
HAZARD = "#include <ebbtide/hazard_pointer.hpp>\n"
LIST = "#include <ebbtide.hpp>\n"
ONLY = "a base of T: public, and the only one of its kind"
# Right, wrong, and what the compiler says of the wrong one.
PAIRS = {
    "a base of another type": (
        RCU + "struct A : ebb::rcu_obj_base<A> {}; void f(A *a) { a->retire(); }",
        RCU + "struct A; struct B : ebb::rcu_obj_base<A> {}; struct A { int x; }; void f(B *b) { b->retire(); }", ""),
    "two bases": (
        RCU + "struct A : ebb::rcu_obj_base<A> {}; void f(A *a) { a->retire(); }",
        RCU + "struct X : ebb::rcu_obj_base<X> {}; struct A : X, ebb::rcu_obj_base<A> {};"
        " void f(A *a) { static_cast<ebb::rcu_obj_base<A> *>(a)->retire(); }", ONLY),
    "a virtual base": (
        RCU + "struct A : ebb::rcu_obj_base<A> {}; void f(A *a) { a->retire(); }",
        RCU + "struct A : virtual ebb::rcu_obj_base<A> {}; void f(A *a) { a->retire(); }", "virtual"),
    "a private base": (
        HAZARD + "struct A : ebb::hazard_pointer_obj_base<A> {}; void f(A *a) { a->retire(); }",
        HAZARD + "struct A : private ebb::hazard_pointer_obj_base<A> { void g() { retire(); } }; void f(A *a) { a->g(); }", ""),
    "what is not callable": (
        RCU + "struct D { void operator()(int *) {} }; void f(int *p) { ebb::rcu_retire(p, D()); }",
        RCU + "struct D { void operator()(char *) {} }; void f(int *p) { ebb::rcu_retire(p, D()); }",
        "a deleter is moved, and called with a T *"),
    "the pointer to a derived class": (
        HAZARD + "struct A : ebb::hazard_pointer_obj_base<A> {};"
        " A *f(ebb::hazard_pointer &h, std::atomic<A *> &s) { return h.protect(s); }",
        HAZARD + "struct A : ebb::hazard_pointer_obj_base<A> {}; struct B : A {};"
        " B *f(ebb::hazard_pointer &h, std::atomic<B *> &s) { return h.protect(s); }",
        "what is protected is the T of its hazard_pointer_obj_base<T, D>"),
    "protection of what has a virtual base": (
        HAZARD + "struct A : ebb::hazard_pointer_obj_base<A> {}; void f(ebb::hazard_pointer &h, A *a) { h.reset_protection(a); }",
        HAZARD + "struct A : virtual ebb::hazard_pointer_obj_base<A> {};"
        " void f(ebb::hazard_pointer &h, A *a) { h.reset_protection(a); }",
        "what is protected is the T of its hazard_pointer_obj_base<T, D>"),
    "protection of what has two bases": (
        HAZARD + "struct X {}; struct A : ebb::hazard_pointer_obj_base<A>, X {};"
        " A *f(ebb::hazard_pointer &h, std::atomic<A *> &s) { return h.protect(s); }",
        HAZARD + "struct X : ebb::hazard_pointer_obj_base<X> {}; struct A : ebb::hazard_pointer_obj_base<A>, X {};"
        " A *f(ebb::hazard_pointer &h, std::atomic<A *> &s) { return h.protect(s); }",
        "what is protected is the T of its hazard_pointer_obj_base<T, D>"),
    "protection of an incomplete type": (
        HAZARD + "struct A {}; A *f(ebb::hazard_pointer &h, std::atomic<A *> &s) { return h.protect(s); }",
        HAZARD + "struct A; A *f(ebb::hazard_pointer &h, std::atomic<A *> &s) { return h.protect(s); }", "incomplete"),
    "a copied hazard pointer": (
        HAZARD + "ebb::hazard_pointer f(ebb::hazard_pointer &h) { return std::move(h); }",
        HAZARD + "ebb::hazard_pointer f(ebb::hazard_pointer &h) { return h; }", ""),
    "more bits than the alignment leaves": (
        LIST + "struct A { int x; }; void f(A *a, ebb::atomic_ptr<A, 2> &p) { p.store({a, 1}); }",
        LIST + "struct A { int x; }; void f(A *a, ebb::atomic_ptr<A, 3> &p) { p.store({a, 1}); }",
        "T's alignment leaves no room for so many bits"),
    "more bits than the alignment leaves, and no pointer yet": (
        LIST + "ebb::tagged_ptr<short, 1> f() { return {}; }",
        LIST + "ebb::tagged_ptr<char, 1> f() { return {}; }", "T's alignment leaves no room for so many bits"),
    "a load without a guard": (
        LIST + "int *f(ebb::guard &g, ebb::atomic_ptr<int> &p) { return p.load(g); }",
        LIST + "int *f(ebb::atomic_ptr<int> &p) { return p.load(); }", ""),
    "a tag that gets lost": (
        LIST + "int *f(ebb::guard &g, ebb::atomic_ptr<int, 1> &p) { return p.load(g).get(); }",
        LIST + "int *f(ebb::guard &g, ebb::atomic_ptr<int, 1> &p) { return p.load(g); }", ""),
}


def compile_text(compiler, text, *options):
    done = subprocess.run([compiler, *STRICT, *options, f"-I{ROOT}/include", "-x", "c++", "-"], input=text,
                          capture_output=True, text=True, check=False)
    return done.returncode, done.stderr


class CxxHeaders(unittest.TestCase):
    def test_each_by_itself(self):
        self.assertIn("rcu.hpp", [path.name for path in HEADERS])
        for compiler in COMPILERS:
            for path in HEADERS:
                for options in ([], ["-std=c++20"], ["-fno-exceptions", "-fno-rtti"]):
                    with self.subTest(compiler=compiler, header=path.name, options=options):
                        code, said = compile_text(compiler, f"#include <{path.relative_to(ROOT / 'include')}>\n", *options)
                        self.assertEqual(code, 0, said)

    def test_misuse_is_refused(self):
        for compiler in COMPILERS:
            for name, (right, wrong, words) in PAIRS.items():
                with self.subTest(compiler=compiler, case=name):
                    code, said = compile_text(compiler, right + "\n")
                    self.assertEqual(code, 0, said)
                    code, said = compile_text(compiler, wrong + "\n")
                    self.assertNotEqual(code, 0, "it compiles")
                    self.assertIn(words, said)


if __name__ == "__main__":
    unittest.main()
