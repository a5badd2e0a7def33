// SPDX-License-Identifier: BSD-3-Clause
#include "modules/pass/frame.hpp"

#include <algorithm>

namespace gyr {

Frame::Entry& Frame::add(const void* key, const char* name, RecomputeCost recompute_cost, Phase until) {
  const auto known = std::find_if(entries_.begin(), entries_.end(), [&](const Entry& e) { return e.key == key; });
  if (known == entries_.end()) {
    for (Frame* frame = this; frame && frame->mark_ < 0; frame = frame->outer_) frame->mark_ = arena_->mark();
    return entries_.emplace_back(Entry{key, name, recompute_cost, until});
  }
  ensure(again_ && !known->wanted, "{}: {} is put twice", name_, name);
  ensure(known->state != State::away, "{}: {} is put while it is offloaded", name_, name);
  known->wanted = known->state == State::dropped || (known->state == State::held && known->first > 0);
  if (known->wanted) known->state = State::held;
  return *known;
}

const Frame::Entry& Frame::find(const void* key, const char* name) const {
  const auto found = std::find_if(entries_.begin(), entries_.end(), [&](const Entry& e) { return e.key == key; });
  ensure(found != entries_.end(), "{}: {} is read but was not put", name_, name);
  return *found;
}

const Frame::Entry& Frame::held(const void* key, const char* name) const {
  const Entry& entry = find(key, name);
  ensure(entry.state != State::released, "{}: {} is read but has been released", name_, name);
  ensure(entry.state != State::away, "{}: {} is read while it is offloaded", name_, name);
  ensure(entry.state != State::dropped, "{}: {} is read after it was dropped and before it was put again", name_, name);
  return entry;
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
  if (entry.owned && entry.state == State::held) arena_->give_back(entry.data);
  entry.state = State::released, entry.data = nullptr;
}

void Frame::drop(Entry& entry) {
  arena_->give_back(entry.data);
  entry.state = State::dropped, entry.data = nullptr;
}

void Frame::drop(RecomputeCost most, const void* but) {
  for (Entry& entry : entries_) {
    if (!entry.owned || entry.state != State::held || entry.recompute_cost > most || entry.data == but) continue;
    drop(entry);
  }
  for (const auto& frame : nested_)
    if (frame) frame->drop(most, but);
}

void Frame::again() {
  again_ = true;
  for (Entry& entry : entries_) entry.wanted = false;
  for (const auto& frame : nested_)
    if (frame) frame->again();
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
  mark_ = -1, again_ = false;
  entries_.clear();
  for (const auto& frame : nested_)
    if (frame) frame->forget();
}

bool Frame::empty() const { return mark_ < 0; }

}  // namespace gyr
