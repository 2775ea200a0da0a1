// SPDX-License-Identifier: MIT OR Apache-2.0
#include "api_ebb.h"

#include "untouched_cases.h"
