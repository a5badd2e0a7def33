#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Writes src/tokenizer/character_tables.hpp: character classes (digits, punctuation, accents ...) of the components of Hugging Face's
`tokenizers`, found by calling them for every code point. The components use different versions of Unicode, so each needs its own table.

Needs Python 3.11, whose Unicode 14 equals that of PCRE2 10.39 to 10.42, and tokenizers (made with 0.23.3).
    ./character_tables.py > ../../src/tokenizer/character_tables.hpp
"""
import itertools
import sys
import unicodedata

import tokenizers
from tokenizers import Regex, normalizers, pre_tokenizers

assert unicodedata.unidata_version == "14.0.0"
POINTS = [c for c in range(0x110000) if not 0xD800 <= c < 0xE000]
ALL = "".join(map(chr, POINTS))
CATEGORIES = "Lu Ll Lt Lm Lo Mn Mc Me Nd Nl No Pc Pd Ps Pe Pi Pf Po Sm Sc Sk So Zs Zl Zp Cc Cf".split()


def matching(pattern):
    """Code points that match a regular expression of one character."""
    rest = pre_tokenizers.Split(Regex(pattern), "removed").pre_tokenize_str(ALL)
    missed = {i for _, (first, last) in rest for i in range(first, last)}
    return {c for i, c in enumerate(POINTS) if i not in missed}


def cut_out(pre_tokenizer):
    """Code points that a pre-tokenizer splits off from the letters on both sides."""
    pieces = pre_tokenizer.pre_tokenize_str("".join("a" + chr(c) for c in POINTS) + "a")
    return {POINTS[first // 2] for _, (first, _) in pieces if first % 2}


def changed(function, strings):
    """The result of a normalizer for each string. One call processes all strings, joined by U+0001, which the normalizer keeps."""
    return function("\x01".join(strings)).split("\x01")


def cleaned(points):
    """The result of clean_text for each code point. changed() cannot be used, because clean_text removes U+0001."""
    clean = normalizers.BertNormalizer(clean_text=True, handle_chinese_chars=False, strip_accents=False, lowercase=False)
    texts = clean.normalize_str("|".join(chr(c) for c in points if c != ord("|"))).split("|")
    texts.insert(points.index(ord("|")), "|")
    return texts


def ranges(points):
    out = []
    for c in sorted(points):
        if out and out[-1][1] == c - 1:
            out[-1][1] = c
        else:
            out.append([c, c])
    return out


def table(comment, head, rows):
    print(f"\n// {comment}\n{head} = {{")
    line = "   "
    for row in rows:
        text = " {" + ", ".join(f"{x:#x}" if x >= 0 else str(x) for x in row) + "},"
        if len(line) + len(text) > 138:
            print(line)
            line = "   "
        line += text
    print(line + "\n};")


def stand_in(point, category, han, hiragana, katakana):
    """An older character with the same category and UTF-8 length, for kana and Han also the same script; the nearest smaller one if possible."""
    if point in hiragana:
        return 0x1B11F
    if point in katakana:
        return 0x1B164
    first, last = (0x10000, 0x110000) if point >= 0x10000 else (0x800, 0x10000)
    others = itertools.chain(range(point - 1, first - 1, -1), range(point + 1, last))
    return next(c for c in others if unicodedata.category(chr(c)) == category and (c in han) == (point in han))


def young():
    """(first, last, replacement) of the characters that Unicode 14 does not contain, and of U+180E."""
    scripts = [matching(r"\p{%s}" % name) for name in ("Han", "Hiragana", "Katakana")]
    table = {0x180E: 0x8E2}  # PCRE2 treats it as white space, all others as a format control
    for category in CATEGORIES:
        for c in matching(r"\p{%s}" % category):
            if unicodedata.category(chr(c)) == "Cn":
                table[c] = stand_in(c, category, *scripts)
    rows = []
    for c in sorted(table):
        if rows and rows[-1][1] == c - 1 and rows[-1][2] == table[c]:
            rows[-1][1] = c
        else:
            rows.append([c, c, table[c]])
    return rows


def inert():
    """Characters that Unicode 14 composes, decomposes or reorders, but `tokenizers` does not."""
    points = [c for c in POINTS if c != 1]
    probes = [f(chr(c)) for c in points for f in (lambda s: s, lambda s: "a\u0301" + s, lambda s: "a" + s + "\u0334")]
    found = set()
    for form in ("NFD", "NFKD"):
        theirs = changed(getattr(normalizers, form)().normalize_str, probes)
        for i, (probe, text) in enumerate(zip(probes, theirs, strict=True)):
            if text != unicodedata.normalize(form, probe):
                found.add(points[i // 3])
    for c in list(found):  # adds the other character of a pair that is not composed
        halves = unicodedata.decomposition(chr(c)).split()
        if len(halves) == 2 and not halves[0].startswith("<"):
            found.add(int(halves[1], 16))
    return found


def lower():
    """(first, last, distance, step) of the uppercase letters whose lowercase form is one character."""
    points = [c for c in POINTS if c != 1]
    small = changed(normalizers.Lowercase().normalize_str, [chr(c) for c in points])
    rows = []
    for c, text in zip(points, small, strict=True):
        if text == chr(c) or len(text) != 1:
            continue
        distance = ord(text) - c
        last = rows[-1] if rows else None
        if last and last[2] == distance and c - last[1] in (1, 2) and last[3] in (0, c - last[1]):
            last[1], last[3] = c, c - last[1]
        else:
            rows.append([c, c, distance, 0])
    assert [(chr(c), t) for c, t in zip(points, small, strict=True) if len(t) != 1 and t] == [("\u0130", "i\u0307")]
    return [(first, last, distance, max(step, 1)) for first, last, distance, step in rows]


def main():
    print(f"""// SPDX-License-Identifier: BSD-3-Clause
// Character classes of Hugging Face's `tokenizers`. Its components use different versions of Unicode, so these tables were extracted by calling
// version {tokenizers.__version__} for every code point. Generated by regression/golden/character_tables.py; do not edit.
#pragma once

namespace gyr {{

struct CodePoints {{
  char32_t first, last;
}};""")
    table("Digits of the pre-tokenizer Digits (Unicode 17: Nd, Nl, No).", "inline constexpr CodePoints numbers[]",
          ranges(cut_out(pre_tokenizers.Digits(individual_digits=False))))
    table("Punctuation of the pre-tokenizer Punctuation (Unicode 8: P, and ASCII punctuation).", "inline constexpr CodePoints punctuation[]",
          ranges(cut_out(pre_tokenizers.Punctuation("contiguous"))))
    points = [c for c in POINTS if c != 1]
    gone = changed(normalizers.StripAccents().normalize_str, [chr(c) for c in points])
    table("Characters that the normalizer StripAccents removes (Unicode 9: M).", "inline constexpr CodePoints accents[]",
          ranges(c for c, text in zip(points, gone, strict=True) if not text))
    bert = dict(clean_text=False, handle_chinese_chars=False, strip_accents=False, lowercase=False)

    def made(**steps):
        return changed(normalizers.BertNormalizer(**{**bert, **steps}).normalize_str, [chr(c) for c in points])

    table("Characters that clean_text of BertNormalizer removes besides U+0000 and U+0001 (Unicode 8: C, and U+FFFD).",
          "inline constexpr CodePoints unclean[]",
          ranges(c for c, text in zip(points, cleaned(points), strict=True) if c and not text))
    table("Characters that strip_accents of BertNormalizer removes (Unicode 8: Mn).", "inline constexpr CodePoints nonspacing[]",
          ranges(c for c, text in zip(points, made(strip_accents=True), strict=True) if not text))
    table("Characters that handle_chinese_chars of BertNormalizer surrounds with spaces.", "inline constexpr CodePoints han[]",
          ranges(c for c, text in zip(points, made(handle_chinese_chars=True), strict=True) if text == f" {chr(c)} "))
    print("""
struct LowercaseRange {
  char32_t first, last;  // every `step`-th character of first to last
  int distance;          // code point of the lowercase letter minus that of the uppercase letter
  unsigned step;
};""")
    table("Uppercase letters with one lowercase character in the normalizer Lowercase. (U+0130 becomes two characters: i and U+0307.)",
          "inline constexpr LowercaseRange lowercase_ranges[]", lower())
    table("Characters that the normalizers NFC, NFD, NFKC and NFKD (Unicode 9) leave unchanged, although Unicode 14 would not.",
          "inline constexpr CodePoints inert[]", ranges(inert()))
    print("""
struct StandIn {
  char32_t first, last;
  char32_t old;  // replacement with the same category, script and UTF-8 length
};""")
    table("Characters newer than Unicode 14 (PCRE2 10.42) that the regular expressions of `tokenizers` (Unicode 16) classify.",
          "inline constexpr StandIn stand_ins[]", young())
    print("\n}  // namespace gyr")


if __name__ == "__main__":
    sys.exit(main())
