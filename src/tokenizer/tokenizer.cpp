// SPDX-License-Identifier: BSD-3-Clause
// Byte-level byte-pair encoding: text to token ids and back.
#include "src/tokenizer/tokenizer.hpp"

#include <xxhash.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <initializer_list>
#include <mutex>
#include <unordered_map>
#include <utility>

#include "kernels/error.hpp"
#include "src/tokenizer/byte_alphabet.hpp"
#include "src/tokenizer/merging.hpp"
#include "src/tokenizer/pair_map.hpp"

namespace gyr {
namespace {

constexpr std::string_view gpt2_pre_tokenizer =
    R"({"add_prefix_space":false,"trim_offsets":true,"type":"ByteLevel","use_regex":true})";

// The ids of pieces met before: text repeats its words. One slot per hash value, the newest piece stays.
class PieceCache {
 public:
  static constexpr std::size_t max_bytes = 26, max_ids = 8;

  struct alignas(64) Slot {
    std::array<std::int32_t, max_ids> ids;
    std::uint8_t count, length;  // length 0: empty
    std::array<char, max_bytes> piece;
  };

  Slot& slot_of(std::string_view piece) {
    return slots_[XXH3_64bits(piece.data(), piece.size()) & (slots_.size() - 1)];
  }

  static bool holds(const Slot& slot, std::string_view piece) {
    return slot.length == piece.size() && std::memcmp(slot.piece.data(), piece.data(), piece.size()) == 0;
  }

  static void store(Slot& slot, std::string_view piece, std::span<const std::int32_t> ids) {
    if (ids.size() > max_ids) return;
    std::copy(ids.begin(), ids.end(), slot.ids.begin());
    std::copy(piece.begin(), piece.end(), slot.piece.begin());
    slot.count = std::uint8_t(ids.size());
    slot.length = std::uint8_t(piece.size());
  }

 private:
  std::vector<Slot> slots_ = std::vector<Slot>(std::size_t(1) << 16);  // 4 MiB
};
static_assert(sizeof(PieceCache::Slot) == 64);

// What one thread needs to encode.
struct Workspace {
  Splitter::Scratch splitter;
  PieceCache cache;
  PieceMerger merger;
  std::vector<std::size_t> ends;
  std::vector<std::int32_t> symbols;
};

// Added tokens to look for in a text, longest first among those that begin with the same byte.
class Matcher {
 public:
  void add(const AddedToken& token) {
    auto& list = starting_with_[static_cast<unsigned char>(token.content[0])];
    list.push_back(&token);
    std::stable_sort(list.begin(), list.end(), [](auto* a, auto* b) { return a->content.size() > b->content.size(); });
    empty_ = false;
  }

  // The first token in `text` at or after `from`, and where it begins; null when there is none.
  std::pair<const AddedToken*, std::size_t> find(std::string_view text, std::size_t from) const {
    if (empty_) return {nullptr, text.size()};
    for (std::size_t i = from; i < text.size(); ++i)
      for (const AddedToken* token : starting_with_[static_cast<unsigned char>(text[i])])
        if (text.substr(i).starts_with(token->content)) return {token, i};
    return {nullptr, text.size()};
  }

 private:
  std::array<std::vector<const AddedToken*>, 256> starting_with_;
  bool empty_ = true;
};

}  // namespace

struct Tokenizer::State {
  Vocabulary vocabulary;
  Splitter splitter;
  std::unordered_map<std::string_view, std::int32_t> id_of_token;  // ordinary tokens, by their bytes
  std::unordered_map<std::string_view, std::int32_t> id_of_added;
  std::array<std::int32_t, 256> id_of_byte;  // -1: none
  PairMap rank_of;
  std::vector<bool> special;
  Matcher ordinary_added, all_added;
  std::mutex mutex;
  std::vector<std::unique_ptr<Workspace>> idle;  // workspaces no thread is using

  explicit State(Vocabulary v);
  void encode_piece(std::string_view piece, std::vector<std::int32_t>& ids, Workspace& work) const;
  void merge_piece(std::string_view piece, Workspace& work) const;
  void encode_text(std::string_view text, std::vector<std::int32_t>& ids, Workspace& work) const;
  std::unique_ptr<Workspace> take();
  void put_back(std::unique_ptr<Workspace> work);
};

Vocabulary byte_vocabulary(std::span<const std::string> specials) {
  Vocabulary v;
  for (const std::string& name : specials) {
    require(!name.empty(), Exit::config, "a special token is empty");
    for (const AddedToken& other : v.added)
      require(other.content != name, Exit::config, "special token '{}' is named twice", name);
    v.added.push_back({std::int32_t(v.tokens.size()), name});
    v.tokens.emplace_back(name);
  }
  std::array<int, 256> order;
  for (int b = 0; b < 256; ++b) order[std::size_t(b)] = b;
  std::sort(order.begin(), order.end(),
            [](int a, int b) { return letter_of[std::size_t(a)] < letter_of[std::size_t(b)]; });
  for (const int b : order) v.tokens.emplace_back(std::string(1, char(b)));
  v.split = {{std::string(gpt2_pattern)}};
  v.pre_tokenizer = gpt2_pre_tokenizer;
  return v;
}

Tokenizer::State::State(Vocabulary v) : vocabulary(std::move(v)), splitter(vocabulary.split) {
  const auto& tokens = vocabulary.tokens;
  const auto known = [&](std::int32_t id) {
    return id >= 0 && std::size_t(id) < tokens.size() && tokens[std::size_t(id)].has_value();
  };
  std::vector<bool> is_added(tokens.size());
  special.resize(tokens.size());
  for (const AddedToken& token : vocabulary.added) {
    require(known(token.id) && tokens[std::size_t(token.id)] == token.content && !token.content.empty(), Exit::data,
            "added token '{}' has id {}, which is not its own", token.content, token.id);
    require(!is_added[std::size_t(token.id)], Exit::data, "id {} belongs to two added tokens", token.id);
    is_added[std::size_t(token.id)] = true;
    special[std::size_t(token.id)] = token.special;
    id_of_added[token.content] = token.id;
    if (!token.special) ordinary_added.add(token);
    all_added.add(token);
  }
  id_of_byte.fill(-1);
  for (std::size_t id = 0; id < tokens.size(); ++id) {
    if (!tokens[id] || is_added[id]) continue;
    const bool unique = id_of_token.emplace(*tokens[id], std::int32_t(id)).second;
    require(unique, Exit::data, "tokens {} and {} are the same bytes", id_of_token[*tokens[id]], id);
    if (tokens[id]->size() == 1) id_of_byte[static_cast<unsigned char>((*tokens[id])[0])] = std::int32_t(id);
  }
  for (std::size_t rank = 0; rank < vocabulary.merges.size(); ++rank) {
    const auto [left, right, result] = vocabulary.merges[rank];
    require(known(left) && known(right) && known(result), Exit::data, "merge {} names an id without a token", rank);
    const bool fresh = rank_of.insert(left, right, std::uint32_t(rank)).second;
    require(fresh, Exit::data, "merge {} repeats merge {}: the pair ({}, {})", rank, rank_of.find(left, right), left,
            right);
  }
}

std::unique_ptr<Workspace> Tokenizer::State::take() {
  {
    const std::lock_guard lock(mutex);
    if (!idle.empty()) {
      auto work = std::move(idle.back());
      idle.pop_back();
      return work;
    }
  }
  return std::unique_ptr<Workspace>(new Workspace{Splitter::Scratch(splitter), {}, {}, {}, {}});
}

void Tokenizer::State::put_back(std::unique_ptr<Workspace> work) {
  const std::lock_guard lock(mutex);
  idle.push_back(std::move(work));
}

// Leaves the ids of `piece` in work.symbols.
void Tokenizer::State::merge_piece(std::string_view piece, Workspace& work) const {
  work.symbols.clear();
  if (vocabulary.ignore_merges) {
    if (const auto whole = id_of_token.find(piece); whole != id_of_token.end()) {
      work.symbols.push_back(whole->second);
      return;
    }
  }
  for (const char c : piece) {
    const std::int32_t id = id_of_byte[static_cast<unsigned char>(c)];
    require(id >= 0, Exit::data, "byte {:#04x} of the text has no token in this vocabulary",
            unsigned(static_cast<unsigned char>(c)));
    work.symbols.push_back(id);
  }
  work.merger.merge(work.symbols, rank_of, vocabulary.merges);
}

void Tokenizer::State::encode_piece(std::string_view piece, std::vector<std::int32_t>& ids, Workspace& work) const {
  if (piece.size() > PieceCache::max_bytes) {
    merge_piece(piece, work);
    ids.insert(ids.end(), work.symbols.begin(), work.symbols.end());
    return;
  }
  auto& slot = work.cache.slot_of(piece);
  if (PieceCache::holds(slot, piece)) {
    ids.insert(ids.end(), slot.ids.begin(), slot.ids.begin() + slot.count);
    return;
  }
  merge_piece(piece, work);
  ids.insert(ids.end(), work.symbols.begin(), work.symbols.end());
  PieceCache::store(slot, piece, work.symbols);
}

void Tokenizer::State::encode_text(std::string_view text, std::vector<std::int32_t>& ids, Workspace& work) const {
  splitter.split(text, work.ends, work.splitter);
  std::size_t begin = 0;
  for (const std::size_t end : work.ends) {
    encode_piece(text.substr(begin, end - begin), ids, work);
    begin = end;
  }
}

Tokenizer::Tokenizer(Vocabulary vocabulary) : state_(std::make_unique<State>(std::move(vocabulary))) {}
Tokenizer::Tokenizer(Tokenizer&&) noexcept = default;
Tokenizer& Tokenizer::operator=(Tokenizer&&) noexcept = default;
Tokenizer::~Tokenizer() = default;

void Tokenizer::encode(std::string_view text, std::vector<std::int32_t>& ids, Specials specials) const {
  auto work = state_->take();
  const Matcher& matcher = specials == Specials::as_tokens ? state_->all_added : state_->ordinary_added;
  std::size_t at = 0;
  while (at < text.size()) {
    const auto [token, begin] = matcher.find(text, at);
    if (begin > at) state_->encode_text(text.substr(at, begin - at), ids, *work);
    if (token) ids.push_back(token->id);
    at = begin + (token ? token->content.size() : 0);
  }
  state_->put_back(std::move(work));
}

std::vector<std::int32_t> Tokenizer::encode(std::string_view text, Specials specials) const {
  std::vector<std::int32_t> ids;
  ids.reserve(text.size() / 3);
  encode(text, ids, specials);
  return ids;
}

std::string Tokenizer::decode(std::span<const std::int32_t> ids) const {
  const auto& tokens = state_->vocabulary.tokens;
  std::string text;
  for (std::size_t i = 0; i < ids.size(); ++i) {
    const bool known = ids[i] >= 0 && std::size_t(ids[i]) < tokens.size() && tokens[std::size_t(ids[i])];
    require(known, Exit::data, "token {} of {} has id {}, which this vocabulary of {} does not have", i, ids.size(),
            ids[i], tokens.size());
    text += *tokens[std::size_t(ids[i])];
  }
  return text;
}

std::int32_t Tokenizer::size() const { return std::int32_t(state_->vocabulary.tokens.size()); }

std::optional<std::int32_t> Tokenizer::id_of(std::string_view token) const {
  if (const auto it = state_->id_of_added.find(token); it != state_->id_of_added.end()) return it->second;
  if (const auto it = state_->id_of_token.find(token); it != state_->id_of_token.end()) return it->second;
  return std::nullopt;
}

bool Tokenizer::is_special(std::int32_t id) const {
  return id >= 0 && std::size_t(id) < state_->special.size() && state_->special[std::size_t(id)];
}

namespace {

std::optional<std::int32_t> first_known(const std::unordered_map<std::string_view, std::int32_t>& ids,
                                        std::initializer_list<std::string_view> names) {
  for (const auto name : names)
    if (const auto it = ids.find(name); it != ids.end()) return it->second;
  return std::nullopt;
}

}  // namespace

std::optional<std::int32_t> Tokenizer::eod() const {
  return first_known(state_->id_of_added, {"<|endoftext|>", "<|end_of_text|>", "</s>", "<eos>"});
}
std::optional<std::int32_t> Tokenizer::pad() const {
  return first_known(state_->id_of_added, {"<|pad|>", "<pad>", "[PAD]"});
}
std::optional<std::int32_t> Tokenizer::bos() const {
  return first_known(state_->id_of_added, {"<|bos|>", "<|begin_of_text|>", "<s>", "<bos>"});
}

const Vocabulary& Tokenizer::vocabulary() const { return state_->vocabulary; }

}  // namespace gyr
