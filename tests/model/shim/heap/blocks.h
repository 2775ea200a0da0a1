// SPDX-License-Identifier: MIT OR Apache-2.0
// For the models: all that hazard.c asks of blocks is in the shim of heap.h.
#include "heap/heap.h"
