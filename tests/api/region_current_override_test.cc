// SPDX-License-Identifier: MIT OR Apache-2.0
#include "api_libc.h"

#include "region_current_cases.h"
