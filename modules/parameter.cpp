// SPDX-License-Identifier: BSD-3-Clause
#include "modules/parameter.hpp"

#include <map>
#include <set>

namespace gyr {

namespace {
constexpr Index alignment = 64;  // elements: parameters start on cache lines
Index aligned(Index n) { return (n + alignment - 1) / alignment * alignment; }
}  // namespace

template <class T>
Parameter& Parameters<T>::declare(Weight weight, Fit fit) {
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
  p->dtype_ = p->weight.storage == Storage::wide ? dtype_of<Acc<T>>() : dtype_of<T>();
  all_.push_back(std::move(p));
  return *all_.back();
}

template <class T>
void Parameters<T>::allocate(Arena& weights, Arena& gradients, Gradients keep) {
  constexpr bool one_type = std::is_same_v<T, Acc<T>>;
  extent_ = aligned(extent_);
  auto values = weights.tensor<T>(aligned(value_extent_));
  auto wide = weights.tensor<Acc<T>>(one_type ? 0 : wide_extent_);
  if (keep == Gradients::kept) gradients_ = gradients.tensor<Acc<T>>(extent_);
  for (std::size_t i = 0; i < all_.size(); ++i) {
    Parameter& p = *all_[i];
    const bool apart = !one_type && p.weight.storage == Storage::wide;
    p.value_ = apart ? static_cast<void*>(wide.data() + wide_offset_[i]) : static_cast<void*>(values.data() + value_offset_[i]);
    if (keep == Gradients::kept && p.trained) p.gradient_ = gradients_.data() + p.offset;
  }
}

template <class T>
std::vector<int> Parameters<T>::copy_counts(Axis axis) const {
  std::set<int> counts;
  for (const auto& p : all_)
    if (p->weight.sharding(axis))
      for (const Held& held : p->held.boxes)
        if (held.copies[axis].ranks > 1) counts.insert(held.copies[axis].ranks);
  return {counts.begin(), counts.end()};
}

template <class T>
void Parameters<T>::reduce_copies(Device& dev, Arena& communication, Axis axis, BlockedCommunicator& along) const {
  using A = Acc<T>;
  for (const int copies : copy_counts(axis)) {
    struct Part {
      A* data;
      Index count;
    };
    std::vector<Part> parts;
    Index total = 0;
    for (const auto& p : all_) {
      if (!p->weight.sharding(axis) || !p->trained) continue;
      stretches(*p, [&](Index, Index local, Index count, const Held& held) {
        if (held.copies[axis].ranks != copies) return;
        parts.push_back({p->template vector_gradient<A>().data() + local, count});
        total += count;
      });
    }
    if (total == 0) continue;  // all of them are frozen
    Scope scope(communication);
    auto packed = communication.tensor<A>(total);
    const auto copy = [&](bool out) {
      Index at = 0;
      for (const Part& part : parts) {
        const Tensor1<A> inside(packed.data() + at, part.count), outside(part.data, part.count);
        if (!dev.dry_run()) out ? Kokkos::deep_copy(dev.exec, outside, inside) : Kokkos::deep_copy(dev.exec, inside, outside);
        at += part.count;
      }
    };
    copy(false);
    along.block(copies).all_reduce(dev, packed);
    copy(true);
  }
}

template <class T>
void assign(Device& dev, const Parameter& p, const std::function<double(Index)>& source) {
  if (dev.dry_run()) return;
  const auto write = [&](auto value) {
    using S = typename decltype(value)::value_type;
    auto host = Kokkos::create_mirror_view(Kokkos::HostSpace(), value);
    for (Index i = 0; i < p.size(); ++i) host(i) = S(0.0f);  // rows that only pad
    stretches(p, [&](Index logical, Index local, Index count, const Held&) {
      for (Index i = 0; i < count; ++i) host(local + i) = S(Acc<T>(source(logical + i)));
    });
    Kokkos::deep_copy(value, host);
  };
  if (p.dtype() == dtype_of<T>()) write(p.template vector<T>());
  else write(p.template vector<Acc<T>>());
}

template <class T>
void initialise(Device& dev, const Parameter& p, std::uint64_t seed) {
  const Stream stream(seed, p.weight.name);
  assign<T>(dev, p, [&](Index i) { return draw(p.weight.init, stream, i); });
}

template class Parameters<double>;
template class Parameters<float>;
template class Parameters<bf16>;
template void assign<double>(Device&, const Parameter&, const std::function<double(Index)>&);
template void assign<float>(Device&, const Parameter&, const std::function<double(Index)>&);
template void assign<bf16>(Device&, const Parameter&, const std::function<double(Index)>&);
template void initialise<double>(Device&, const Parameter&, std::uint64_t);
template void initialise<float>(Device&, const Parameter&, std::uint64_t);
template void initialise<bf16>(Device&, const Parameter&, std::uint64_t);

}  // namespace gyr
