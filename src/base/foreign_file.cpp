// SPDX-License-Identifier: BSD-3-Clause
#include "src/base/foreign_file.hpp"

#include <array>

namespace gyr {

namespace {

struct Foreign {
  std::string_view begin, text;
};

constexpr std::string_view web_page =
    "is a web page: the download was refused or the address was wrong; look at it with `head`, and download the file itself";
constexpr std::array<Foreign, 6> known{{
    {"version ", "is a pointer of Git LFS and not the file itself, which was not downloaded: run `git lfs pull` in its folder, or download it again"},
    {"<!DOCTYP", web_page},
    {"<!doctyp", web_page},
    {"<html", web_page},
    {"PK\x03\x04", "is an archive of torch.save, but only safetensors can be read: use the model's .safetensors files"},
    {"GGUF", "is a GGUF file, but only safetensors can be read: use the model that it was converted from"},
}};

}  // namespace

std::string_view foreign_file(std::string_view first_bytes) {
  for (const Foreign& f : known)
    if (first_bytes.starts_with(f.begin)) return f.text;
  return {};
}

}  // namespace gyr
