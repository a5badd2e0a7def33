// SPDX-License-Identifier: BSD-3-Clause
#include "kernels/device/arena.hpp"

#include <algorithm>
#include <limits>
#include <utility>

#include "kernels/base/poison.hpp"
#include "kernels/device/queue.hpp"

namespace gyr {

namespace {
constexpr Index alignment = 256;
Index aligned(Index bytes) { return (bytes + alignment - 1) / alignment * alignment; }
}  // namespace

std::string_view name_of(Memory category) {
  switch (category) {
    case Memory::weights: return "weights";
    case Memory::gradients: return "gradients";
    case Memory::optimizer: return "optimizer";
    case Memory::activations: return "activations";
    case Memory::scratch: return "scratch";
  }
  return "";
}

void Arena::Free::operator()(void* p) const { backend::return_memory(p); }

Arena::Arena(Memory category, Index bytes) : category_(category), real_(true), capacity_(aligned(bytes)) {
  if (bytes == 0) return;
  memory_.reset(backend::take_memory(capacity_ + alignment));
  if (!memory_)
    fail(Exit::device, "out of memory: {:.1f} MiB for {} cannot be allocated; use more ranks, a smaller micro-batch or a smaller model",
         double(bytes) / (1 << 20), name_of(category));
  base_ = reinterpret_cast<char*>(aligned(reinterpret_cast<std::intptr_t>(memory_.get())));
  forbid(base_, capacity_);
}

Arena Arena::dry_run(Memory category) {
  Arena arena(category);
  arena.base_ = reinterpret_cast<char*>(alignment);  // never dereferenced: kernels do not run on a dry-run device
  arena.capacity_ = std::numeric_limits<Index>::max() / 2;
  return arena;
}

Arena Arena::part(Memory category, Index offset, Index bytes) const {
  if (!real_) return dry_run(category);
  ensure(offset >= 0 && offset + bytes <= capacity_, "{} bytes at offset {} exceed an arena of {} bytes", bytes, offset, capacity_);
  Arena arena(category);
  arena.real_ = true, arena.base_ = base_ + offset, arena.capacity_ = bytes;
  return arena;
}

void* Arena::push(Index bytes) {
  if (on_tape()) return pieces_.emplace_back(tape_->take(name_, bytes));
  const Index next = used_ + aligned(bytes);
  ensure(bytes >= 0 && next <= capacity_, "{}: the {} arena has {} bytes, too few for {} more after {} in use", name_, name_of(category_), capacity_,
         bytes, used_);
  char* piece = base_ + used_;
  if (real_) allow(piece, bytes);
  used_ = next;
  high_water_ = std::max(high_water_, used_);
  return piece;
}

void Arena::release(Index mark) {
  if (on_tape()) {
    for (; Index(pieces_.size()) > mark; pieces_.pop_back()) tape_->give_back(pieces_.back());
    return;
  }
  if (real_) forbid(base_ + mark, used_ - mark);
  used_ = mark;
}

void Arena::give_back(const void* piece) {
  if (!on_tape()) return;
  const auto found = std::find(pieces_.rbegin(), pieces_.rend(), piece);
  ensure(found != pieces_.rend(), "a piece of {} memory is freed that was not allocated", name_of(category_));
  pieces_.erase(std::next(found).base());
  tape_->give_back(piece);
}

Workspace::Workspace(Arena& scratch, const char* kernel) : arena_(scratch), outermost_(scratch.on_tape()) {
  if (!outermost_) {
    mark_ = arena_.mark();
    return;
  }
  const Tape::Slot slot = arena_.tape_->open(kernel);
  base_ = std::exchange(arena_.base_, slot.base), capacity_ = std::exchange(arena_.capacity_, slot.bytes);
  used_ = std::exchange(arena_.used_, 0), high_water_ = std::exchange(arena_.high_water_, 0);
  name_ = std::exchange(arena_.name_, kernel);
  arena_.in_workspace_ = true;
}

Workspace::~Workspace() {
  arena_.release(mark_);
  if (!outermost_) return;
  arena_.in_workspace_ = false;
  arena_.tape_->close(arena_.high_water_);
  arena_.base_ = base_, arena_.capacity_ = capacity_, arena_.used_ = used_, arena_.high_water_ = high_water_, arena_.name_ = name_;
}

}  // namespace gyr
