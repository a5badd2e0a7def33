// SPDX-License-Identifier: BSD-3-Clause
// What every test may use. Tests are laws: a property that must hold, or a stored number that says who produced it.
#pragma once

#include <gtest/gtest.h>
