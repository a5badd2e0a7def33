// SPDX-License-Identifier: BSD-3-Clause
// Trains a byte-level BPE tokenizer. Pieces are counted once. Each merge then updates only the distinct pieces that
// contain its pair. A lazily corrected heap gives the most frequent pair.
#include "src/data/tokenizer_training.hpp"

#include <xxhash.h>

#include <algorithm>
#include <array>
#include <queue>
#include <unordered_map>
#include <utility>

#include "kernels/base/error.hpp"
#include "src/tokenizer/pair_map.hpp"
#include "src/tokenizer/utf8.hpp"

namespace gyr {
namespace {

// Longer pieces, such as a megabyte without a space, are counted in blocks of this size, so that merges stay cheap.
constexpr std::size_t max_piece_bytes = 1024;
constexpr std::int64_t max_vocab_size = std::int64_t(1) << 24;

struct PieceHash {
  using is_transparent = void;
  std::size_t operator()(std::string_view piece) const { return XXH3_64bits(piece.data(), piece.size()); }
};
using PieceCounts = std::unordered_map<std::string, std::int64_t, PieceHash, std::equal_to<>>;

void check(const TrainerOptions& options) {
  const auto smallest = std::int64_t(options.specials.size()) + 256;
  require(options.vocab_size >= smallest && options.vocab_size <= max_vocab_size, Exit::config,
          "vocabulary size {} is out of range: {} special tokens and 256 bytes need at least {}, and the maximum is {}", options.vocab_size,
          options.specials.size(), smallest, max_vocab_size);
  require(options.min_frequency >= 1, Exit::config, "min_frequency is {}; it must be at least 1", options.min_frequency);
  require(options.max_token_bytes >= 2, Exit::config, "max_token_bytes is {}; it must be at least 2", options.max_token_bytes);
}

PieceCounts count_pieces(std::span<const std::filesystem::path> files, const TrainerOptions& options, const Vocabulary& start,
                         const TrainerProgress& progress) {
  const Splitter splitter(start.split);
  Splitter::Scratch scratch;
  PieceCounts counts;
  const auto count = [&](std::string_view piece) {
    if (const auto it = counts.find(piece); it != counts.end()) {
      ++it->second;
    } else {
      counts.emplace(piece, 1);
    }
  };
  const auto count_blocks = [&](std::string_view piece) {
    for (std::size_t at = 0; at < piece.size(); at += max_piece_bytes) count(piece.substr(at, max_piece_bytes));
  };
  const auto read = [&](const Fragment& fragment) {
    // Bytes that are not UTF-8 are separate pieces, as in Tokenizer::encode.
    for (std::string_view text = fragment.text; !text.empty();) {
      const std::size_t valid = valid_utf8_prefix(text);
      splitter.split(text.substr(0, valid), scratch);
      for (const auto& piece : scratch.pieces) count_blocks(text.substr(piece.begin, piece.end - piece.begin));
      text.remove_prefix(valid);
      const std::size_t invalid = invalid_utf8_prefix(text);
      count_blocks(text.substr(0, invalid));
      text.remove_prefix(invalid);
    }
  };
  std::int64_t total = 0, done = 0;
  for (const auto& path : files) total += DocumentFile(path, options.format).stored();
  for (const auto& path : files) {
    DocumentFile file(path, options.format);
    for (std::int64_t block = 0; block < file.blocks(); ++block) {
      file.visit(block, block + 1, read);
      if (progress) progress("reading", std::min(total, done + file.stored() * (block + 1) / file.blocks()), total);
    }
    done += file.stored();
  }
  return counts;
}

class Trainer {
 public:
  Trainer(const PieceCounts& counts, Vocabulary start, const TrainerOptions& options) : vocabulary_(std::move(start)), options_(options) {
    for (std::size_t id = options.specials.size(); id < vocabulary_.tokens.size(); ++id) {
      const std::string& byte = *vocabulary_.tokens[id];
      id_of_byte_[static_cast<unsigned char>(byte[0])] = std::int32_t(id);
      id_of_token_[byte] = std::int32_t(id);
    }
    for (const auto& [piece, count] : counts) add_word(piece, count);
    for (std::size_t pair = 0; pair < pairs_.size(); ++pair) offer(std::uint32_t(pair));
    touched_.clear();
  }

  Vocabulary run(const TrainerProgress& progress) {
    while (std::int64_t(vocabulary_.tokens.size()) < options_.vocab_size && !heap_.empty()) {
      const Candidate best = heap_.top();
      heap_.pop();
      if (best.count != pairs_[best.pair].count) {  // the count has changed since this entry was pushed
        offer(best.pair);
        continue;
      }
      if (best.count < options_.min_frequency) break;
      if (length_of(best.left) + length_of(best.right) > options_.max_token_bytes) continue;
      merge(best.pair);
      if (progress && vocabulary_.merges.size() % 256 == 0) report(progress);
    }
    if (progress) report(progress);
    return std::move(vocabulary_);
  }

 private:
  struct Word {
    std::size_t begin;  // index of the first symbol in symbols_
    std::uint32_t length;
    std::int64_t count;
  };
  struct Pair {
    std::int32_t left, right;
    std::int32_t result = -1;  // id of the merged token; -1 before the merge
    std::int64_t count = 0;
    std::vector<std::uint32_t> words;  // words that contain the pair, and some that no longer do
  };
  struct Candidate {
    std::int64_t count;
    std::int32_t left, right;
    std::uint32_t pair;
    bool operator<(const Candidate& other) const {  // order of the max-heap: largest count, then smallest ids
      if (count != other.count) return count < other.count;
      return std::pair(left, right) > std::pair(other.left, other.right);
    }
  };

  void report(const TrainerProgress& progress) const { progress("merging", std::int64_t(vocabulary_.tokens.size()), options_.vocab_size); }

  std::int64_t length_of(std::int32_t id) const { return std::int64_t(vocabulary_.tokens[std::size_t(id)]->size()); }

  void add_word(const std::string& piece, std::int64_t count) {
    const auto word = std::uint32_t(words_.size());
    words_.push_back({symbols_.size(), std::uint32_t(piece.size()), count});
    for (const char c : piece) symbols_.push_back(id_of_byte_[static_cast<unsigned char>(c)]);
    const std::int32_t* s = &symbols_[words_.back().begin];
    for (std::size_t i = 0; i + 1 < piece.size(); ++i) add(s[i], s[i + 1], count, word);
  }

  void add(std::int32_t left, std::int32_t right, std::int64_t count, std::uint32_t word) {
    const auto [index, fresh] = index_of_.insert(left, right, std::uint32_t(pairs_.size()));
    if (fresh) pairs_.push_back({left, right, -1, 0, {}});
    Pair& pair = pairs_[index];
    pair.count += count;
    if (pair.words.empty() || pair.words.back() != word) pair.words.push_back(word);
    touched_.push_back(index);
  }

  void remove(std::int32_t left, std::int32_t right, std::int64_t count) { pairs_[index_of_.find(left, right)].count -= count; }

  void offer(std::uint32_t index) {
    const Pair& pair = pairs_[index];
    if (pair.count > 0) heap_.push({pair.count, pair.left, pair.right, index});
  }

  // Two pairs may give the same bytes ("ab" "c" and "a" "bc"); they share one token. A merged pair can therefore occur
  // again when its left or right token is produced in a second way. Its merge is then already in the list.
  std::int32_t result_of(std::uint32_t index) {
    Pair& pair = pairs_[index];
    if (pair.result >= 0) return pair.result;
    const std::string bytes = *vocabulary_.tokens[std::size_t(pair.left)] + *vocabulary_.tokens[std::size_t(pair.right)];
    const auto [it, fresh] = id_of_token_.emplace(bytes, std::int32_t(vocabulary_.tokens.size()));
    if (fresh) vocabulary_.tokens.emplace_back(bytes);
    pair.result = it->second;
    vocabulary_.merges.push_back({pair.left, pair.right, pair.result});
    return pair.result;
  }

  void merge(std::uint32_t index) {
    const std::int32_t result = result_of(index);
    const std::int32_t left = pairs_[index].left, right = pairs_[index].right;
    const std::vector<std::uint32_t> words = std::exchange(pairs_[index].words, {});
    for (const std::uint32_t word : words) merge_in(word, left, right, result);
    std::sort(touched_.begin(), touched_.end());
    touched_.erase(std::unique(touched_.begin(), touched_.end()), touched_.end());
    for (const std::uint32_t pair : touched_) offer(pair);
    touched_.clear();
  }

  // Merges every (left, right) in a word, from left to right, and updates the counts of the adjacent pairs.
  void merge_in(std::uint32_t word, std::int32_t left, std::int32_t right, std::int32_t result) {
    Word& w = words_[word];
    std::int32_t* s = &symbols_[w.begin];
    std::uint32_t kept = 0;
    for (std::uint32_t i = 0; i < w.length; ++i) {
      if (i + 1 == w.length || s[i] != left || s[i + 1] != right) {
        s[kept++] = s[i];
        continue;
      }
      remove(left, right, w.count);
      if (kept > 0) {
        remove(s[kept - 1], left, w.count);
        add(s[kept - 1], result, w.count, word);
      }
      if (i + 2 < w.length) {
        remove(right, s[i + 2], w.count);
        add(result, s[i + 2], w.count, word);
      }
      s[kept++] = result;
      ++i;
    }
    w.length = kept;
  }

  Vocabulary vocabulary_;
  const TrainerOptions& options_;
  std::array<std::int32_t, 256> id_of_byte_{};
  std::unordered_map<std::string, std::int32_t> id_of_token_;
  std::vector<Word> words_;
  std::vector<std::int32_t> symbols_;
  std::vector<Pair> pairs_;
  PairMap index_of_;
  std::priority_queue<Candidate> heap_;
  std::vector<std::uint32_t> touched_;  // pairs whose count was raised since the last merge
};

}  // namespace

Tokenizer train_tokenizer(std::span<const std::filesystem::path> files, const TrainerOptions& options, const TrainerProgress& progress) {
  check(options);
  Vocabulary start = byte_vocabulary(options.specials);
  const PieceCounts counts = count_pieces(files, options, start, progress);
  require(!counts.empty(), Exit::data, "the {} files hold no text to learn from", files.size());
  return Tokenizer(Trainer(counts, std::move(start), options).run(progress));
}

}  // namespace gyr
