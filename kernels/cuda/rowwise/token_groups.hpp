// SPDX-License-Identifier: BSD-3-Clause
// Sorts rows by token for the embedding gradient, so that rows with equal tokens are adjacent, in their original order.
// Each block sorts one bucket: the tokens whose table rows have the same low bits, which spreads frequent tokens over
// blocks. Each block reads all tokens twice, from cache: to count, and to place its own tokens after those of the
// buckets before it.
//   R tokens, V rows of the table on this rank
#pragma once

#include <bit>

#include "kernels/cuda/machine/launch.hpp"
#include "kernels/ops/embedding.hpp"

namespace gyr::cuda {

// Tokens that have a table row on this rank: those in [first, first + rows), except pad_token_id.
struct HeldTokens {
  std::uint32_t first, rows;
  Token pad_token_id;

  GYR_DEVICE std::uint32_t row(Token token) const { return std::uint32_t(token) - first; }
  GYR_DEVICE bool has(Token token) const { return row(token) < rows && token != pad_token_id; }
};

inline constexpr int chunk_rows = 32;  // minimum number of rows per chunk (rows with one token), if the token has several chunks

// One entry of the sorted order: a row, its table row, and the size of the chunk of equal tokens if a chunk begins
// here.
struct TokenPlace {
  int row, table_row;
  int length;  // rows of the chunk that begins here, or 0
  int chunks;  // chunks of the token, if this is its first row, else 0

  // Entry of one of n rows with equal tokens, after `before` others. The last chunk includes the remainder that is too
  // small for its own chunk.
  static GYR_DEVICE TokenPlace of(int row, int table_row, int before, int n) {
    const int chunks = n < 2 * chunk_rows ? 1 : n / chunk_rows, chunk = before / chunk_rows;
    const bool begins = before % chunk_rows == 0 && chunk < chunks;
    return {row, table_row, !begins ? 0 : chunk + 1 < chunks ? chunk_rows : n - before, before == 0 ? chunks : 0};
  }
  static GYR_DEVICE TokenPlace load(const Global<const std::int32_t>& places, Index p) {
    const auto v = places.load_pack<4>(p, 0);
    return {v.at[0], v.at[1], v.at[2], v.at[3]};
  }
  GYR_DEVICE void store(const Global<std::int32_t>& places, Index p) const {
    places.store_pack<4>(p, 0, Pack<std::int32_t, 4>{{row, table_row, length, chunks}});
  }
};

// Partition of the tokens and of the table rows: a power of two of buckets, one block per bucket, and the warps of a
// block.
struct TokenBuckets {
  static constexpr Index most_keys = 1024, most_warps = 16;  // limits: table rows per bucket, and warps per block
  int bits, keys, warps;  // bits: log2 of the number of buckets; keys: table rows per bucket; warps: warps per block

  TokenBuckets(Index tokens, Index rows) {
    const Index buckets = std::max(std::min<Index>(ceil_div(tokens, 64), 256), ceil_div(rows, most_keys));
    bits = int(std::bit_width(std::uint64_t(buckets - 1)));
    keys = int(ceil_div(rows, Index(1) << bits));
    warps = int(std::clamp<Index>(ceil_div(tokens, 256), 1, most_warps));
  }
  Grid grid() const { return {Index(1) << bits, warps * warp_size, ((warps + 2) * keys + warps) * int(sizeof(int))}; }
};

// One block, which sorts the tokens of its bucket. Each warp has a contiguous range of tokens and its own counts.
class BucketOrder {
 public:
  GYR_DEVICE BucketOrder(const Global<const Token>& tokens, const HeldTokens& held, int bits, int keys)
      : tokens_(tokens), held_(held), bits_(bits), keys_(keys), bucket_(std::uint32_t(block_index())) {}

  // Writes the entries of the bucket's tokens. The last block also writes empty entries after those of all held tokens.
  GYR_DEVICE void write(const Global<std::int32_t>& places) const {
    for (int i = thread_index(); i < block_warps() * keys_; i += block_threads()) storage_.store(i, 0);
    sync_block();
    const int before = count(), mine = begin_keys();
    each_step([&](int r, Token token) {
      const bool ours = is_ours(token);
      each_key(ours, token, [&](int at, std::uint32_t equal) {
        const int key = key_of(token), n = storage_.load(size_of(key)), place = storage_.load(at) + bits_of(equal & lower_lanes());
        TokenPlace::of(r, int(held_.row(token)), place, n).store(places, before + storage_.load(begin_of(key)) + place);
      });
    });
    if (block_index() + 1 < grid_blocks()) return;
    for (Index p = before + mine + thread_index(); p < tokens_.columns(); p += block_threads()) TokenPlace{0, 0, 0, 0}.store(places, p);
  }

 private:
  static constexpr int in_flight = 8;  // tokens in flight per lane
  // Shared memory: counts per warp and key, size and first place of each key, and one value per warp.
  GYR_DEVICE int size_of(int key) const { return block_warps() * keys_ + key; }
  GYR_DEVICE int begin_of(int key) const { return (block_warps() + 1) * keys_ + key; }
  GYR_DEVICE int sums() const { return (block_warps() + 2) * keys_; }
  static GYR_DEVICE std::uint32_t lower_lanes() { return (std::uint32_t(1) << lane()) - 1; }

  GYR_DEVICE std::uint32_t bucket_of(Token token) const { return held_.row(token) & ((std::uint32_t(1) << bits_) - 1); }
  GYR_DEVICE int key_of(Token token) const { return int(held_.row(token) >> bits_); }
  GYR_DEVICE bool is_ours(Token token) const { return held_.has(token) && bucket_of(token) == bucket_; }

  // Calls f(r, token) in all lanes for the tokens of the warp, 32 at a time. Lanes beyond the last token get a token
  // that is not held.
  template <class F>
  GYR_DEVICE void each_step(const F& f) const {
    constexpr int step = in_flight * warp_size;
    const int all = int(tokens_.columns()), each = (all + block_warps() * warp_size - 1) / (block_warps() * warp_size) * warp_size;
    const int begin = warp() * each, end = begin + each < all ? begin + each : all;
    for (int first = begin; first < end; first += step) {
      Token token[in_flight];
      GYR_UNROLL
      for (int i = 0; i < in_flight; ++i) {
        const int r = first + i * warp_size + lane();
        token[i] = r < end ? tokens_.load(r) : Token(held_.first - 1);
      }
      GYR_UNROLL
      for (int i = 0; i < in_flight; ++i) f(first + i * warp_size + lane(), token[i]);
    }
  }

  // Lanes with a token of this bucket call f(at, equal): at is the index of the warp's count for their key, equal the
  // mask of lanes with the same key. The count is increased afterwards.
  template <class F>
  GYR_DEVICE void each_key(bool ours, Token token, const F& f) const {
    const std::uint32_t all = ballot(ours);
    if (all == 0) return;
    std::uint32_t equal = all;
    const int key = ours ? key_of(token) : 0, at = warp() * keys_ + key;
    for (int bit = 1; bit < keys_; bit *= 2) {
      const std::uint32_t set = ballot((key & bit) != 0);
      equal &= key & bit ? set : ~set;
    }
    if (ours) f(at, equal);
    sync_warp();
    if (ours && lowest_bit(equal) == lane()) storage_.store(at, storage_.load(at) + bits_of(equal));
    sync_warp();
  }

  // Counts the keys of this bucket. Returns the number of tokens in the buckets before it.
  GYR_DEVICE int count() const {
    int before = 0;
    each_step([&](int, Token token) {
      const bool held = held_.has(token);
      const std::uint32_t bucket = bucket_of(token);
      before += held && bucket < bucket_;
      each_key(held && bucket == bucket_, token, [](int, std::uint32_t) {});
    });
    return block_sum(before, Shared<int>(sums() * int(sizeof(int))));
  }

  // Replaces the counts by exclusive prefix sums, per key over the warps and over the keys. Returns the number of
  // tokens in the bucket.
  GYR_DEVICE int begin_keys() const {
    int all = 0;
    for (int first = 0; first < keys_; first += block_threads()) {
      const int key = first + thread_index();
      int n = 0;
      if (key < keys_)
        for (int w = 0; w < block_warps(); ++w) {
          const int of_warp = storage_.load(w * keys_ + key);
          storage_.store(w * keys_ + key, n);
          n += of_warp;
        }
      const int to_here = sum_up_to_lane(n);
      if (lane() == warp_size - 1) storage_.store(sums() + warp(), to_here);
      sync_block();
      int before = all;
      for (int w = 0; w < block_warps(); ++w) {
        const int of_warp = storage_.load(sums() + w);
        if (w < warp()) before += of_warp;
        all += of_warp;
      }
      if (key < keys_) storage_.store(size_of(key), n), storage_.store(begin_of(key), before + to_here - n);
      sync_block();
    }
    return all;
  }

  Shared<int> storage_;
  Global<const Token> tokens_;
  HeldTokens held_;
  int bits_, keys_;
  std::uint32_t bucket_;
};

}  // namespace gyr::cuda
