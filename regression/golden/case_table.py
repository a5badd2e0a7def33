#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Writes src/jinja/case_table.hpp: characters whose uppercase or titlecase form has several characters, as Python 3.11 converts them.

    ./case_table.py > ../../src/jinja/case_table.hpp
"""
import unicodedata

assert unicodedata.unidata_version == "14.0.0"


def literal(text):
    return '"' + "".join(f"\\u{ord(c):04x}" if ord(c) > 127 else c for c in text) + '"'


print("""// SPDX-License-Identifier: BSD-3-Clause
// Characters whose uppercase or titlecase form has several characters (SpecialCasing.txt of Unicode 14). Written by
// regression/golden/case_table.py.
#pragma once

namespace gyr::jinja {

struct SpecialCase {
  char32_t character;
  const char *upper, *title;
};

// Sorted by `character`.
inline constexpr SpecialCase special_cases[] = {""")
line = "   "
for point in range(0x110000):
    c = chr(point)
    if 0xD800 <= point < 0xE000 or len(c.upper()) == len(c.title()) == 1:
        continue
    row = f" {{0x{point:x}, {literal(c.upper())}, {literal(c.title())}}},"
    if len(line + row) > 150:
        print(line)
        line = "   "
    line += row
print(line)
print("""};

}  // namespace gyr::jinja""")
