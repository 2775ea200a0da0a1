// SPDX-License-Identifier: MIT OR Apache-2.0
#include "slab/classes.h"

#define EBBI_CLASS_TABLE_DATA
#include "slab/class_table.h" // the same file, now for its data
