# SPDX-License-Identifier: MIT OR Apache-2.0
# A thin door to CMake and tools/. `make` alone lists what there is.
PREFIX ?= /usr/local
EBB := build/venv/bin/ebb
RESULTS := $(or $(RESULTS),build/results/$(shell date +%Y-%m-%d-%H%M%S))

.DEFAULT_GOAL := help
.PHONY: help release run test test-all test-glibc test-suites nightly coverage soak lib install bench bench-corpus bench-seeds bench-hours bench-full bench-cores bench-observed bench-programs traces charts docs check clean setup-build setup-test setup-run setup-lab

help:
	@echo 'make run                 build, then run real programs under Ebbtide and its peers (5 minutes)'
	@echo 'make test                build and run the tests, plain and under sanitizers (20 to 40 minutes)'
	@echo 'make test-all            every test in every build (hours)'
	@echo "make test-glibc          glibc's own 400 programs for malloc and threads, preloaded (10 minutes)"
	@echo "make test-suites         two dozen programs' own tests under EBB_CHECK=1, in which nothing may be reported (up to an hour)"
	@echo 'make soak                the reclamation tests thirty times as long: litmus, stalled readers, exits, forks (15 minutes)'
	@echo 'make nightly             ten million random steps against the model (25 minutes)'
	@echo 'make coverage            which lines and branches of src those reach (5 minutes)'
	@echo 'make lib                 build/release/libebbtide.so, libebbtide.a, wait/libebbtide_wait.so, lockfree/libebbtide_lockfree.a, compat/libebbtide_compat.so'
	@echo 'make install PREFIX=DIR  install below DIR (default /usr/local)'
	@echo 'make release             every package, checksums and a bill of materials, in build/packages (a minute)'
	@echo 'make bench               the quick set and parts of the corpus beside every peer, and their report'
	@echo 'make traces              record the corpus: some forty programs that nobody here wrote (minutes)'
	@echo 'make bench-corpus        replay it under every peer (under an hour)'
	@echo 'make bench-seeds         what five earlier systems published, beside every peer (under an hour)'
	@echo 'make bench-hours         those of its rows that take an hour for each allocator (a day)'
	@echo 'make bench-full          every set but those (hours)'
	@echo 'make bench-cores         locks, waits and lines that move on up to 128 simulated cores (a minute)'
	@echo 'make bench-observed      what ebb top and ebb profile cost a process, and whether they are right (half an hour)'
	@echo "make charts              the README's charts and figures, from the sessions that results/ keeps"
	@echo 'make docs                the documentation site, in build/site'
	@echo 'make check               the quick door before a commit: format, lints, unit, API, models, golden (3 minutes)'
	@echo 'make clean               remove build/'

run: setup-build
	@tools/setup --try run
	@tools/told 'building Ebbtide' $(MAKE) --no-print-directory lib bench-programs
	@tools/told 'preparing the measurement' tools/setup-lab
	@$(EBB) demo

bench: setup-run lib bench-programs setup-lab
	$(EBB) bench quick corpus-quick --out $(RESULTS); status=$$?; $(EBB) report $(RESULTS) && exit $$status

traces: setup-run lib bench-programs setup-lab
	@tools/setup traces
	$(EBB) traces

bench-corpus: traces
	$(EBB) bench corpus --out $(RESULTS); status=$$?; $(EBB) report $(RESULTS) && exit $$status

bench-seeds: setup-run lib bench-programs setup-lab
	$(EBB) bench published --out $(RESULTS); status=$$?; $(EBB) report $(RESULTS) && exit $$status

bench-hours: setup-run lib bench-programs setup-lab
	$(EBB) bench hours --out $(RESULTS); status=$$?; $(EBB) report $(RESULTS) && exit $$status

bench-cores: setup-build
	@cmake --preset release >/dev/null
	@cmake --build --preset release --target bench_cores_cores
	bench/cores/report build/release/bench/cores/cores

bench-observed: setup-run lib setup-lab
	@cmake --build --preset release --target bench_observed
	@for part in top switch pinned; do build/venv/bin/python bench/observed/report $$part || exit; done

bench-full: setup-run lib bench-programs setup-lab
	$(EBB) bench full --out $(RESULTS); status=$$?; $(EBB) report $(RESULTS) && exit $$status

charts: setup-lab
	$(EBB) charts

docs:
	@tools/setup-lab docs
	NO_MKDOCS_2_WARNING=1 build/venv/bin/mkdocs build --strict --site-dir build/site

test: setup-test
	@tools/test

test-all: setup-test
	@tools/test --all

test-glibc: lib
	@tools/setup glibc
	@tests/glibc/run build/release/libebbtide.so build/glibc

test-suites: lib
	@tools/setup suites
	@tests/suites/run build/release/libebbtide.so build/suites

nightly: setup-test
	@cmake --preset release >/dev/null && cmake --build --preset release --target random_random
	RANDOM_SECONDS=$${RANDOM_SECONDS-180} build/release/tests/random_random

coverage: setup-test
	@tools/coverage

soak: setup-test
	@cmake --preset release >/dev/null && cmake --build --preset release
	EBBTEST_SCALE=30 ctest --preset release -R '^stress_(litmus|stalled|reclaim)'

check: setup-test
	@tools/check

lib: setup-build
	@cmake --preset release >/dev/null
	@cmake --build --preset release --target ebbtide ebbtide_wait ebbtide_static ebbtide_core ebbtide_lockfree ebbtide_compat ebbtide_compat_static

bench-programs: lib
	@cmake --build --preset release --target bench_programs

install: lib
	@cmake --install build/release --prefix $(PREFIX)

release: setup-build
	@tools/setup release
	@tools/package all

clean:
	rm -rf build

setup-build:
	@tools/setup build

setup-test:
	@tools/setup build test

setup-run:
	@tools/setup build run

setup-lab:
	@tools/setup-lab
