// SPDX-License-Identifier: MIT OR Apache-2.0
#include "../api/api_ebb.h"

#include "fork_cases.h"
