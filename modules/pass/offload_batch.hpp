// SPDX-License-Identifier: BSD-3-Clause
// Tensors of frames that leave their memory together and come back to other places: what a layer has kept and does not need soon. Where they are
// meanwhile is somebody else's.
//   cargo.load(frame, share, output);    behind a forward: copies of each item's bytes are made
//   cargo.leave();                       the copies are there: the memory serves others
//   cargo.reallocate();                   memory again, into which each item's bytes are copied
//   cargo.settle(frame);                 what in the frame referred to them finds them
#pragma once

#include "modules/pass/frame.hpp"

namespace gyr {

class OffloadBatch {
 public:
  struct Item {
    void* data;   // where it lies, or lay
    Index bytes;  // of it that are carried: all, or those of its first rows
  };

  // The one tensor that lies there, of this frame or a nested one.
  void load(Frame&, const void* data);
  // All that the frame and nested ones hold, but what lies at `but`. Of tensors whose rows may be made apart only the first are carried, the share
  // `share` of them in whole blocks of row_block, and the others are for a second forward to make.
  void load(Frame&, double share, const void* but);
  void leave();
  void reallocate();
  // Tensors of the frame and of nested ones that are parts of what has come back, or the same.
  void settle(Frame&) const;
  // Where what lay there lies now.
  void* moved(void* data) const;

  // In the order of loading.
  std::vector<Item> items() const;
  // Whether there is something for a second forward to make.
  bool needs_forward() const { return needs_forward_; }

  // Products begin at one of its multiples, where rows lie aligned.
  static constexpr Index row_block = 64;

 private:
  struct Carried {
    Frame* frame;
    std::size_t entry;  // of the frame
    Index bytes;
    void* from = nullptr;
  };
  static Frame::Entry& entry_of(const Carried& c) { return c.frame->entries_[c.entry]; }
  bool load_at(Frame&, const void* data);

  std::vector<Carried> carried_;
  bool needs_forward_ = false;
};

}  // namespace gyr
