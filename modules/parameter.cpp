// SPDX-License-Identifier: BSD-3-Clause
#include "modules/parameter.hpp"

#include <algorithm>
#include <set>

namespace gyr {

namespace {
constexpr Index alignment = 64;  // elements: parameters start on cache lines
Index aligned(Index n) { return (n + alignment - 1) / alignment * alignment; }
}  // namespace

Parameter& Parameters::declare(Weight weight, Fit fit) {
  auto p = std::make_unique<Parameter>();
  p->held = place(weight, at_);
  p->weight = std::move(weight);
  p->trained = !trained_ || trained_(p->weight);
  if (p->trained) {
    if (fit == Fit::aligned || all_.empty() || !all_.back()->trained) extent_ = aligned(extent_);
    p->offset = extent_;
    extent_ += p->size();
  }
  if (fit == Fit::aligned) value_extent_ = aligned(value_extent_), wide_extent_ = aligned(wide_extent_);
  value_offset_.push_back(value_extent_);
  value_extent_ += p->size();
  wide_offset_.push_back(wide_extent_);
  if (p->weight.storage == Storage::wide) wide_extent_ += p->size();
  p->dtype_ = p->weight.storage == Storage::wide ? accumulator_of(dtype_) : dtype_;
  all_.push_back(std::move(p));
  return *all_.back();
}

void Parameters::allocate(Arena& weights, Arena& gradients, Gradients keep) {
  const DType wide_dtype = accumulator_of(dtype_);
  const bool one_type = dtype_ == wide_dtype;
  extent_ = aligned(extent_);
  const AnyTensor values = take(weights, dtype_, aligned(value_extent_));
  const AnyTensor wide = take(weights, wide_dtype, one_type ? 0 : wide_extent_);
  if (keep == Gradients::kept) gradients_ = take(gradients, wide_dtype, extent_);
  for (std::size_t i = 0; i < all_.size(); ++i) {
    Parameter& p = *all_[i];
    const bool apart = !one_type && p.weight.storage == Storage::wide;
    p.value_ = (apart ? rows(wide, wide_offset_[i], p.size()) : rows(values, value_offset_[i], p.size())).data;
    if (keep == Gradients::kept && p.trained) p.gradient_ = rows(gradients_, p.offset, p.size()).data;
  }
}

std::vector<int> Parameters::copy_counts(Axis axis) const {
  std::set<int> counts;
  for (const auto& p : all_)
    if (p->weight.sharding(axis))
      for (const Held& held : p->held.boxes)
        if (held.copies[axis].ranks > 1) counts.insert(held.copies[axis].ranks);
  return {counts.begin(), counts.end()};
}

void Parameters::reduce_copies(Device& dev, Arena& communication, Axis axis, BlockedCommunicator& along, bool split_rows) const {
  std::vector<int> counts = copy_counts(axis);
  if (split_rows && !std::count(counts.begin(), counts.end(), along.size())) counts.push_back(along.size());
  for (const int copies : counts) {
    std::vector<AnyTensor> parts;
    Index total = 0;
    for (const auto& p : all_) {
      if (!p->trained || !(p->weight.sharding(axis) || (split_rows && p->weight.of_rows))) continue;
      stretches(*p, [&](Index, Index local, Index count, const Held& held) {
        if (held.copies[axis].ranks != copies) return;
        parts.push_back(rows(p->gradient(), local, count));
        total += count;
      });
    }
    if (total == 0) continue;  // all of them are frozen
    Scope scope(communication);
    const AnyTensor packed = take(communication, gradients_.dtype, total);
    const auto copy = [&](bool out) {
      Index at = 0;
      for (const AnyTensor& part : parts) {
        const AnyTensor inside = rows(packed, at, part.size);
        if (!dev.dry_run()) out ? copy_on_device(dev, inside, part) : copy_on_device(dev, part, inside);
        at += part.size;
      }
    };
    copy(false);
    along.block(copies).all_reduce(dev, packed);
    copy(true);
  }
}

void assign(Device& dev, const Parameter& p, const std::function<double(Index)>& source) {
  if (dev.dry_run()) return;
  with_type(p.value(), [&]<class Value>(const Value& value) {
    using S = typename Value::value_type;
    auto host = Kokkos::create_mirror_view(Kokkos::HostSpace(), value);
    for (Index i = 0; i < p.size(); ++i) host(i) = S(0.0f);  // rows that only pad
    stretches(p, [&](Index logical, Index local, Index count, const Held&) {
      for (Index i = 0; i < count; ++i) host(local + i) = S(Acc<S>(source(logical + i)));
    });
    Kokkos::deep_copy(value, host);
  });
}

void initialise(Device& dev, const Parameter& p, std::uint64_t seed) {
  const Stream stream(seed, p.weight.name);
  assign(dev, p, [&](Index i) { return draw(p.weight.init, stream, i); });
}

}  // namespace gyr
