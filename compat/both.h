// SPDX-License-Identifier: MIT OR Apache-2.0
// Private to compat/: a function of jemalloc has a second name.
#ifndef EBBTIDE_COMPAT_BOTH_H
#define EBBTIDE_COMPAT_BOTH_H

#define ALSO_JE(name) __typeof__(name) je_##name __attribute__((alias(#name)))

#endif
