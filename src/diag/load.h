// SPDX-License-Identifier: MIT OR Apache-2.0
// Layer diag: with any entry that a program is linked with comes the start of the library, out of the archive,
// too.
#ifndef EBB_DIAG_LOAD_H
#define EBB_DIAG_LOAD_H

extern const char ebbi_loads;
__attribute__((used)) static const char *const ebbi_loads_too = &ebbi_loads;

#endif
