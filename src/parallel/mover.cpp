// SPDX-License-Identifier: BSD-3-Clause
#include "src/parallel/mover.hpp"

#include <algorithm>

#include "kernels/ops/elementwise.hpp"

namespace gyr {

namespace {

constexpr std::size_t in_flight = 2;  // messages in flight in each direction

// Calls visit(from, to, rows, columns, from_stride, to_stride) for the matrices that make up a box of a row-major array
// and an equally large box of another one. from and to are element offsets.
template <class Visit>
void box_matrices(const Shape& shape, const Box& box, const Shape& other, const Box& there, Visit&& visit) {
  Index from = 0, to = 0, rows = 0, columns = 0, from_stride = 0, to_stride = 0;
  const auto end = [&] {
    if (rows > 0) visit(from, to, rows, columns, std::max(from_stride, columns), std::max(to_stride, columns));
  };
  box_runs(shape, box, other, there, [&](Index a, Index b, Index count) {
    if (rows == 1) from_stride = a - from, to_stride = b - to;
    if (rows > 0 && a == from + rows * from_stride && b == to + rows * to_stride) {
      ++rows;
      return;
    }
    end();
    from = a, to = b, rows = 1, columns = count, from_stride = to_stride = 0;
  });
  end();
}

}  // namespace

Mover::Mover(const MovePlan& plan, Communicator& world, MoveSource from, MoveDestination to, Index bucket_bytes, const Arena* buffers)
    : world_(world), from_(std::move(from)), to_(std::move(to)), contents_(plan.contents), device_(false, 0), buffers_(Memory::scratch, 0) {
  for (const PlacedWeights* model : {&plan.from, &plan.to})
    for (const int rank : model->mesh.ranks)
      require(rank < world.size(), Exit::config, "rank {} of a model does not exist; use ranks 0 to {}", rank, world.size() - 1);
  for (const PlacedTensor& placed : plan.to.weights) names_.push_back(placed.weight.name);
  for (const auto& p : from_.parameters) sent_[p->weight.name] = p.get();
  for (const auto& p : to_.parameters) arriving_[p->weight.name] = {p.get()};
  sort_buckets(buckets_of(plan, bucket_bytes));
  allocate(buffers);
}

void Mover::sort_buckets(const std::vector<MoveBucket>& all) {
  for (const MoveBucket& bucket : all) {
    if (bucket.to == world_.rank()) {
      incoming_.push_back(bucket);
      for (const MoveBucket::Part& part : bucket.parts) arriving_.at(names_[part.tensor]).expected += elements(part.box.count);
    } else if (bucket.from == world_.rank()) {
      outgoing_.push_back(bucket);
    }
  }
  for (auto& [name, weight] : arriving_) weight.missing = weight.expected;
}

void Mover::allocate(const Arena* memory) {
  const auto largest = [](const std::vector<MoveBucket>& buckets) {
    Index bytes = 0;
    for (const MoveBucket& b : buckets)
      if (b.from != b.to) bytes = std::max(bytes, b.elements * size_of(b.dtype));
    return (bytes + 255) / 256 * 256;
  };
  const Index out = largest(outgoing_), in = largest(incoming_);
  const Index all = Index(in_flight) * (out + in);
  buffers_ = memory ? memory->part(Memory::scratch, 0, all) : Arena(Memory::scratch, all);
  for (AnyTensor& buffer : out_buffers_) buffer = take(buffers_, DType::u8, out);
  for (AnyTensor& buffer : in_buffers_) buffer = take(buffers_, DType::u8, in);
}

bool Mover::advance() {
  if (done_) return true;
  start_receives();
  if (!begun_) {  // weights of which this rank stores only padding, or no element
    begun_ = true;
    for (auto& [name, weight] : arriving_)
      if (weight.expected == 0) begin(weight), complete(weight);
  }
  start_sends();
  while (!sending_.empty() && sending_.front().event.done()) sending_.pop_front();
  while (!receiving_.empty() && receiving_.front().event.done()) {
    unpack(receiving_.front());
    receiving_.pop_front();
  }
  done_ = started_in_ == incoming_.size() && started_out_ == outgoing_.size() && receiving_.empty() && sending_.empty();
  if (done_) device_.fence();
  return done_;
}

void Mover::finish() {
  while (!advance()) world_.transport().rest();
}

void Mover::start_receives() {
  for (; receiving_.size() < in_flight && started_in_ < incoming_.size(); ++started_in_) {
    const MoveBucket& bucket = incoming_[started_in_];
    const AnyTensor buffer(in_buffers_[started_in_ % in_flight].data, bucket.dtype, bucket.elements);
    receiving_.push_back({&bucket, buffer, {}});
    const Device::Purpose purpose(device_, "weights moved between models: elements");
    if (bucket.from != bucket.to) receiving_.back().event = world_.start_receive(device_, buffer, bucket.from);
  }
}

void Mover::start_sends() {
  for (; sending_.size() < in_flight && started_out_ < outgoing_.size(); ++started_out_) {
    const MoveBucket& bucket = outgoing_[started_out_];
    sending_.push_back({&bucket, {out_buffers_[started_out_ % in_flight].data, bucket.dtype, bucket.elements}, {}});
    Message& message = sending_.back();
    pack(message);
    const Device::Purpose purpose(device_, "weights moved between models: elements");
    message.event = world_.start_send(device_, message.buffer, bucket.to);
  }
}

void Mover::pack(const Message& message) {
  Index at = 0;
  for (const MoveBucket::Part& part : message.bucket->parts) {
    const Index count = elements(part.box.count);
    copy(source(part), {rows(message.buffer, at, count), 0, part.box.count, full_box(part.box.count)});
    at += count;
  }
}

void Mover::unpack(const Message& message) {
  Index at = 0;
  for (const MoveBucket::Part& part : message.bucket->parts) {
    const Index count = elements(part.box.count);
    Arriving& weight = arriving_.at(names_[part.tensor]);
    if (weight.missing == weight.expected) begin(weight);
    const bool local = message.bucket->from == message.bucket->to;
    copy(local ? source(part) : Place{rows(message.buffer, at, count), 0, part.box.count, full_box(part.box.count)}, destination(part));
    at += count;
    weight.missing -= count;
    if (weight.missing == 0) complete(weight);
  }
}

// Padding is zero, as after loading a checkpoint.
void Mover::begin(const Arriving& weight) {
  const AnyTensor kept = weight.parameter->kept_value().values;
  ensure(kept.size == 0 || kept, "{} has no memory: weights in int8 are filled with Filling (engine/model/filling.hpp)",
         weight.parameter->weight.name);
  if (weight.expected < kept.size) fill(device_, kept, 0);
}

void Mover::complete(const Arriving& weight) {
  if (!to_.arrived) return;
  device_.fence();
  to_.arrived(*weight.parameter);
}

Mover::Place Mover::source(const MoveBucket::Part& part) const {
  const Parameter& p = *sent_.at(names_[part.tensor]);
  const Piece stored = from_.stored ? from_.stored(p, contents_[part.tensor]) : p.kept_value();
  ensure(bool(stored), "{} has no {} on rank {}", p.weight.name, name_of(contents_[part.tensor]), world_.rank());
  return {stored.values, stored.of.first, p.held.shape, local_box(p, part.box)};
}

Mover::Place Mover::destination(const MoveBucket::Part& part) const {
  const Parameter& p = *arriving_.at(names_[part.tensor]).parameter;
  const Piece kept = p.kept_value();
  return {kept.values, kept.of.first, p.held.shape, local_box(p, part.box)};
}

void Mover::copy(const Place& from, const Place& to) {
  with_type(from.values, [&]<class X>(const X& x) {
    using S = typename X::value_type;
    with_type(to.values, [&]<class Y>(const Y& y) {
      using T = typename Y::value_type;
      box_matrices(from.shape, from.box, to.shape, to.box, [&](Index a, Index b, Index rows, Index columns, Index from_stride, Index to_stride) {
        convert<S, T>(device_, Matrix<const S>(x.data() + a - from.first, rows, columns, from_stride),
                      Matrix<T>(y.data() + b - to.first, rows, columns, to_stride));
      });
    });
  });
}

}  // namespace gyr
