#!/usr/bin/env bash
# SPDX-License-Identifier: MIT OR Apache-2.0
# Allocation before main, in static objects, in atexit handlers and after them; also linked statically to libstdc++.
. "$(dirname "$0")/lib.bash"
find_program compiler g++
cat >"$work/program.cc" <<'P'
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <string>
#include <thread>
#include <vector>
#include <unistd.h>

static void *first;
__attribute__((constructor(101))) static void start() { first = std::malloc(77); std::memset(first, 1, 77); }
__attribute__((destructor(101))) static void end()
{
    std::free(first);
    void *last = std::calloc(1, 3000);
    std::free(last);
    (void)!write(1, "last\n", 5);
}
struct Registry {
    std::map<int, std::string> names;
    std::vector<std::string> *leaked = new std::vector<std::string>(100, std::string(50, 'l'));
    Registry() { for (int i = 0; i < 1000; i++) names[i] = std::string(static_cast<std::size_t>(i), 'n'); }
    ~Registry() { names[5000] = std::string(100000, 'x'); std::vector<int>(500, 1).swap(late); }
    std::vector<int> late;
};
static Registry registry;
static thread_local std::string own(200, 't');

int main()
{
    std::atexit([] { std::free(std::malloc(12345)); });
    std::thread([] { own += "more than the small string"; }).join();
    std::thread([] { for (;;) { std::free(std::malloc(100)); usleep(100); } }).detach();
    own += "x";
    std::printf("%zu %zu\n", registry.names.size(), own.size());
    std::fflush(stdout);
    return 0;
}
P
build "$work/program.cc" "$work/program" -std=c++17 -pthread
build "$work/program.cc" "$work/program-static" -std=c++17 -pthread -static-libstdc++ -static-libgcc
for program in "$work/program" "$work/program-static"; do
    prove "$program"
    for _ in $(seq 1 20); do
        same "1000 201
last" "$(preloaded "$program")" "output of $(basename "$program")"
    done
done
finish
