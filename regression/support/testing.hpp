// SPDX-License-Identifier: BSD-3-Clause
// Included by every test. A test checks a property that must hold, or compares with a stored value whose source is
// given.
#pragma once

#include <gtest/gtest.h>
