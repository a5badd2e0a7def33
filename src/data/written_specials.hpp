// SPDX-License-Identifier: BSD-3-Clause
// Finds the special tokens that a chat template writes, in text that also contains data.
#pragma once

#include <memory>
#include <string_view>
#include <vector>

#include "src/jinja/text.hpp"
#include "src/tokenizer/tokenizer.hpp"

namespace gyr {

class WrittenSpecials {
 public:
  explicit WrittenSpecials(const Tokenizer& tokenizer);

  // A special token at the bytes [begin, end), with the white space that belongs to it (lstrip, rstrip).
  struct Place {
    std::size_t begin, end;
    std::int32_t id;
  };
  // The special tokens whose spelling lies in text of source 0, in order.
  std::vector<Place> places_in(const jinja::Text& text) const;

 private:
  void add_places(std::string_view bytes, std::size_t begin, std::size_t end, std::vector<Place>& places) const;

  std::shared_ptr<const AddedMatcher> matcher_;
};

}  // namespace gyr
