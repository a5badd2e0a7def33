// SPDX-License-Identifier: BSD-3-Clause
#include "modules/pass/offload_batch.hpp"

namespace gyr {

bool OffloadBatch::load_at(Frame& frame, const void* data) {
  for (std::size_t i = 0; i < frame.entries_.size(); ++i) {
    const Frame::Entry& entry = frame.entries_[i];
    if (!entry.owned || entry.state != Frame::State::held || entry.data != data) continue;
    carried_.push_back({&frame, i, entry.bytes(), entry.data});
    return true;
  }
  return std::any_of(frame.nested_.begin(), frame.nested_.end(), [&](const auto& nested) { return nested && load_at(*nested, data); });
}

void OffloadBatch::load(Frame& frame, const void* data) {
  ensure(load_at(frame, data), "{}: no saved tensor has the address that is to be offloaded", frame.name_);
}

void OffloadBatch::load(Frame& frame, double fraction, const void* but) {
  for (std::size_t i = 0; i < frame.entries_.size(); ++i) {
    Frame::Entry& entry = frame.entries_[i];
    if (!entry.owned || entry.state != Frame::State::held || entry.data == but || entry.bytes() == 0) continue;
    if (entry.recompute_cost == RecomputeCost::never) continue;
    Index rows = entry.extents[0];
    if (entry.rows == RowSplit::split && fraction < 1) {
      rows = Index(double(rows) * fraction) / row_block * row_block;
      entry.first = rows;
      needs_forward_ = true;
    }
    if (rows == 0) frame.drop(entry);
    else carried_.push_back({&frame, i, rows * entry.row_bytes, entry.data});
  }
  for (const auto& nested : frame.nested_)
    if (nested) load(*nested, fraction, but);
}

void OffloadBatch::leave() {
  for (const Carried& c : carried_) {
    c.frame->arena_->give_back(entry_of(c).data);
    entry_of(c).state = Frame::State::away;
  }
}

void OffloadBatch::reallocate() {
  for (const Carried& c : carried_) {
    Frame::Entry& entry = entry_of(c);
    entry.data = c.frame->arena_->named(entry.name).tensor<std::byte>(entry.bytes()).data();
    entry.state = Frame::State::held;
  }
}

void OffloadBatch::restore(Frame& frame) const {
  for (Frame::Entry& entry : frame.entries_)
    if (!entry.owned && entry.data) entry.data = moved(entry.data);
  for (const auto& nested : frame.nested_)
    if (nested) restore(*nested);
}

void* OffloadBatch::moved(void* data) const {
  for (const Carried& c : carried_) {
    const auto offset = static_cast<char*>(data) - static_cast<char*>(c.from);
    if (offset >= 0 && offset < entry_of(c).bytes()) return static_cast<char*>(entry_of(c).data) + offset;
  }
  return data;
}

std::vector<OffloadBatch::Item> OffloadBatch::items() const {
  std::vector<Item> list;
  for (const Carried& c : carried_) list.push_back({entry_of(c).data, c.bytes});
  return list;
}

}  // namespace gyr
