// SPDX-License-Identifier: BSD-3-Clause
#include "src/engine/model/source_padding.hpp"

namespace gyr {

void append_source(std::span<const Token> source, EncoderInput& all) {
  ensure(Index(source.size()) <= all.length, "an encoder input of {} tokens exceeds source_length {}", source.size(), all.length);
  if (all.length == 0) return;
  const std::size_t before = all.tokens.size() / std::size_t(all.length);
  const bool all_are_full = all.lengths.empty() && Index(source.size()) == all.length;
  if (!all_are_full) all.lengths.resize(before, all.length), all.lengths.push_back(Index(source.size()));
  all.tokens.insert(all.tokens.end(), source.begin(), source.end());
  all.tokens.resize((before + 1) * std::size_t(all.length), 0);
}

EncoderInput padded(const EncoderInput& input, Index batch, Index length, const std::vector<NamedField>& fields) {
  if (input.length == length) return input;
  ensure(input.length < length, "an encoder input of {} rows is padded to {}", input.length, length);
  const auto longer = [&]<class V>(const std::vector<V>& rows, V padding, Index width) {
    std::vector<V> all;
    for (Index b = 0; b < batch && !rows.empty(); ++b) {
      all.insert(all.end(), rows.begin() + b * input.length * width, rows.begin() + (b + 1) * input.length * width);
      all.resize(std::size_t((b + 1) * length * width), padding);
    }
    return all;
  };
  EncoderInput full{length, longer(input.tokens, Token(0), 1), input.lengths, input.values};
  if (full.lengths.empty()) full.lengths.assign(std::size_t(batch), input.length);
  for (const NamedField& field : fields)
    std::visit(
        [&]<class V>(const ValueField<V>& f) {
          if (f.per_sequence == 0 && input.values.find(f.name)) full.values[f.name] = longer(input.values.at(f.name), f.padding, f.per_row);
        },
        field);
  return full;
}

EncoderInput encoder_input_of(std::span<const NeighboursOfText> texts, const RetrievalConfig& c) {
  EncoderInput all;
  const Index r = c.neighbour_length();
  for (Index n = 0; n < c.neighbours; ++n)
    for (const NeighboursOfText& text : texts) {
      const Index chunks = Index(text.lengths.size()) / c.neighbours;
      ensure(chunks * c.neighbours == Index(text.lengths.size()) && chunks * c.neighbours * r == Index(text.tokens.size()),
             "{} tokens of {} neighbours of a text, {} of each chunk", text.tokens.size(), text.lengths.size(), c.neighbours);
      all.length = Index(text.tokens.size());
      for (Index chunk = 0; chunk < chunks; ++chunk) {
        const Index at = chunk * c.neighbours + n;
        all.lengths.push_back(text.lengths[std::size_t(at)]);
        all.tokens.insert(all.tokens.end(), text.tokens.begin() + at * r, text.tokens.begin() + (at + 1) * r);
      }
    }
  return all;
}

}  // namespace gyr
