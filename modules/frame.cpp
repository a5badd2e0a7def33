// SPDX-License-Identifier: BSD-3-Clause
#include "modules/frame.hpp"

#include <algorithm>

namespace gyr {

Frame::Entry& Frame::add(const void* key, const char* name, Phase until) {
  const bool known = std::any_of(entries_.begin(), entries_.end(), [&](const Entry& e) { return e.key == key; });
  ensure(!known, "{}: {} is put twice", name_, name);
  for (Frame* frame = this; frame && frame->mark_ < 0; frame = frame->outer_) frame->mark_ = arena_->mark();
  return entries_.emplace_back(Entry{key, name, until});
}

const Frame::Entry& Frame::find(const void* key, const char* name) const {
  const auto found = std::find_if(entries_.begin(), entries_.end(), [&](const Entry& e) { return e.key == key; });
  ensure(found != entries_.end(), "{}: {} is asked for and was not put", name_, name);
  ensure(!found->released, "{}: {} is asked for and has been released", name_, name);
  return *found;
}

Frame& Frame::nested(int i, const char* name) {
  while (int(nested_.size()) <= i) nested_.emplace_back();
  if (!nested_[i]) {
    nested_[i] = std::make_unique<Frame>(*arena_, fmt::format("{}/{} {}", name_, name, i));
    nested_[i]->outer_ = this;
  }
  return *nested_[i];
}

void Frame::release(Entry& entry) {
  if (entry.owned && !entry.released) arena_->give_back(entry.data);
  entry.released = true;
}

void Frame::release(Phase phase) {
  for (Entry& entry : entries_)
    if (entry.until <= phase) release(entry);
  for (const auto& frame : nested_)
    if (frame) frame->release(phase);
}

void Frame::release(const void* data) {
  for (Entry& entry : entries_)
    if (entry.owned && entry.data == data) release(entry);
  for (const auto& frame : nested_)
    if (frame) frame->release(data);
}

void Frame::clear() {
  if (mark_ >= 0) arena_->release(mark_);
  forget();
}

void Frame::forget() {
  mark_ = -1;
  entries_.clear();
  for (const auto& frame : nested_)
    if (frame) frame->forget();
}

bool Frame::empty() const { return mark_ < 0; }

}  // namespace gyr
