// SPDX-License-Identifier: BSD-3-Clause
// Memory is a stack per category, taken once: push returns the next piece, release gives back everything above a mark.
// A dry-run arena owns no memory and only counts, which is how a plan learns the bytes of a rank before they are taken.
#pragma once

#include <memory>
#include <string_view>

#include "kernels/tensor.hpp"

namespace gyr {

enum class Memory { weights, gradients, optimizer, activations, scratch, communication };
inline constexpr int memory_categories = 6;
std::string_view name_of(Memory category);

class Arena {
 public:
  // Takes `bytes` of device memory now; fails with Exit::device where there is less.
  Arena(Memory category, Index bytes);
  // Owns nothing and counts without limit.
  static Arena dry_run(Memory category);
  // An arena of the same kind (dry run or not) as asked for.
  static Arena make(Memory category, Index bytes, bool dry_run) { return dry_run ? Arena::dry_run(category) : Arena(category, bytes); }

  Arena(Arena&&) noexcept = default;
  Arena& operator=(Arena&&) noexcept = default;

  // The next bytes of the stack, aligned to 256; an internal error where the capacity is exceeded.
  void* push(Index bytes);
  template <class T>
  Tensor1<T> tensor(Index a) {
    return Tensor1<T>(room<T>(a), a);
  }
  template <class T>
  Tensor2<T> tensor(Index a, Index b) {
    return Tensor2<T>(room<T>(a * b), a, b);
  }
  template <class T>
  Tensor3<T> tensor(Index a, Index b, Index c) {
    return Tensor3<T>(room<T>(a * b * c), a, b, c);
  }
  template <class T>
  Tensor4<T> tensor(Index a, Index b, Index c, Index d) {
    return Tensor4<T>(room<T>(a * b * c * d), a, b, c, d);
  }

  Index mark() const { return used_; }
  void release(Index mark);

  Memory category() const { return category_; }
  Index used() const { return used_; }
  Index capacity() const { return capacity_; }
  Index high_water() const { return high_water_; }

 private:
  struct Free {
    void operator()(void* p) const;
  };
  explicit Arena(Memory category) : category_(category) {}
  template <class T>
  T* room(Index count) {
    return static_cast<T*>(push(count * Index(sizeof(T))));
  }

  Memory category_;
  std::unique_ptr<void, Free> memory_;
  char* base_ = nullptr;
  Index capacity_ = 0, used_ = 0, high_water_ = 0;
};

// Gives back on leaving a block all that was pushed inside it.
class Scope {
 public:
  explicit Scope(Arena& arena) : arena_(arena), mark_(arena.mark()) {}
  ~Scope() { arena_.release(mark_); }
  Scope(const Scope&) = delete;
  Scope& operator=(const Scope&) = delete;

 private:
  Arena& arena_;
  Index mark_;
};

}  // namespace gyr
