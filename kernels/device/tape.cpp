// SPDX-License-Identifier: BSD-3-Clause
#include "kernels/device/tape.hpp"

#include <algorithm>
#include <limits>
#include <utility>

#include "kernels/base/error.hpp"
#include "kernels/base/poison.hpp"

namespace gyr {

namespace {
constexpr Index alignment = 256;
Index aligned(Index bytes) { return (std::max<Index>(bytes, 1) + alignment - 1) / alignment * alignment; }
}  // namespace

void Script::join(const Script& other) {
  ensure(other.requests.size() == requests.size() && other.blocks.size() == blocks.size(),
         "a micro-batch makes {} memory requests, but another one of the same chunk makes {}", requests.size(), other.requests.size());
  for (std::size_t i = 0; i < requests.size(); ++i) {
    Request& mine = requests[i];
    const Request& its = other.requests[i];
    ensure(mine.name == its.name && mine.block == its.block && (mine.workspace || mine.bytes == its.bytes),
           "{} of {} bytes is requested where another micro-batch of the same chunk requests {} of {} bytes", its.name, its.bytes, mine.name,
           mine.bytes);
    mine.bytes = std::max(mine.bytes, its.bytes);
  }
  for (std::size_t b = 0; b < blocks.size(); ++b) {
    ensure(blocks[b].first == other.blocks[b].first && blocks[b].last == other.blocks[b].last,
           "block {} of a micro-batch is alive from {} to {}, but from {} to {} in another one of the same chunk", b, blocks[b].first, blocks[b].last,
           other.blocks[b].first, other.blocks[b].last);
    blocks[b].bytes = std::max(blocks[b].bytes, other.blocks[b].bytes);
    blocks[b].lasting = blocks[b].lasting || other.blocks[b].lasting;
  }
}

template <class S>
Index Tape::choose(Index count, const std::vector<std::shared_ptr<S>>& rooms, std::shared_ptr<S>& chosen) {
  const auto room = std::find_if(rooms.begin(), rooms.end(), [&](const auto& r) { return r->capacity < 0 || r->capacity >= count; });
  require(room != rooms.end(), Exit::data,
          "a micro-batch has {} {}, but memory is planned for at most {}; use "
          "fewer or smaller ones in a micro-batch",
          count, rooms.back()->input, rooms.back()->capacity);
  chosen = *room;
  return chosen->capacity < 0 ? count : chosen->capacity;
}

Index Tape::enter(Index count) {
  ensure(next_ == 0 && pieces_.empty(), "a micro-batch begins in a slot that still holds another one");
  return replays() ? choose(count, scripts_, script_) : choose(count, rehearsals_, rehearsal_);
}

void* Tape::take(const char* name, Index bytes) {
  char* data;
  if (replays()) {
    const Script::Request& request = expect(name, bytes, false);
    data = place(request);
    allow(data, bytes);
  } else {
    ensure(bytes >= 0, "{}: a request for {} bytes is negative", name, bytes);
    write(name, bytes, false);
    data = reinterpret_cast<char*>(taken_ += aligned(bytes));  // placeholder address during a rehearsal, never dereferenced
    grow(aligned(bytes));
  }
  pieces_.push_back({data, next_++});
  ++now_;
  return data;
}

void Tape::give_back(const void* piece) {
  const auto found = std::find_if(pieces_.rbegin(), pieces_.rend(), [&](const Piece& p) { return p.data == piece; });
  if (found == pieces_.rend()) {
    wrong_ = "memory is freed that the micro-batch does not hold";
    return;
  }
  const int number = found->request;
  pieces_.erase(std::next(found).base());
  if (replays()) {
    if (skips_) return;
    const Script::Request& request = script_->requests[number];
    if (script_->blocks[request.block].last != now_ && wrong_.empty()) wrong_ = request.name + " is freed at another time than in the rehearsal";
    forbid(static_cast<const char*>(piece), request.bytes);
  } else {
    SlotBlock& block = written_.blocks[written_.requests[number].block];
    block.last = now_;
    live_ -= block.bytes;
    after_workspace_ = false;
  }
  ++now_;
}

Tape::Slot Tape::open(const char* kernel) {
  if (!replays()) {
    write(kernel, 0, true);
    return {reinterpret_cast<char*>(alignment), std::numeric_limits<Index>::max() / 2};
  }
  const Script::Request& request = expect(kernel, 0, true);
  return {place(request), request.bytes};
}

void Tape::close(Index used) {
  if (!replays()) {
    Script::Request& request = written_.requests[next_];
    SlotBlock& block = written_.blocks[request.block];
    request.bytes = used;
    block.bytes = std::max(block.bytes, used);
    block.last = now_ + 1;
    grow(used), live_ -= used;
    after_workspace_ = true;
  }
  ++next_, ++now_;
}

void Tape::end_task() {
  last_peak_ = std::exchange(peak_, live_);
  if (replays()) return;
  for (auto piece = pieces_.rbegin(); piece != pieces_.rend(); ++piece) {
    SlotBlock& block = written_.blocks[written_.requests[piece->request].block];
    if (block.lasting) break;  // earlier pieces are already marked as lasting
    block.lasting = true;
  }
}

void Tape::skip() {
  ensure(replays(), "a rehearsal cannot skip its memory requests");
  skips_ = true;
  allow(slot_, script_->plan.slot), allow(shared_, script_->plan.shared);
}

void Tape::rewind() {
  if (std::exchange(skips_, false)) pieces_.clear(), next_ = 0, now_ = 0;
  if (next_ == 0) return;
  ensure(wrong_.empty(), "{}", wrong_);
  if (replays()) {
    const auto& all = script_->requests;
    ensure(next_ == int(all.size()), "a micro-batch ends before it has requested {}, as in the rehearsal",
           all[std::min<std::size_t>(next_, all.size() - 1)].name);
  } else {
    ensure(pieces_.empty(), "{} is not freed at the end of a micro-batch",
           pieces_.empty() ? "nothing" : written_.requests[pieces_.front().request].name);
    if (rehearsal_->requests.empty()) rehearsal_->requests = std::move(written_.requests), rehearsal_->blocks = std::move(written_.blocks);
    else rehearsal_->join(written_);
    written_ = {};
    taken_ = 0, peak_ = 0, after_workspace_ = false;
  }
  pieces_.clear();
  next_ = 0, now_ = 0;
}

const Script::Request& Tape::expect(const char* name, Index bytes, bool workspace) {
  ensure(wrong_.empty(), "{}", wrong_);
  ensure(!skips_, "{} is requested by a micro-batch that runs as CUDA graphs", name);
  const auto& all = script_->requests;
  ensure(next_ < int(all.size()), "{} of {} bytes is requested, but the rehearsal ended with {}", name, bytes,
         all.empty() ? "nothing" : all.back().name);
  const Script::Request& request = all[next_];
  ensure(request.name == name && request.workspace == workspace && (workspace || request.bytes == bytes),
         "{} of {} bytes is requested where the rehearsal requested {} of {} bytes, in request {} of {} of a micro-batch", name, bytes, request.name,
         request.bytes, next_ + 1, all.size());
  ensure(workspace || script_->blocks[request.block].first == now_, "{} is requested at another time than in the rehearsal", name);
  return request;
}

// Consecutive workspaces without a request or free in between are never used at the same time, and so share a block.
void Tape::write(const char* name, Index bytes, bool workspace) {
  if (!(workspace && after_workspace_)) written_.blocks.push_back({{now_, now_ + 1, workspace ? 0 : aligned(bytes)}, false});
  after_workspace_ = false;
  written_.requests.push_back({name, bytes, int(written_.blocks.size()) - 1, workspace});
}

char* Tape::place(const Script::Request& request) {
  const SlotPlan& plan = script_->plan;
  const Index at = plan.offsets[request.block], end = at + (request.workspace ? request.bytes : aligned(request.bytes));
  if (at < plan.slot) {
    slot_high_ = std::max(slot_high_, end);
    return slot_ + at;
  }
  shared_high_ = std::max(shared_high_, end - plan.slot);
  return shared_ + (at - plan.slot);
}

void Tape::grow(Index bytes) {
  live_ += bytes;
  peak_ = std::max(peak_, live_);
}

}  // namespace gyr
