// SPDX-License-Identifier: BSD-3-Clause
#include "src/data/written_specials.hpp"

#include <algorithm>

#include "src/tokenizer/characters.hpp"
#include "src/tokenizer/utf8.hpp"

namespace gyr {

WrittenSpecials::WrittenSpecials(const Tokenizer& tokenizer) {
  const auto matcher = std::make_shared<AddedMatcher>();
  for (const AddedToken& token : tokenizer.vocabulary().added)
    if (token.special) matcher->add(token.content, token);
  matcher_ = matcher;
}

std::vector<WrittenSpecials::Place> WrittenSpecials::places_in(const jinja::Text& text) const {
  std::vector<Place> places;
  const auto& runs = text.runs();
  for (std::size_t run = 0; run < runs.size(); ++run) {
    if (runs[run].origin.source != 0) continue;
    const std::size_t begin = run > 0 ? runs[run - 1].end : 0;
    while (run + 1 < runs.size() && runs[run + 1].origin.source == 0) ++run;
    add_places(text.bytes(), begin, runs[run].end, places);
  }
  return places;
}

// Adds the special tokens in bytes [begin, end), which the template wrote.
void WrittenSpecials::add_places(std::string_view bytes, std::size_t begin, std::size_t end, std::vector<Place>& places) const {
  matcher_->visit(bytes.substr(begin, end - begin), true, [&](const AddedMatcher::Part& part) {
    if (!part.token) return;
    Place place{begin + part.begin, begin + part.end, part.token->id};
    // White space at the edge of the written text may continue in the data.
    const std::size_t floor = places.empty() ? 0 : places.back().end;
    place.begin = std::max(place.begin, floor);
    while (part.token->lstrip && place.begin > floor && is_white_space(character_before(bytes, place.begin).point))
      place.begin -= character_before(bytes, place.begin).length;
    while (part.token->rstrip && place.end < bytes.size() && is_white_space(character_at(bytes, place.end).point))
      place.end += character_at(bytes, place.end).length;
    places.push_back(place);
  });
}

}  // namespace gyr
