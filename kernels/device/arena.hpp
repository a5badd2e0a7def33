// SPDX-License-Identifier: BSD-3-Clause
// Memory arenas, one stack per category, allocated once: push returns the next piece, release frees all pieces above a mark.
// A dry-run arena owns no memory and only counts bytes, so that a plan knows the memory of a rank before it is allocated.
// An arena that follows a tape (tape.hpp: a recorded sequence of allocations) is not a stack: the plan of the tape
// places each piece, and a piece is freed when it is no longer needed.
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
  // Allocates `bytes` of device memory now; fails with Exit::device if they are not available.
  Arena(Memory category, Index bytes);
  // Dry-run arena: owns no memory and counts without limit.
  static Arena dry_run(Memory category);
  // Dry-run arena if `dry_run` is set, otherwise an arena of `bytes`.
  static Arena make(Memory category, Index bytes, bool dry_run) { return dry_run ? Arena::dry_run(category) : Arena(category, bytes); }

  // A stack in a part of this arena's memory. This arena must outlive it, and nothing else may allocate that part
  // meanwhile. A dry-run arena returns a new dry-run arena.
  Arena part(Memory category, Index offset, Index bytes) const;

  Arena(Arena&&) noexcept = default;
  Arena& operator=(Arena&&) noexcept = default;

  // Later allocations come from this tape, or from the stack again if `tape` is null.
  void follow(Tape* tape) { tape_ = tape; }
  // Sets the name of the pieces that are allocated next, for messages.
  Arena& named(const char* name) {
    name_ = name;
    return *this;
  }

  // Returns the next bytes of the stack, aligned to 256; an internal error if the capacity is exceeded. On a tape: the
  // piece that the rehearsal planned.
  void* push(Index bytes);
  template <class T>
  Tensor1<T> tensor(Index a) {
    return Tensor1<T>(reserve<T>(a), a);
  }
  template <class T>
  Tensor2<T> tensor(Index a, Index b) {
    return Tensor2<T>(reserve<T>(a * b), a, b);
  }
  template <class T>
  Tensor3<T> tensor(Index a, Index b, Index c) {
    return Tensor3<T>(reserve<T>(a * b * c), a, b, c);
  }
  template <class T>
  Tensor4<T> tensor(Index a, Index b, Index c, Index d) {
    return Tensor4<T>(reserve<T>(a * b * c * d), a, b, c, d);
  }

  Index mark() const { return on_tape() ? Index(pieces_.size()) : used_; }
  void release(Index mark);
  // On a tape, the memory of this piece may be reused from now on. A stack keeps the piece until release() of a mark
  // below it.
  void give_back(const void* piece);

  Memory category() const { return category_; }
  Index used() const { return used_; }
  Index capacity() const { return capacity_; }
  Index high_water() const { return high_water_; }
  // First byte of the arena; must not be dereferenced in a dry run.
  char* begin() const { return base_; }

 private:
  friend class Workspace;
  struct Free {
    void operator()(void* p) const;
  };
  explicit Arena(Memory category) : category_(category) {}
  template <class T>
  T* reserve(Index count) {
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
  std::vector<void*> pieces_;  // pieces allocated on the tape, in order of allocation
};

// Frees, at the end of a C++ block, everything that was allocated from the arena inside the block.
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

// Scratch memory of a kernel, a stack that is freed at the end of the C++ block. On a tape it is one piece, as large as
// the stack grew in the rehearsal, because the allocations of a kernel may depend on the packed documents and on loop
// counts. A workspace inside another workspace is a scope of the outer one.
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
  char* base_ = nullptr;  // saved state of the arena, restored at the end of the workspace
  Index capacity_ = 0, used_ = 0, high_water_ = 0;
  const char* name_ = nullptr;
};

}  // namespace gyr
