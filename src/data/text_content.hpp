// SPDX-License-Identifier: BSD-3-Clause
// Recognises input files that are not text by their first bytes: Parquet, zip, tar, PDF, token files, other binary data,
// and text that is not UTF-8.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>

namespace gyr {

// Number of bytes at the start of a file that decide whether it is text.
inline constexpr std::int64_t judged_bytes = std::int64_t(64) << 10;

// Second half of an error message, with the remedy, for a file that begins with `first_bytes` (decompressed, at most
// judged_bytes); empty if it may be text. `path` is used in remedies, and to recognise the token file PREFIX.bin by the
// header of PREFIX.idx. Judge::all_bytes also refuses binary data of unknown format: it has a zero byte, or more than
// 10 % of its bytes are invalid UTF-8. Judge::formats is for JSON lines, whose invalid bytes are reported with their line.
enum class Judge { formats, all_bytes };
std::string why_not_text(std::string_view first_bytes, const std::filesystem::path& path, Judge judge);

// Number of bytes of the text that belong to no valid character of UTF-8. A character that the end of `text` cuts counts as
// valid.
std::size_t invalid_bytes(std::string_view text);

}  // namespace gyr
