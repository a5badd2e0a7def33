// SPDX-License-Identifier: BSD-3-Clause
// Converts text to token ids and back.
#include "src/tokenizer/tokenizer.hpp"

#include <xxhash.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <deque>
#include <initializer_list>
#include <mutex>
#include <unordered_map>
#include <utility>

#include "kernels/base/error.hpp"
#include "src/tokenizer/byte_alphabet.hpp"
#include "src/tokenizer/characters.hpp"
#include "src/tokenizer/initial_symbols.hpp"
#include "src/tokenizer/merge_boundaries.hpp"
#include "src/tokenizer/merging.hpp"
#include "src/tokenizer/oniguruma.hpp"
#include "src/tokenizer/pair_map.hpp"
#include "src/tokenizer/utf8.hpp"

namespace gyr {
namespace {

constexpr std::size_t longest_kept = std::size_t(1) << 20;  // bytes; the working memory of longer texts is released

constexpr std::string_view gpt2_pre_tokenizer = R"({"add_prefix_space":false,"trim_offsets":true,"type":"ByteLevel","use_regex":true})";

// Cache of the ids of recent pieces, because words recur in text. It is a hash table in which each hash value has one
// entry, the newest piece.
class PieceCache {
 public:
  static constexpr std::size_t max_bytes = 26, max_ids = 8;

  struct alignas(64) Slot {
    std::array<std::int32_t, max_ids> ids;
    std::uint8_t count, length;  // number of ids of the piece; its length in bytes, 0: the slot is empty
    std::array<char, max_bytes> piece;
  };

  Slot& slot_of(std::string_view piece) { return slots_[XXH3_64bits(piece.data(), piece.size()) & (slots_.size() - 1)]; }

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
  std::vector<Slot> slots_ = std::vector<Slot>(std::size_t(1) << 16);  // 65536 entries of 64 bytes: 4 MiB
};
static_assert(sizeof(PieceCache::Slot) == 64);

// Position of a part of a text, if the text has `position`.
TextPosition position_of(const AddedMatcher::Part& part, TextPosition position) { return part.begin == 0 ? position : TextPosition::after_token; }

// Working memory of one thread for encoding.
struct EncodingWork {
  Splitter::Scratch splitter;
  std::string normalized;
  PieceCache cache;
  PieceMerger merger;
  std::vector<std::int32_t> symbols;
  std::vector<Unigram::Part> parts;
};

}  // namespace

struct Tokenizer::State {
  Vocabulary vocabulary;
  Normalizer normalizer;
  Splitter splitter;
  Decoder decoder;
  std::unordered_map<std::string_view, std::int32_t> id_of_token;  // tokens of the model, by their bytes
  std::unordered_map<std::string_view, std::int32_t> id_of_added;
  std::optional<InitialSymbols> symbols;      // initial symbols of a piece; empty: the vocabulary is not BPE
  std::optional<MergeBoundaries> boundaries;  // places that no merge crosses; only for BPE whose units are characters
  PairMap rank_of;
  std::vector<const AddedToken*> added;    // [id]: the added token with this id; null: the id is no added token
  std::vector<std::string> spelling_of;    // [id]: spelling of an added token, normalized if necessary, as the decoder receives it
  std::deque<std::string> bytes_of_added;  // bytes of added tokens that are also in the model's vocabulary, as the model spells them
  std::optional<WordPieces> word_pieces;
  std::optional<Unigram> unigram;
  AddedMatcher raw, normalized;  // match added tokens before and after normalization
  AddedMatcher specials;         // matches special tokens as they are spelt
  std::mutex mutex;
  std::vector<std::unique_ptr<EncodingWork>> idle;  // working memory that no thread is using

  explicit State(Vocabulary v);
  void take_added();
  void take_tokens();
  void take_merges();
  void take_pairs();
  void take_scores();
  // Convert a token's bytes to the file's spelling, and back.
  std::string spelt(const std::string& bytes) const { return vocabulary.of_text ? bytes : to_letters(bytes); }
  std::string unspelt(const std::string& spelling) const { return vocabulary.of_text ? spelling : bytes_of_spelling(spelling); }
  bool known(std::int32_t id) const {
    return id >= 0 && std::size_t(id) < vocabulary.tokens.size() && vocabulary.tokens[std::size_t(id)].has_value();
  }

  std::string word_mark() const;
  void encode_piece(std::string_view piece, std::vector<std::int32_t>& ids, EncodingWork& work) const;
  void merge_piece(std::string_view piece, EncodingWork& work) const;
  void encode_unigram(std::string_view piece, EncodingWork& work) const;
  void append_unknown(std::string_view text, std::vector<std::int32_t>& symbols) const;
  void encode_text(std::string_view text, TextPosition position, std::vector<std::int32_t>& ids, EncodingWork& work) const;
  void encode_part(std::string_view text, bool specials, TextPosition position, std::vector<std::int32_t>& ids, EncodingWork& work) const;
  void encode_valid(std::string_view text, bool specials, TextPosition position, std::vector<std::int32_t>& ids, EncodingWork& work) const;
  std::unique_ptr<EncodingWork> take();
  void put_back(std::unique_ptr<EncodingWork> work);
};

Vocabulary byte_vocabulary(std::span<const std::string> specials) {
  Vocabulary v;
  for (const std::string& name : specials) {
    require(!name.empty(), Exit::config, "a special token is empty");
    for (const AddedToken& other : v.added) require(other.content != name, Exit::config, "special token '{}' is given twice", name);
    v.added.push_back({std::int32_t(v.tokens.size()), name});
    v.tokens.emplace_back(bytes_of_spelling(name));
  }
  std::array<int, 256> order;
  for (int b = 0; b < 256; ++b) order[std::size_t(b)] = b;
  std::sort(order.begin(), order.end(), [](int a, int b) { return letter_of[std::size_t(a)] < letter_of[std::size_t(b)]; });
  for (const int b : order) v.tokens.emplace_back(std::string(1, char(b)));
  v.split = {{std::string(gpt2_pattern)}};
  v.pre_tokenizer_json = gpt2_pre_tokenizer;
  return v;
}

Tokenizer::State::State(Vocabulary v)
    : vocabulary(std::move(v)), normalizer(vocabulary.normalizer), splitter(vocabulary.split), decoder(vocabulary.decoder) {
  if (vocabulary.word_pieces) word_pieces.emplace(*vocabulary.word_pieces);
  take_added();
  take_tokens();
  take_merges();
  const bool pairs = !vocabulary.word_pieces && !vocabulary.unigram;
  require(pairs || vocabulary.unknown, Exit::data, "a WordPiece or Unigram vocabulary needs an unknown token");
  if (pairs) take_pairs();
  if (vocabulary.unigram) take_scores();
  for (const Template& t : vocabulary.templates)
    for (const auto* ids : {&t.before, &t.after})
      for (const std::int32_t id : *ids) require(known(id), Exit::data, "the post-processor adds id {}, which no token has", id);
}

// Pieces of byte-level vocabularies are short, and ignore_merges needs the whole piece.
void Tokenizer::State::take_pairs() {
  symbols.emplace(vocabulary, id_of_token);
  if (vocabulary.of_text && !vocabulary.ignore_merges) boundaries.emplace(vocabulary, id_of_token, *symbols);
}

void Tokenizer::State::take_scores() {
  const std::vector<double>& scores = vocabulary.unigram->scores;
  std::vector<Unigram::Token> tokens;
  for (const auto& [spelling, id] : id_of_token)
    if (std::size_t(id) < scores.size()) tokens.push_back({spelling, id, scores[std::size_t(id)]});
  unigram.emplace(std::move(tokens));
}

void Tokenizer::State::take_added() {
  added.resize(vocabulary.tokens.size());
  spelling_of.resize(vocabulary.tokens.size());
  Pattern::Scratch scratch;
  for (const AddedToken& token : vocabulary.added) {
    require(known(token.id) && !token.content.empty(), Exit::data, "added token '{}' is empty, or its id {} is not in the vocabulary", token.content,
            token.id);
    const auto id = std::size_t(token.id);
    require(added[id] == nullptr, Exit::data, "id {} belongs to two added tokens", token.id);
    require(id_of_added.emplace(token.content, token.id).second, Exit::data, "added token '{}' is given twice", token.content);
    added[id] = &token;
    spelling_of[id] = token.content;
    if (token.normalized) {
      scratch.allow(token.content.size());
      normalizer.apply(spelling_of[id], scratch);
    }
    (token.normalized ? normalized : raw).add(spelling_of[id], token);
    if (token.special) specials.add(token.content, token);
    vocabulary.tokens[id] = unspelt(spelling_of[id]);
  }
}

void Tokenizer::State::take_tokens() {
  const auto& tokens = vocabulary.tokens;
  for (std::size_t id = 0; id < tokens.size(); ++id) {
    if (!tokens[id]) continue;
    std::string_view bytes = *tokens[id];
    if (const AddedToken* token = added[id]) {
      auto original = vocabulary.of_text ? std::optional(token->content) : from_letters(token->content);
      if (!token->in_model || !original) continue;  // no merge and no piece produces this added token, so it is not a token of the model
      bytes = bytes_of_added.emplace_back(std::move(*original));
    }
    const bool unique = id_of_token.emplace(bytes, std::int32_t(id)).second;
    require(unique, Exit::data, "tokens {} and {} have the same bytes", id_of_token[bytes], id);
    if (word_pieces) word_pieces->add(bytes, std::int32_t(id));
  }
}

void Tokenizer::State::take_merges() {
  for (std::size_t rank = 0; rank < vocabulary.merges.size(); ++rank) {
    const auto [left, right, result] = vocabulary.merges[rank];
    require(known(left) && known(right) && known(result), Exit::data, "merge {} refers to an id without a token", rank);
    const bool fresh = rank_of.insert(left, right, std::uint32_t(rank)).second;
    require(fresh, Exit::data, "merge {} repeats merge {}: the pair ({}, {})", rank, rank_of.find(left, right), left, right);
  }
}

std::unique_ptr<EncodingWork> Tokenizer::State::take() {
  {
    const std::lock_guard lock(mutex);
    if (!idle.empty()) {
      auto work = std::move(idle.back());
      idle.pop_back();
      return work;
    }
  }
  return std::make_unique<EncodingWork>();
}

void Tokenizer::State::put_back(std::unique_ptr<EncodingWork> work) {
  const std::lock_guard lock(mutex);
  idle.push_back(std::move(work));
}

// Appends text without a token: its byte-fallback tokens if all its bytes have one, else the unknown token.
void Tokenizer::State::append_unknown(std::string_view text, std::vector<std::int32_t>& symbols) const {
  const std::size_t before = symbols.size();
  for (std::size_t i = 0; i < text.size() && vocabulary.byte_fallback; ++i) {
    const auto token = id_of_token.find(fmt::format("<0x{:02X}>", unsigned(static_cast<unsigned char>(text[i]))));
    if (token == id_of_token.end()) break;
    symbols.push_back(token->second);
  }
  if (symbols.size() == before + text.size()) return;
  symbols.resize(before);
  symbols.push_back(*vocabulary.unknown);
}

void Tokenizer::State::encode_unigram(std::string_view piece, EncodingWork& work) const {
  if (valid_utf8_prefix(piece) < piece.size()) return append_unknown(piece, work.symbols);
  unigram->split_piece(piece, work.parts);
  for (const Unigram::Part& part : work.parts)
    if (part.id >= 0) work.symbols.push_back(part.id);
    else append_unknown(piece.substr(part.begin, part.end - part.begin), work.symbols);
}

// Computes the ids of `piece` without the cache and stores them in work.symbols.
void Tokenizer::State::merge_piece(std::string_view piece, EncodingWork& work) const {
  work.symbols.clear();
  if (word_pieces) {
    if (!word_pieces->split_piece(piece, work.symbols)) work.symbols.push_back(*vocabulary.unknown);
    return;
  }
  if (unigram) return encode_unigram(piece, work);
  if (vocabulary.ignore_merges) {
    if (const auto full = id_of_token.find(piece); full != id_of_token.end()) {
      work.symbols.push_back(full->second);
      return;
    }
  }
  symbols->append(piece, work.symbols);
  work.merger.merge(work.symbols, rank_of, vocabulary.merges);
}

void Tokenizer::State::encode_piece(std::string_view piece, std::vector<std::int32_t>& ids, EncodingWork& work) const {
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

// Encodes normalized text that contains no added tokens.
void Tokenizer::State::encode_text(std::string_view text, TextPosition position, std::vector<std::int32_t>& ids, EncodingWork& work) const {
  splitter.split(text, work.splitter, position);
  for (const auto& [begin, end] : work.splitter.pieces) {
    std::string_view piece = work.splitter.text.substr(begin, end - begin);
    while (boundaries && !piece.empty()) {
      const std::size_t length = boundaries->segment(piece);
      encode_piece(piece.substr(0, length), ids, work);
      piece.remove_prefix(length);
    }
    if (!piece.empty()) encode_piece(piece, ids, work);
  }
}

// Normalizes and encodes text that contains no added tokens of the kind that matches before normalization.
void Tokenizer::State::encode_part(std::string_view text, bool specials, TextPosition position, std::vector<std::int32_t>& ids,
                                   EncodingWork& work) const {
  if (!normalizer.empty()) {
    work.normalized = text;
    work.splitter.patterns.allow(text.size());
    normalizer.apply(work.normalized, work.splitter.patterns, position != TextPosition::after_text);
    text = work.normalized;
  }
  normalized.visit(text, specials, [&](const AddedMatcher::Part& part) {
    if (part.token) {
      ids.push_back(part.token->id);
    } else {
      encode_text(text.substr(part.begin, part.end - part.begin), position_of(part, position), ids, work);
    }
  });
}

void Tokenizer::State::encode_valid(std::string_view text, bool specials, TextPosition position, std::vector<std::int32_t>& ids,
                                    EncodingWork& work) const {
  raw.visit(text, specials, [&](const AddedMatcher::Part& part) {
    if (part.token) {
      ids.push_back(part.token->id);
    } else {
      encode_part(text.substr(part.begin, part.end - part.begin), specials, position_of(part, position), ids, work);
    }
  });
}

Tokenizer::Tokenizer(Vocabulary vocabulary) : state_(std::make_unique<State>(std::move(vocabulary))) {}
Tokenizer::Tokenizer(Tokenizer&&) noexcept = default;
Tokenizer& Tokenizer::operator=(Tokenizer&&) noexcept = default;
Tokenizer::~Tokenizer() = default;

void Tokenizer::encode(std::string_view text, std::vector<std::int32_t>& ids, Specials specials, TextPosition position) const {
  const auto& templates = state_->vocabulary.templates;
  const bool complete = specials == Specials::complete;
  if (complete)
    for (auto t = templates.rbegin(); t != templates.rend(); ++t) ids.insert(ids.end(), t->before.begin(), t->before.end());
  const bool keeps_work = text.size() <= longest_kept;
  auto work = state_->take();
  while (!text.empty()) {
    const std::size_t valid = valid_utf8_prefix(text);
    if (valid > 0) state_->encode_valid(text.substr(0, valid), specials != Specials::as_text, position, ids, *work);
    position = TextPosition::after_text;
    text.remove_prefix(valid);
    const std::size_t invalid = invalid_utf8_prefix(text);
    if (invalid > 0) state_->encode_piece(text.substr(0, invalid), ids, *work);
    text.remove_prefix(invalid);
  }
  if (keeps_work) state_->put_back(std::move(work));
  if (complete)
    for (const Template& t : templates) ids.insert(ids.end(), t.after.begin(), t.after.end());
}

std::vector<std::int32_t> Tokenizer::encode(std::string_view text, Specials specials) const {
  std::vector<std::int32_t> ids;
  ids.reserve(text.size() / 3);
  encode(text, ids, specials);
  return ids;
}

std::vector<Tokenizer::Part> Tokenizer::divided_at_specials(std::string_view text) const {
  std::vector<Part> parts;
  while (!text.empty()) {
    const std::size_t valid = valid_utf8_prefix(text);
    state_->specials.visit(text.substr(0, valid), true, [&](const AddedMatcher::Part& part) {
      if (part.token) parts.push_back({{}, part.token->id});
      else parts.push_back({text.substr(part.begin, part.end - part.begin), {}});
    });
    text.remove_prefix(valid);
    const std::size_t invalid = invalid_utf8_prefix(text);
    if (invalid > 0) parts.push_back({text.substr(0, invalid), {}});
    text.remove_prefix(invalid);
  }
  return parts;
}

std::string_view Tokenizer::text_after(std::int32_t token, std::string_view text) const {
  const AddedToken* const added = state_->known(token) ? state_->added[std::size_t(token)] : nullptr;
  if (!added || !added->rstrip) return text;
  while (valid_utf8_prefix(text.substr(0, 4)) > 0 && is_white_space(character_at(text, 0).point)) text.remove_prefix(character_at(text, 0).length);
  return text;
}

// The mark that replaces spaces, in the pre-tokenizer or in the normalizer; empty if none does.
std::string Tokenizer::State::word_mark() const {
  for (const SplitStep& step : vocabulary.split)
    if (step.by == SplitStep::By::mark) return step.mark;
  for (const NormalizerStep& step : vocabulary.normalizer)
    if (step.kind == NormalizerStep::Kind::replace && step.pattern == quoted_for_pcre(" ")) return step.text;
  return "";
}

std::vector<std::uint8_t> Tokenizer::word_begins(std::span<const std::int32_t> ids) const {
  std::vector<std::uint8_t> begins(ids.size(), 1);
  if (const auto& rule = state_->vocabulary.word_pieces) {
    for (std::size_t t = 1; t < ids.size() && !rule->prefix.empty(); ++t)
      begins[t] = !state_->known(ids[t]) || state_->added[std::size_t(ids[t])] ||
                  !state_->word_pieces->goes_on(*state_->vocabulary.tokens[std::size_t(ids[t])]);
    return begins;
  }
  if (state_->vocabulary.of_text) {
    const std::string mark = state_->word_mark();
    for (std::size_t t = 1; t < ids.size() && !mark.empty(); ++t)
      begins[t] = !state_->known(ids[t]) || state_->added[std::size_t(ids[t])] || state_->vocabulary.tokens[std::size_t(ids[t])]->starts_with(mark);
    return begins;
  }
  if (state_->vocabulary.split.empty()) return begins;
  std::string spelt;
  std::vector<std::size_t> token_at;
  for (const std::int32_t id : ids) {
    token_at.push_back(spelt.size());
    if (state_->known(id)) spelt += *state_->vocabulary.tokens[std::size_t(id)];
  }
  std::vector<std::uint8_t> boundary(spelt.size() + 1, 0);
  bool changed = false;
  auto work = state_->take();
  for (std::string_view text = spelt; !text.empty();) {
    const std::size_t at = spelt.size() - text.size(), valid = valid_utf8_prefix(text);
    boundary[at] = 1;
    if (valid > 0) state_->splitter.split(text.substr(0, valid), work->splitter);
    changed = changed || (valid > 0 && work->splitter.text != text.substr(0, valid));
    if (valid > 0 && !changed)
      for (const auto& piece : work->splitter.pieces) boundary[at + piece.begin] = 1;
    text.remove_prefix(valid);
    if (!text.empty()) boundary[at + valid] = 1;
    text.remove_prefix(invalid_utf8_prefix(text));
  }
  state_->put_back(std::move(work));
  for (std::size_t t = 0; t < ids.size() && !changed; ++t) begins[t] = t == 0 || boundary[token_at[t]];
  return begins;
}

std::string Tokenizer::decode(std::span<const std::int32_t> ids, Shown shown) const {
  const auto& tokens = state_->vocabulary.tokens;
  std::string text;
  std::vector<std::string> spellings;
  for (std::size_t i = 0; i < ids.size(); ++i) {
    require(state_->known(ids[i]), Exit::data, "token {} of {} has id {}, which is not in the vocabulary of {} tokens", i, ids.size(), ids[i],
            tokens.size());
    const auto id = std::size_t(ids[i]);
    const AddedToken* added = state_->added[id];
    if (shown == Shown::without_specials && added && is_special(id_of(state_->spelling_of[id]).value_or(-1))) continue;
    if (state_->decoder.only_bytes()) {
      text += *tokens[id];
    } else {
      spellings.push_back(added ? state_->spelling_of[id] : state_->spelt(*tokens[id]));
    }
  }
  return state_->decoder.only_bytes() ? text : state_->decoder.decode(std::move(spellings));
}

std::string Tokenizer::decode_after(std::span<const std::int32_t> before, std::span<const std::int32_t> ids) const {
  constexpr std::size_t context = 16;  // tokens; more than a character has bytes
  if (state_->decoder.only_bytes() || before.empty()) return decode(ids);
  before = before.last(std::min(before.size(), context));
  std::vector<std::int32_t> all(before.begin(), before.end());
  const std::string head = decode(all);
  all.insert(all.end(), ids.begin(), ids.end());
  const std::string text = decode(all);
  std::size_t same = std::size_t(std::ranges::mismatch(head, text).in2 - text.begin());
  while (same < text.size() && same > 0 && (static_cast<unsigned char>(text[same]) & 0xc0) == 0x80) --same;
  return text.substr(same);
}

int Tokenizer::lacks_bytes() const { return state_->vocabulary.of_text ? 0 : state_->symbols->lacking(); }

std::int32_t Tokenizer::size() const { return std::int32_t(state_->vocabulary.tokens.size()); }

std::optional<std::int32_t> Tokenizer::id_of(std::string_view token) const {
  if (const auto it = state_->id_of_added.find(token); it != state_->id_of_added.end()) return it->second;
  if (const auto it = state_->id_of_token.find(token); it != state_->id_of_token.end()) return it->second;
  return std::nullopt;
}

bool Tokenizer::is_special(std::int32_t id) const {
  return state_->known(id) && state_->added[std::size_t(id)] && state_->added[std::size_t(id)]->special;
}

bool Tokenizer::has(std::int32_t id) const { return state_->known(id); }

namespace {

std::optional<std::int32_t> first_known(const std::unordered_map<std::string_view, std::int32_t>& ids,
                                        std::initializer_list<std::string_view> names) {
  for (const auto name : names)
    if (const auto it = ids.find(name); it != ids.end()) return it->second;
  return std::nullopt;
}

}  // namespace

std::optional<std::int32_t> Tokenizer::eod() const {
  return first_known(state_->id_of_added, {"<|endoftext|>", "<|end_of_text|>", "</s>", "<eos>", "[SEP]"});
}
std::optional<std::int32_t> Tokenizer::pad() const { return first_known(state_->id_of_added, {"<|pad|>", "<pad>", "[PAD]"}); }
std::optional<std::int32_t> Tokenizer::bos() const {
  return first_known(state_->id_of_added, {"<|bos|>", "<|begin_of_text|>", "<s>", "<bos>", "[CLS]"});
}

const Vocabulary& Tokenizer::vocabulary() const { return state_->vocabulary; }

}  // namespace gyr
