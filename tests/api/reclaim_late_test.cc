// SPDX-License-Identifier: MIT OR Apache-2.0
#include "reclaim_late_cases.h"
