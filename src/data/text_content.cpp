// SPDX-License-Identifier: BSD-3-Clause
#include "src/data/text_content.hpp"

#include <algorithm>
#include <array>

#include "kernels/base/error.hpp"
#include "src/base/input_file.hpp"
#include "src/tokenizer/utf8.hpp"

namespace gyr {

namespace {

namespace fs = std::filesystem;

constexpr std::string_view index_mark{"MMIDIDX\0\0", 9};  // first bytes of PREFIX.idx
constexpr double most_invalid_share = 0.1;                // share of bytes that are not UTF-8; text in Latin-1 has less
constexpr const char* of_token_file = "is a token file of `data build`, not text; data.prefixes and eval --data take its PREFIX";

struct KnownFormat {
  std::size_t at;
  std::string_view mark;
  const char* text;
};
constexpr std::array<KnownFormat, 14> known_formats{{
    {0, "PK\x03\x04", "is a zip archive; extract it first (unzip), and give the text files in it"},
    {257, "ustar", "is a tar archive; extract it first (tar -xf), and give the text files in it"},
    {0, "7z\xbc\xaf\x27\x1c", "is a 7z archive; extract it first, and give the text files in it"},
    {0, "\x04\"M\x18", "is compressed by LZ4; decompress it first, or use gzip or Zstandard"},
    {0, "%PDF-", "is a PDF file; extract its text first (pdftotext)"},
    {0, "\x89PNG", "is a PNG picture; `gyrfalcon data media` stores pictures for models that read them"},
    {0, "\xff\xd8\xff", "is a JPEG picture; `gyrfalcon data media` stores pictures for models that read them"},
    {0,
     "\x7f"
     "ELF",
     "is a program, not text"},
    {0, "ARROW1", "is an Arrow file; convert it to JSONL first (pyarrow.feather.read_table, then pandas' to_json(lines=True, orient=\"records\"))"},
    {0, "\x89HDF\r\n", "is an HDF5 file; write its text as JSONL first"},
    {0, "GGUF", "is a GGUF model, not text"},
    {0, "SQLite format 3", "is an SQLite database; write its text as JSONL first"},
    {0, "version https://git-lfs.github.com/spec/", "is a pointer of Git LFS and not the file itself; run `git lfs pull` in its folder"},
    {0, index_mark, of_token_file},
}};

std::string remedy_for_parquet(const fs::path& path) {
  const std::string from = path.filename().string(), to = path.stem().string() + ".jsonl";
  return fmt::format(
      "is a Parquet file; convert it to JSONL first: python3 -c 'import pandas; pandas.read_parquet(\"{}\").to_json(\"{}\", orient=\"records\", "
      "lines=True)'",
      from, to);
}

bool is_token_file(const fs::path& path) {
  if (path.extension() != ".bin") return false;
  try {
    std::string mark(index_mark.size(), ' ');
    return InputFile(fs::path(path).replace_extension(".idx")).read(0, mark.data(), mark.size()) == mark.size() && mark == index_mark;
  } catch (const Error&) {
    return false;
  }
}

}  // namespace

std::size_t invalid_bytes(std::string_view text) {
  std::size_t invalid = 0;
  while (!text.empty()) {
    text.remove_prefix(valid_utf8_prefix(text));
    const std::size_t bad = invalid_utf8_prefix(text);
    if (bad < text.size() || bad > 3) invalid += bad;
    text.remove_prefix(bad);
  }
  return invalid;
}

std::string why_not_text(std::string_view first_bytes, const fs::path& path, Judge judge) {
  if (first_bytes.starts_with("PAR1")) return remedy_for_parquet(path);
  for (const KnownFormat& format : known_formats)
    if (first_bytes.size() >= format.at && first_bytes.substr(format.at).starts_with(format.mark)) return format.text;
  if (is_token_file(path)) return of_token_file;
  if (judge == Judge::formats) return "";
  if (const auto zero = first_bytes.find('\0'); zero != first_bytes.npos)
    return fmt::format("is binary data, not text: byte {} is zero; give text or JSONL files, or remove such bytes (tr -d '\\000')", zero);
  const double invalid = double(invalid_bytes(first_bytes)) / double(std::max<std::size_t>(1, first_bytes.size()));
  if (invalid <= most_invalid_share) return "";
  return fmt::format(
      "is binary data or text in another encoding: {:.0f} % of its first {} bytes are not UTF-8; convert text first (iconv -f ENCODING -t UTF-8)",
      100 * invalid, first_bytes.size());
}

}  // namespace gyr
