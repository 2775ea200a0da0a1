// SPDX-License-Identifier: MIT OR Apache-2.0
#include "api_ebb.h"

#include "aligned_cases.h"
