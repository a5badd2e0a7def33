// SPDX-License-Identifier: BSD-3-Clause
#include "src/data/mixing/fill_in_middle.hpp"

#include <algorithm>
#include <set>

#include "kernels/base/error.hpp"
#include "src/tokenizer/tokenizer.hpp"

namespace gyr {
FimConfig read_fim(Section& data, const std::string& tokenizer) {
  Section& s = data.section("fim", "fill-in-the-middle: documents are rearranged so that a model learns to fill gaps");
  FimConfig c;
  c.rate = s.get("rate", c.rate, "fraction of documents that are rearranged, drawn by seed, document and epoch; 0: none. Validation has none")
               .at_least(0)
               .at_most(1);
  c.spm =
      s.get("spm", c.spm, "fraction of rearranged documents in the order suffix, prefix, middle (SPM); the others have prefix, suffix, middle (PSM)")
          .at_least(0)
          .at_most(1);
  c.tokens =
      s.get("tokens", c.tokens, "names of the special tokens in the tokenizer: [PREFIX, MIDDLE, SUFFIX], such as [<|fim_prefix|>, ...]").value();
  const std::set<std::string> different(c.tokens.begin(), c.tokens.end());
  require(c.rate == 0 || (c.tokens.size() == 3 && different.size() == 3), Exit::config,
          "data.fim.tokens has {} different names, and data.fim.rate = {:g} needs 3: [PREFIX, MIDDLE, SUFFIX], as in [<|fim_prefix|>, "
          "<|fim_middle|>, <|fim_suffix|>]",
          different.size(), c.rate);
  require(c.rate == 0 || !tokenizer.empty(), Exit::config,
          "data.fim.rate = {:g} finds its tokens by name in a tokenizer, and data.tokenizer is empty; name the tokenizer.json of the data", c.rate);
  return c;
}

FillInMiddle::FillInMiddle(const FimConfig& c, const Tokenizer& tokenizer, const std::string& name, std::uint64_t seed)
    : rate_(c.rate), spm_(c.spm), end_(tokenizer.eod().value_or(-1)), seed_(seed) {
  std::vector<std::int32_t> ids;
  for (const std::string& token : c.tokens) {
    const auto id = tokenizer.id_of(token);
    require(id.has_value(), Exit::config, "data.fim.tokens: {} is not a token of {}; name three of its special tokens", token, name);
    require(std::find(ids.begin(), ids.end(), *id) == ids.end() && *id != end_, Exit::config,
            "data.fim.tokens: {} is token {} of {}, which has another role already; name three different special tokens", token, *id, name);
    ids.push_back(*id);
  }
  ensure(ids.size() == 3, "{} fill-in-the-middle tokens", ids.size());
  prefix_ = ids[0], middle_ = ids[1], suffix_ = ids[2];
}

Stream FillInMiddle::draws(std::int64_t corpus, std::int64_t sequence, std::int64_t offset, std::int64_t epoch) const {
  return Stream(seed_, fmt::format("fill-in-the-middle {} {} {} {}", corpus, sequence, offset, epoch));
}

std::vector<std::int32_t> FillInMiddle::operator()(std::span<const std::int32_t> document, const Stream& draws) const {
  std::vector<std::int32_t> result(document.begin(), document.end());
  const bool ends = !document.empty() && document.back() == end_;
  const auto text = document.first(document.size() - std::size_t(ends));
  if (text.empty() || draws.uniform(0) >= rate_) return result;
  const auto place = [&](Index number) { return std::size_t(draws.uniform(number) * double(text.size() + 1)); };
  const auto [first, last] = std::minmax({place(2), place(3)});
  const auto prefix = text.first(first), middle = text.subspan(first, last - first), suffix = text.subspan(last);
  result.clear();
  const auto append = [&](std::span<const std::int32_t> part) { result.insert(result.end(), part.begin(), part.end()); };
  result.push_back(prefix_);
  if (draws.uniform(1) < spm_) {
    result.push_back(suffix_), append(suffix), result.push_back(middle_), append(prefix), append(middle);
  } else {
    append(prefix), result.push_back(suffix_), append(suffix), result.push_back(middle_), append(middle);
  }
  if (ends) result.push_back(end_);
  return result;
}

}  // namespace gyr
