// SPDX-License-Identifier: BSD-3-Clause
#include "src/checkpoint/delivery.hpp"

#include <cstring>

#include "src/checkpoint/host_copy.hpp"

namespace gyr {

namespace {

template <class Call, class Pointer>
void transfer(Communicator& world, Call call, Pointer* data, Index bytes, int other) {
  Transport& transport = world.transport();
  Event(&transport, (transport.*call)(data, bytes, DType::u8, other, 0)).host_wait();
}

}  // namespace

Delivery::Delivery(ModelState& state, const std::vector<PlacedTensor>& tensors, std::vector<int> writers, bool spread)
    : state_(state), tensors_(tensors), writers_(std::move(writers)) {
  const Layout& layout = state.grid().layout();
  const int me = state.grid().position();
  for (int position = 0; position < layout.ranks(); ++position) {
    if (position != me && writers_[position] != me) continue;
    std::vector<Move> boxes = contributed_boxes(tensors_, layout, position, spread);
    if (writers_[position] == me) {
      bytes_ += bytes_of(boxes, tensors_);
      boxes_.insert(boxes_.end(), boxes.begin(), boxes.end());
    }
    if (position == me) given_ = std::move(boxes);
  }
  for (const auto& p : state.parameters()) parameters_[p->weight.name] = p.get();
}

const std::byte* Delivery::kept(const PlacedTensor& t, const Piece& piece) const {
  if (copied_ == &t) return copy_.data();
  ensure(bool(piece), "{} has no {} on this rank", t.weight.name, name_of(t.content));
  const std::byte* data = on_host(piece.values, copy_);
  copied_ = data == copy_.data() ? &t : nullptr;
  return data;
}

void Delivery::pack(const Move& b, Index first, Index rows, std::byte* to) const {
  const PlacedTensor& t = tensors_[b.tensor];
  const Parameter& p = *parameters_.at(t.weight.name);
  Box local = local_box(p, b.box);
  local.first[0] += first, local.count[0] = rows;
  const Piece piece = state_.tensor(p, t.content);
  const std::byte* data = kept(t, piece);
  const Index size = size_of(t.dtype);
  box_runs(p.held.shape, local, local.count, full_box(local.count), [&](Index from, Index there, Index count) {
    std::memcpy(to + there * size, data + (from - piece.of.first) * size, std::size_t(count * size));
  });
}

void Delivery::send() const {
  Communicator& world = state_.grid().world();
  Slab slab;
  for (const Move& b : given_) {
    const Index rows = b.box.count[0], row = elements(b.box.count) / rows * size_of(tensors_[b.tensor].dtype), step = slab_of(b);
    for (Index first = 0; first < rows; first += step) {
      const Index count = std::min(step, rows - first);
      slab.resize(std::size_t(count * row));
      pack(b, first, count, slab.data());
      transfer(world, &Transport::send, slab.data(), Index(slab.size()), writers_[world.rank()]);
    }
  }
}

void Delivery::take(const Move& b, Sink& sink) const {
  Communicator& world = state_.grid().world();
  const Index rows = b.box.count[0], row = elements(b.box.count) / rows * size_of(tensors_[b.tensor].dtype), step = slab_of(b);
  for (Index first = 0; first < rows; first += step) {
    const Index count = std::min(step, rows - first);
    std::byte* place = sink.place(count * row);
    if (b.from == world.rank()) pack(b, first, count, place);
    else transfer(world, &Transport::receive, place, count * row, b.from);
    sink.taken(b, count, count * row);
  }
}

void Delivery::run(Sink* sink) const {
  state_.device().fence();
  copied_ = nullptr;
  if (writers_[state_.grid().position()] != state_.grid().position()) send();
  if (!sink) return;
  for (const Move& b : boxes_) take(b, *sink);
  sink->check();
}

}  // namespace gyr
