// SPDX-License-Identifier: BSD-3-Clause
// Memory is a stack per category, taken once: push returns the next piece, release gives back everything above a mark.
// A dry-run arena owns no memory and only counts, which is how a plan learns the bytes of a rank before they are taken.
// While an arena follows a tape it is no stack: each piece lies where the plan of the tape says, and is given back when it is needed no more.
#pragma once

#include <memory>
#include <string_view>
#include <vector>

#include "kernels/base/tensor.hpp"
#include "kernels/device/tape.hpp"

namespace gyr {

enum class Memory { weights, gradients, optimizer, activations, scratch };
inline constexpr int memory_categories = 5;
std::string_view name_of(Memory category);

class Arena {
 public:
  // Takes `bytes` of device memory now; fails with Exit::device where there is less.
  Arena(Memory category, Index bytes);
  // Owns nothing and counts without limit.
  static Arena dry_run(Memory category);
  // An arena of the same kind (dry run or not) as asked for.
  static Arena make(Memory category, Index bytes, bool dry_run) { return dry_run ? Arena::dry_run(category) : Arena(category, bytes); }

  // A stack in a part of this arena's memory, which must stay; nothing else may take it at the same time. Of a dry run: another one.
  Arena part(Memory category, Index offset, Index bytes) const;

  Arena(Arena&&) noexcept = default;
  Arena& operator=(Arena&&) noexcept = default;

  // What comes next is for a tape, or, null, for the stack again.
  void follow(Tape* tape) { tape_ = tape; }
  // The name of the pieces that follow, for messages.
  Arena& named(const char* name) {
    name_ = name;
    return *this;
  }

  // The next bytes of the stack, aligned to 256; an internal error where the capacity is exceeded. On a tape: as rehearsed.
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

  Index mark() const { return on_tape() ? Index(pieces_.size()) : used_; }
  void release(Index mark);
  // On a tape this piece may lie under others from now on; a stack keeps it until the release of what lies below.
  void give_back(const void* piece);

  Memory category() const { return category_; }
  Index used() const { return used_; }
  Index capacity() const { return capacity_; }
  Index high_water() const { return high_water_; }
  // The first of its bytes; not to be followed in a dry run.
  char* begin() const { return base_; }

 private:
  friend class Workspace;
  struct Free {
    void operator()(void* p) const;
  };
  explicit Arena(Memory category) : category_(category) {}
  template <class T>
  T* room(Index count) {
    return static_cast<T*>(push(count * Index(sizeof(T))));
  }

  bool on_tape() const { return tape_ && !in_workspace_; }

  Memory category_;
  std::unique_ptr<void, Free> memory_;
  bool real_ = false;
  char* base_ = nullptr;
  Index capacity_ = 0, used_ = 0, high_water_ = 0;
  const char* name_ = "a tensor";
  Tape* tape_ = nullptr;
  bool in_workspace_ = false;
  std::vector<void*> pieces_;  // of the tape, in the order in which they were taken
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

// The scratch memory of a kernel until the end of a block: a stack. On a tape it is one piece, as large as the stack grew in the rehearsal:
// what a kernel takes inside may depend on the documents and on how often it goes round. Within another it is a scope of that.
class Workspace {
 public:
  Workspace(Arena& scratch, const char* kernel);
  ~Workspace();
  Workspace(const Workspace&) = delete;
  Workspace& operator=(const Workspace&) = delete;

 private:
  Arena& arena_;
  bool outermost_;
  Index mark_ = 0;
  char* base_ = nullptr;  // of the arena without a tape
  Index capacity_ = 0, used_ = 0, high_water_ = 0;
  const char* name_ = nullptr;
};

}  // namespace gyr
