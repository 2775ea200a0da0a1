#!/usr/bin/env bash
# SPDX-License-Identifier: MIT OR Apache-2.0
# A plugin in C++ of a host in C: its runtime is in no global scope, or is its own. A new that fails throws there, after
# its handler has run.
. "$(dirname "$0")/lib.bash"
find_program compiler g++
cat >"$work/plugin.cc" <<'P'
#include <cstdlib>
#include <new>
namespace {
const std::size_t most = ~std::size_t{0} / 2;
int handled = 0;
struct Own : std::bad_alloc {};
void handler()
{
    if (++handled == 3) std::set_new_handler(nullptr);
}
[[noreturn]] void thrower() { throw Own{}; }
template <class Make> int caught(Make make)
{
    try {
        return make(most) == nullptr ? 1 : 2;
    } catch (Own &) {
        return 3;
    } catch (std::bad_alloc &) {
        return 4;
    }
}
} // namespace
extern "C" __attribute__((visibility("default"))) int plugin_use()
{
    const auto plain = [](std::size_t n) { return ::operator new(n); };
    const auto array = [](std::size_t n) { return ::operator new[](n); };
    const auto aligned = [](std::size_t n) { return ::operator new(n, std::align_val_t{64}); };
    const auto nothrow = [](std::size_t n) { return ::operator new(n, std::nothrow); };
    if (caught(plain) != 4 || caught(array) != 4 || caught(aligned) != 4 || caught(nothrow) != 1) return 1;
    std::set_new_handler(handler);
    if (caught(plain) != 4 || handled != 3) return 2;
    std::set_new_handler(thrower);
    if (caught(plain) != 3 || caught(aligned) != 3) return 3;
    const auto aligned_nothrow = [](std::size_t n) { return ::operator new[](n, std::align_val_t{64}, std::nothrow); };
    if (caught(nothrow) != 1 || caught(aligned_nothrow) != 1) return 4;
    handled = 0;
    std::set_new_handler(handler);
    if (caught(nothrow) != 1 || handled != 3) return 5;
    std::set_new_handler(handler);
    handled = 0;
    if (caught(aligned_nothrow) != 1 || handled != 3) return 6;
    std::set_new_handler(nullptr);
    delete new int;
    return 0;
}
P
cat >"$work/host.c" <<'P'
#include <dlfcn.h>
#include <stdio.h>
int main(int argc, char **argv)
{
    void *plugin = argc > 1 ? dlopen(argv[1], RTLD_NOW | RTLD_LOCAL) : NULL;
    if (plugin == NULL) { fprintf(stderr, "%s\n", dlerror()); return 1; }
    int failed = ((int (*)(void))dlsym(plugin, "plugin_use"))();
    if (failed == 0) puts("ok"); else printf("step %d failed\n", failed);
    return failed;
}
P
compiler=${compiler%g++}gcc build "$work/host.c" "$work/host" -ldl
build "$work/plugin.cc" "$work/shared.so" -shared -fPIC
build "$work/plugin.cc" "$work/own.so" -shared -fPIC -static-libstdc++ -static-libgcc
build "$work/plugin.cc" "$work/hidden.so" -shared -fPIC -static-libstdc++ -static-libgcc -Wl,--exclude-libs,ALL
prove "$work/host" "$work/shared.so"
for kind in shared own hidden; do
    same ok "$("$work/host" "$work/$kind.so")" "without the library: $kind"
    same ok "$(preloaded "$work/host" "$work/$kind.so")" "the C++ runtime is $kind"
done
finish
