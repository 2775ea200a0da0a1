# SPDX-License-Identifier: MIT OR Apache-2.0
# A thin door to CMake and tools/. `make` alone lists what there is.
PREFIX ?= /usr/local
EBB := build/venv/bin/ebb

.DEFAULT_GOAL := help
.PHONY: help run test test-all lib install bench bench-programs check clean setup-build setup-test setup-run

help:
	@echo 'make run                 build, then run real programs under Ebbtide and its peers (5 minutes)'
	@echo 'make test                build and run the tests, plain and under sanitizers (15 minutes)'
	@echo 'make test-all            every test in every build (hours)'
	@echo 'make lib                 build/release/libebbtide.so and libebbtide.a'
	@echo 'make install PREFIX=DIR  install below DIR (default /usr/local)'
	@echo 'make bench               the benchmarks'
	@echo 'make check               the quick door before a commit: format, lints, unit, API, golden'
	@echo 'make clean               remove build/'

run: setup-run lib bench-programs $(EBB)
	$(EBB) demo

bench: setup-run lib bench-programs $(EBB)
	$(EBB) bench

test: setup-test
	@tools/test

test-all: setup-test
	@tools/test --all

check: setup-test
	@tools/check

lib: setup-build
	@cmake --preset release >/dev/null
	@cmake --build --preset release --target ebbtide ebbtide_static

bench-programs: lib
	@cmake --build --preset release --target bench/all

install: lib
	@cmake --install build/release --prefix $(PREFIX)

clean:
	rm -rf build

setup-build:
	@tools/setup build

setup-test:
	@tools/setup build test

setup-run:
	@tools/setup build run

$(EBB): lab/pyproject.toml
	@tools/setup-lab
