#!/usr/bin/env bash
# SPDX-License-Identifier: MIT OR Apache-2.0
# A plugin in C++ whose objects retire themselves: with a barrier before its end it can be unloaded, is unloaded,
# and comes back; without one its deleters are called when they have gone.
. "$(dirname "$0")/lib.bash"
find_program compiler g++
include=$(cd "$(dirname "$0")/../../include" && pwd)
cat >"$work/plugin.cc" <<'P'
#include <ebbtide/hazard_pointer.hpp>
#include <ebbtide/rcu.hpp>
#include <ebbtide/region.hpp>
namespace {
int loads = 0; // starts anew where the plugin is loaded anew
struct Node : ebb::rcu_obj_base<Node> { int value = 1; ~Node() { value = 0; } };
struct Held : ebb::hazard_pointer_obj_base<Held> { int value = 1; ~Held() { value = 0; } };
ebb::hazard_pointer hazard;
struct End {
    ~End()
    {
        for (int i = 0; i < 100; i++) (new Node)->retire();
        hazard = {};
#ifndef WITHOUT_BARRIER
        ebb::rcu_barrier();
#endif
    }
} end;
} // namespace
extern "C" __attribute__((visibility("default"))) int plugin_use()
{
    hazard = ebb::make_hazard_pointer();
    if (ebb::heap().is_open()) return 0; // a use of its object
    ebb::rcu_default_domain().lock();
    for (int i = 0; i < 1000; i++) {
        (new Node)->retire();
        (new Held)->retire();
        ebb::rcu_retire(new int(i), [i](int *p) { if (*p != i) __builtin_trap(); delete p; });
    }
    ebb::rcu_default_domain().unlock();
    return ++loads;
}
P
cat >"$work/host.cc" <<'P'
#include <atomic>
#include <cstdio>
#include <dlfcn.h>
#include <thread>
#include <vector>
#include <ebbtide/rcu.hpp>
static int use(const char *path, bool pinned)
{
    void *plugin = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (!plugin) { fprintf(stderr, "%s\n", dlerror()); return 1; }
    int loads = reinterpret_cast<int (*)()>(dlsym(plugin, "plugin_use"))();
    if (pinned) ebb::rcu_default_domain().lock();
    dlclose(plugin);
    if (pinned) { ebb::rcu_default_domain().unlock(); ebb::rcu_barrier(); }
    plugin = dlopen(path, RTLD_NOW | RTLD_NOLOAD);
    return loads != 1 || plugin != nullptr;
}
int main(int argc, char **argv)
{
    if (argc > 2) return use(argv[1], true);
    std::atomic<bool> stop{false};
    std::vector<std::thread> readers; // their unpins run destructors, too
    for (int t = 0; t < 2; t++)
        readers.emplace_back([&] {
            while (!stop) {
                ebb::rcu_default_domain().lock();
                ebb::rcu_retire(new long(1));
                ebb::rcu_default_domain().unlock();
            }
        });
    int bad = 0;
    for (int i = 0; i < 300; i++) bad += use(argv[1], false);
    stop = true;
    for (std::thread &reader : readers) reader.join();
    puts(bad == 0 ? "ok" : "still loaded");
    return bad != 0;
}
P
options=(-std=c++17 "-I$include" -pthread)
for visibility in default hidden; do
    build "$work/plugin.cc" "$work/plugin-$visibility.so" "${options[@]}" -shared -fPIC "-fvisibility=$visibility"
done
build "$work/plugin.cc" "$work/hasty.so" "${options[@]}" -shared -fPIC -DWITHOUT_BARRIER
build "$work/host.cc" "$work/host" "${options[@]}" "$library" "-Wl,-rpath,$(dirname "$library")" -ldl
for visibility in default hidden; do
    same ok "$(timeout -k 5 "$time_limit" "$work/host" "$work/plugin-$visibility.so" 2>>"$work/stderr")" "a plugin, $visibility"
done
status=0
timeout -k 5 "$time_limit" "$work/host" "$work/hasty.so" without >"$work/out" 2>&1 || status=$?
[ "$status" -ge 128 ] || fail "without a barrier: a signal was expected, not exit $status"
finish
