// SPDX-License-Identifier: BSD-3-Clause
// Offloading of saved activations: tensors of frames are copied elsewhere, their memory is freed, and later they return to other addresses. The
// caller copies the bytes and decides where they are kept (host memory, for example).
//   batch.load(frame, fraction, output); after a forward: selects the tensors; the caller copies the bytes of items()
//   batch.leave();                       after these copies have completed: frees the memory
//   batch.reallocate();                   allocates memory again; the caller copies the bytes of items() back
//   batch.restore(frame);                updates pointers to the tensors that have moved
#pragma once

#include "modules/pass/frame.hpp"

namespace gyr {

class OffloadBatch {
 public:
  struct Item {
    void* data;   // address of the tensor; after leave() its old address
    Index bytes;  // bytes to copy: the full tensor, or its first rows
  };

  // Selects the one tensor at this address, in this frame or a nested one.
  void load(Frame&, const void* data);
  // Selects all tensors that the frame and nested frames hold, except the one at `but`. Of a tensor whose rows can be
  // recomputed independently, only the first rows are offloaded: `fraction` of them, rounded down to a multiple of
  // row_block. A second forward recomputes the other rows.
  void load(Frame&, double fraction, const void* but);
  void leave();
  void reallocate();
  // Updates tensors of the frame and of nested frames that refer to an offloaded tensor or a part of it.
  void restore(Frame&) const;
  // New address of data that was at this address before the offload. Addresses of other data are returned unchanged.
  void* moved(void* data) const;

  // The selected tensors, in the order of loading.
  std::vector<Item> items() const;
  // True if a second forward has to recompute rows.
  bool needs_forward() const { return needs_forward_; }

  // Recomputed rows start at a multiple of this, so that the rows of a GEMM are aligned.
  static constexpr Index row_block = 64;

 private:
  struct Carried {
    Frame* frame;
    std::size_t entry;  // index in the frame's entries
    Index bytes;
    void* from = nullptr;
  };
  static Frame::Entry& entry_of(const Carried& c) { return c.frame->entries_[c.entry]; }
  bool load_at(Frame&, const void* data);

  std::vector<Carried> carried_;
  bool needs_forward_ = false;
};

}  // namespace gyr
