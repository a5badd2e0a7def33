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

template <class T>
Delivery<T>::Delivery(Engine<T>& engine, const std::vector<PlacedTensor>& tensors, std::vector<int> writers, bool spread)
    : engine_(engine), tensors_(tensors), writers_(std::move(writers)) {
  const Layout& layout = engine.grid().layout();
  const int me = engine.grid().position();
  for (int position = 0; position < layout.ranks(); ++position) {
    if (position != me && writers_[position] != me) continue;
    std::vector<GivenBox> boxes = given_boxes(tensors_, layout, position, spread);
    if (writers_[position] == me) {
      bytes_ += bytes_of(boxes, tensors_);
      for (const GivenBox& b : boxes) boxes_.push_back({position, b});
    }
    if (position == me) given_ = std::move(boxes);
  }
  for (const auto& p : engine.stage().parameters().all()) parameters_[p->weight.name] = p.get();
}

template <class T>
const std::byte* Delivery<T>::share(const PlacedTensor& t) const {
  if (copied_ == &t) return copy_.data();
  const Parameter& p = *parameters_.at(t.tensor.weight_name);
  const Optimizer<T>& optimizer = engine_.optimizer();
  const std::byte* data = nullptr;
  switch (t.tensor.content) {
    case Content::first_moment: data = on_host(optimizer.moment1(p), copy_); break;
    case Content::second_moment: data = on_host(optimizer.moment2(p), copy_); break;
    case Content::master: data = on_host(optimizer.master(p), copy_); break;
    case Content::gradient: data = on_host(p.vector_gradient<Acc<T>>(), copy_); break;
    case Content::weight: data = p.dtype() == dtype_of<T>() ? on_host(p.vector<const T>(), copy_) : on_host(p.vector<const Acc<T>>(), copy_); break;
    case Content::activation: fail(Exit::internal, "{} is no state of a rank", t.tensor.weight_name);
  }
  copied_ = data == copy_.data() ? &t : nullptr;
  return data;
}

template <class T>
void Delivery<T>::pack(const GivenBox& b, Index first, Index rows, std::byte* to) const {
  const PlacedTensor& t = tensors_[b.tensor];
  Box local{b.local, b.box.count};
  local.first[0] += first, local.count[0] = rows;
  const std::byte* data = share(t);
  const Index size = size_of(t.tensor.dtype);
  box_runs(parameters_.at(t.tensor.weight_name)->held.shape, local, local.count, whole(local.count),
           [&](Index from, Index there, Index count) { std::memcpy(to + there * size, data + from * size, std::size_t(count * size)); });
}

template <class T>
void Delivery<T>::send() const {
  Communicator& world = engine_.grid().world();
  Slab slab;
  for (const GivenBox& b : given_) {
    const Index rows = b.box.count[0], row = elements(b.box.count) / rows * size_of(tensors_[b.tensor].tensor.dtype), step = slab_of(b);
    for (Index first = 0; first < rows; first += step) {
      const Index count = std::min(step, rows - first);
      slab.resize(std::size_t(count * row));
      pack(b, first, count, slab.data());
      transfer(world, &Transport::send, slab.data(), Index(slab.size()), writers_[world.rank()]);
    }
  }
}

template <class T>
void Delivery<T>::take(const DeliveredBox& box, Sink& sink) const {
  Communicator& world = engine_.grid().world();
  const GivenBox& b = box.given;
  const Index rows = b.box.count[0], row = elements(b.box.count) / rows * size_of(tensors_[b.tensor].tensor.dtype), step = slab_of(b);
  for (Index first = 0; first < rows; first += step) {
    const Index count = std::min(step, rows - first);
    std::byte* place = sink.place(count * row);
    if (box.from == world.rank()) pack(b, first, count, place);
    else transfer(world, &Transport::receive, place, count * row, box.from);
    sink.taken(b, count, count * row);
  }
}

template <class T>
void Delivery<T>::run(Sink* sink) const {
  engine_.device().exec.fence();
  copied_ = nullptr;
  if (writers_[engine_.grid().position()] != engine_.grid().position()) send();
  if (!sink) return;
  for (const DeliveredBox& b : boxes_) take(b, *sink);
  sink->check();
}

template class Delivery<double>;
template class Delivery<float>;
template class Delivery<bf16>;

}  // namespace gyr
