// SPDX-License-Identifier: BSD-3-Clause
#include "modules/weights/parameter.hpp"

#include <algorithm>
#include <set>

#include "kernels/base/host_work.hpp"
#include "kernels/ops/elementwise.hpp"
#include "kernels/ops/host_values.hpp"
#include "modules/weights/ternary_sections.hpp"

namespace gyr {

namespace {

constexpr Index alignment = 64;  // grain of parameter offsets in elements, so that parameters start on cache lines
Index aligned(Index n, Index grain = alignment) { return (n + grain - 1) / grain * grain; }

}  // namespace

Piece Parameter::kept_value() const {
  return value_is_sharded_ ? Piece{{kept_value_, dtype_, updated().size()}, updated()} : Piece{value(), {0, size()}};
}

Piece Parameter::kept_gradient() const {
  const DType wide = accumulator_of(dtype_);
  return gradient_is_sharded_ ? Piece{{kept_gradient_, wide, updated().size()}, updated()} : Piece{{gradient_, wide, size()}, {0, size()}};
}

Parameter& Parameters::declare(Weight weight, Fit fit) {
  ensure(buckets_.empty(), "{} is declared after lay_out()", weight.name);
  if (fit == Fit::aligned) declare_adapters();
  if (groups_.empty()) begin_group();
  auto p = std::make_unique<Parameter>();
  weight.team = team_;
  p->held = gyr::place(weight, at_);
  p->weight = std::move(weight);
  p->trained = p->weight.learns && (!trained_ || trained_(p->weight));
  p->dtype_ = p->weight.storage == Storage::wide ? accumulator_of(dtype_) : dtype_;
  p->group_ = groups() - 1;
  if (fit == Fit::aligned || all_.empty()) cluster_trained_.push_back(false);
  p->cluster_ = int(cluster_trained_.size()) - 1;
  if (p->trained) cluster_trained_.back() = true;
  p->ternary = linear_ == LinearLayers::ternary && p->weight.adapts;
  if (lora_.targets_weight(p->weight)) without_adapter_.push_back(p.get());
  all_.push_back(std::move(p));
  return *all_.back();
}

void Parameters::declare_adapters() {
  const Span team = team_;
  for (Parameter* p : std::exchange(without_adapter_, {})) {
    team_ = p->weight.team;
    Parameter& a = declare(adapter_a(p->weight, lora_));
    p->adapter = Adapter{&a, &declare(adapter_b(p->weight, lora_)), lora_.scale()};
  }
  team_ = team;
}

Parameters::Team::Team(Parameters& parameters, const Span& ranks) : parameters_(parameters) {
  ensure(parameters.in(ranks), "weights of tensor-parallel ranks {} to {} are declared on another rank", ranks.first, ranks.last);
  parameters.team_ = ranks;
}

void Parameters::begin_group() {
  declare_adapters();
  if (!groups_.empty() && groups_.back().first == all_.size()) return;
  groups_.push_back({all_.size()});
}

void Parameters::keep_unsharded() { groups_.back().unsharded = true; }

Span Parameters::parameters_of(const Span& groups) const {
  const auto begin = [&](Index group) { return group < Index(groups_.size()) ? Index(groups_[group].first) : Index(all_.size()); };
  return {begin(groups.first), begin(groups.last)};
}

// Buckets are ordered from the last group to the first.
int Parameters::bucket_of(int group) const {
  const auto found = std::partition_point(buckets_.begin(), buckets_.end(), [&](const Bucket& b) { return b.groups.first > group; });
  ensure(found != buckets_.end() && group < found->groups.last, "group {} of weights is in no bucket", group);
  return int(found - buckets_.begin());
}

// Team weights do not count towards the size of a bucket, so that buckets are the same on all ranks.
void Parameters::make_buckets(Index bucket_bytes) {
  Index bytes = bucket_bytes;
  bool single = true;
  for (Index group = Index(groups_.size()) - 1; group >= 0; --group) {
    const bool unsharded = groups_[group].unsharded;
    if (bytes >= bucket_bytes || unsharded || single) buckets_.push_back({{group, group + 1}, unsharded, {}}), bytes = 0;
    single = unsharded;
    buckets_.back().groups.first = group;
    const Span range = parameters_of({group, group + 1});
    for (Index i = range.first; i < range.last; ++i)
      if (cluster_trained_[all_[i]->cluster_] && held_by(Holders::all, all_[i]->weight)) bytes += all_[i]->size() * size_of(accumulator_of(dtype_));
  }
}

// Ranks that hold the same weights and may shard them (ZeRO), and the index of this rank.
Coordinate Parameters::cutting(bool of_experts) const {
  return over_.level == Shard::none ? Coordinate() : replicas_of(of_experts, over_.ranks, at_.experts);
}

WeightSection Parameters::section(const Bucket& bucket, WeightSection s, int number) {
  const Span range = parameters_of(bucket.groups);
  int cluster = -1;
  for (Index i = range.first; i < range.last; ++i) {
    Parameter& p = *all_[i];
    if (in_int8(p) || is_wide(p) != s.wide || cluster_trained_[p.cluster_] != s.trained || held_by(Holders::team, p.weight) != s.of_team ||
        is_expert_sharded(p) != s.of_experts)
      continue;
    if (std::exchange(cluster, p.cluster_) != p.cluster_) s.size = aligned(s.size), s.gradient_size = aligned(s.gradient_size);
    p.section_ = number;
    p.flat_shard_.offset = s.size, p.gradient_offset_ = s.gradient_size;
    s.size += p.size();
    if (p.trained || over_.level != Shard::none) s.gradient_size += p.size();
  }
  s.ranks = cutting(s.of_experts);
  const Index grain = alignment * s.ranks.ranks;
  s.size = aligned(s.size, grain), s.gradient_size = s.trained ? aligned(s.gradient_size, grain) : 0;
  return s;
}

void Parameters::place(Bucket& bucket) {
  for (const bool trained : {true, false})
    for (const bool of_experts : {false, true})
      for (const bool wide : {false, true})
        for (const bool of_team : {false, true}) {
          WeightSection s = section(bucket, {trained, of_experts, wide, of_team}, int(bucket.sections.size()));
          if (s.size == 0) continue;
          Index& values = wide ? wide_extent_ : narrow_extent_;
          Index& kept_values = wide ? kept_wide_extent_ : kept_narrow_extent_;
          s.values = values, values += s.size;
          s.kept_values = kept_values, kept_values += s.kept_size();
          s.gradients = extent_, extent_ += s.gradient_size;
          s.kept_gradients = kept_extent_, kept_extent_ += s.kept_gradient_size();
          bucket.sections.push_back(s);
        }
  const Span range = parameters_of(bucket.groups);
  for (Index i = range.first; i < range.last; ++i) {
    Parameter& p = *all_[i];
    if (in_int8(p)) continue;
    const WeightSection& s = bucket.sections[p.section_];
    p.flat_shard_.extent = s.size, p.flat_shard_.parts = s.ranks.ranks, p.part_ = s.ranks.rank;
    p.kept_offset_ = s.kept_gradients + std::max<Index>(0, p.gradient_offset_ - s.ranks.rank * s.kept_gradient_size());
  }
}

void Parameters::lay_out(Index bucket_bytes) {
  declare_adapters();
  make_buckets(bucket_bytes);
  for (auto bucket = buckets_.rbegin(); bucket != buckets_.rend(); ++bucket) place(*bucket);
}

template <class Visit>
void Parameters::for_each_in(int bucket, Visit&& visit) {
  const Span range = parameters_of(buckets_[bucket].groups);
  for (Index i = range.first; i < range.last; ++i)
    if (!in_int8(*all_[i])) visit(*all_[i], buckets_[bucket].sections[all_[i]->section_]);
}

namespace {

// A rank's ZeRO shard of a flat run, in place.
AnyTensor zero_shard_of(const AnyTensor& all, const Coordinate& ranks) {
  const Index each = all.size / ranks.ranks;
  return rows(all, ranks.rank * each, each);
}

}  // namespace

void Parameters::allocate(Arena& weights, Arena& gradients, Gradients keep) {
  if (buckets_.empty()) lay_out(1);
  ensure(factors_ == Factors::stored || (keep == Gradients::none && shard() == Shard::none), "int8 weights cannot be trained");
  ensure(!borrows_ || keep == Gradients::none, "borrowed weights cannot be trained");
  if (borrows_) return;
  allocate_values(weights);
  allocate_int8(weights);
  allocate_ternary_scales(weights);
  if (keep == Gradients::none) return;
  allocate_gradients(gradients);
  expert_loads_.allocate(weights);
}

void Parameters::borrow(ParameterList of) {
  const auto boxes = [](const Parameter& p) {
    std::vector<Shape> all{p.held.shape};
    for (const Held& held : p.held.boxes) all.insert(all.end(), {held.box.first, held.box.count, held.local});
    return all;
  };
  for (const auto& mine : all_) {
    const auto found = std::find_if(of.begin(), of.end(), [&](const auto& p) { return p->weight.name == mine->weight.name; });
    require(found != of.end(), Exit::config, "{} cannot be borrowed: this rank of the training engine does not hold it; use the same pipeline stages",
            mine->weight.name);
    require(!(*found)->value_is_sharded_, Exit::config, "{} cannot be borrowed: ZeRO-3 shards it; train with parallel.shard: gradients or less",
            mine->weight.name);
    require((*found)->dtype_ == mine->dtype_ && boxes(**found) == boxes(*mine) && factors_ == Factors::stored, Exit::config,
            "{} cannot be borrowed: it is stored as {} in another tensor-parallel sharding or in int8; use the layout and precision of training",
            mine->weight.name, name_of((*found)->dtype_));
    mine->value_ = (*found)->value_, mine->ternary_scales_ = (*found)->ternary_scales_;
  }
  borrows_ = true;
}

// Number of buffers that ZeRO-sharded buckets take in turn: 2, or 1 if there is only one such bucket.
int Parameters::buffers() const {
  const auto sharing_buffers = std::count_if(buckets_.begin(), buckets_.end(), [](const Bucket& b) { return !b.kept_unsharded; });
  return int(std::min<std::ptrdiff_t>(sharing_buffers, 2));
}

// Allocates all values, or with ZeRO-3 this rank's shards, the buckets that stay unsharded, and buffers for the other
// buckets.
void Parameters::allocate_values(Arena& arena) {
  const bool sharded = shard() == Shard::weights;
  values_.narrow = take(arena, dtype_, sharded ? kept_narrow_extent_ : narrow_extent_);
  values_.wide = take(arena, accumulator_of(dtype_), sharded ? kept_wide_extent_ : wide_extent_);
  unsharded_values_.resize(buckets_.size());
  if (sharded) {
    Index narrow_most = 0, wide_most = 0;
    for (std::size_t b = 0; b < buckets_.size(); ++b) {
      Index narrow = 0, wide = 0;
      for (const WeightSection& s : buckets_[b].sections) (s.wide ? wide : narrow) += s.size;
      if (buckets_[b].kept_unsharded) unsharded_values_[b] = {take(arena, dtype_, narrow), take(arena, accumulator_of(dtype_), wide)};
      else narrow_most = std::max(narrow_most, narrow), wide_most = std::max(wide_most, wide);
    }
    for (int i = 0; i < buffers(); ++i) value_buffers_[i] = {take(arena, dtype_, narrow_most), take(arena, accumulator_of(dtype_), wide_most)};
  }
  for (std::size_t b = 0; b < buckets_.size(); ++b) {
    bind_values(int(b), 0);
    if (!sharded) continue;
    for_each_in(int(b), [&](Parameter& p, const WeightSection& s) {
      const Index begin = s.kept_values + std::max<Index>(0, p.flat_shard_.offset - p.part_ * p.flat_shard_.each());
      p.value_is_sharded_ = true;
      p.kept_value_ = rows(s.wide ? values_.wide : values_.narrow, begin, p.updated().size()).data;
    });
  }
}

// Adjacent weights that share a GEMM are adjacent in int8 as well.
void Parameters::allocate_int8(Arena& arena) {
  for (std::size_t first = 0, last; first < all_.size(); first = last) {
    Index values = 0, scales = 0;
    for (last = first; last < all_.size() && all_[last]->cluster_ == all_[first]->cluster_; ++last) {
      const Parameter& p = *all_[last];
      if (in_int8(p)) values += p.size(), scales += p.rows() * Int8Matrix::blocks(p.columns());
    }
    if (values == 0) continue;
    auto* value = arena.tensor<std::int8_t>(values).data();
    auto* scale = arena.tensor<float>(scales).data();
    for (std::size_t i = first; i < last; ++i) {
      Parameter& p = *all_[i];
      p.int8_ = {value, scale, p.rows(), p.columns()};
      value += p.size(), scale += p.rows() * p.int8_.blocks();
    }
  }
}

// The scales of adjacent weights that share a GEMM are adjacent.
void Parameters::allocate_ternary_scales(Arena& arena) {
  for (std::size_t first = 0, last; first < all_.size(); first = last) {
    int count = 0;
    for (last = first; last < all_.size() && all_[last]->cluster_ == all_[first]->cluster_; ++last)
      if (all_[last]->ternary) count += sections_of(*all_[last]).count;
    if (count == 0) continue;
    const AnyTensor all = take(arena, accumulator_of(dtype_), count);
    int at = 0;
    for (std::size_t i = first; i < last; ++i) {
      all_[i]->ternary_scales_ = rows(all, at, count - at).data;
      at += sections_of(*all_[i]).count;
    }
  }
}

Index Parameters::largest_int8_weight() const {
  Index most = 0;
  for (const auto& p : all_)
    if (in_int8(*p)) most = std::max(most, p->size());
  return most;
}

void Parameters::load_into(const AnyTensor& memory) {
  for (const auto& p : all_)
    if (in_int8(*p)) p->value_ = memory.data;
}

void Parameters::quantize_loaded(Device& dev, const Parameter& p) {
  with_type(p.dtype_, [&]<class T>(std::type_identity<T>) { quantize<T>(dev, p.matrix<const T>(), p.int8_); });
}

void Parameters::allocate_gradients(Arena& arena) {
  const DType wide = accumulator_of(dtype_);
  const bool sharded = shard() >= Shard::gradients;
  gradients_ = take(arena, wide, sharded ? kept_extent() : extent_);
  unsharded_gradients_.resize(buckets_.size());
  if (sharded) {
    Index most = 0;
    for (std::size_t b = 0; b < buckets_.size(); ++b) {
      const Index size = gradient_size(int(b));
      if (buckets_[b].kept_unsharded) unsharded_gradients_[b] = take(arena, wide, size);
      else most = std::max(most, size);
    }
    for (int i = 0; i < buffers(); ++i) gradient_buffers_[i] = take(arena, wide, most);
  }
  for (std::size_t b = 0; b < buckets_.size(); ++b) {
    bind_gradients(int(b), 0);
    if (shard() == Shard::none) continue;
    for_each_in(int(b), [&](Parameter& p, const WeightSection& s) {
      if (!p.trained) return;
      const Index in_place = s.gradients + std::clamp<Index>(p.part_ * p.flat_shard_.each(), p.flat_shard_.offset, p.flat_shard_.offset + p.size());
      p.gradient_is_sharded_ = true;
      p.kept_gradient_ = rows(gradients_, sharded ? p.kept_offset_ : in_place, p.updated().size()).data;
    });
  }
}

std::vector<Parameters::Distribution> Parameters::values(int bucket, int buffer) const {
  const Values& memory = shard() != Shard::weights ? values_ : buckets_[bucket].kept_unsharded ? unsharded_values_[bucket] : value_buffers_[buffer];
  std::vector<Distribution> sections;
  Index narrow = 0, wide = 0;
  for (const WeightSection& s : buckets_[bucket].sections) {
    Index& at = s.wide ? wide : narrow;
    const AnyTensor& run = s.wide ? memory.wide : memory.narrow;
    if (shard() != Shard::weights) {
      const AnyTensor all = rows(run, s.values, s.size);
      sections.push_back({all, zero_shard_of(all, s.ranks), s.of_experts});
    } else {
      sections.push_back({rows(run, at, s.size), rows(s.wide ? values_.wide : values_.narrow, s.kept_values, s.kept_size()), s.of_experts});
    }
    at += s.size;
  }
  return sections;
}

std::vector<Parameters::Distribution> Parameters::gradients(int bucket, int buffer) const {
  const bool sharded = shard() >= Shard::gradients;
  if (sharded) return gradients_in(buckets_[bucket].kept_unsharded ? unsharded_gradients_[bucket] : gradient_buffers_[buffer], bucket);
  for (const WeightSection& s : buckets_[bucket].sections)
    if (s.trained) return gradients_in(rows(gradients_, s.gradients, gradient_size(bucket)), bucket);
  return {};
}

std::vector<Parameters::Distribution> Parameters::gradients_in(const AnyTensor& memory, int bucket) const {
  std::vector<Distribution> sections;
  Index at = 0;
  for (const WeightSection& s : buckets_[bucket].sections) {
    if (!s.trained) continue;
    const AnyTensor all = rows(memory, at, s.gradient_size);
    sections.push_back({all, zero_shard_of(all, s.ranks), s.of_experts});
    at += s.gradient_size;
  }
  return sections;
}

Index Parameters::gradient_size(int bucket) const {
  Index size = 0;
  for (const WeightSection& s : buckets_[bucket].sections) size += s.gradient_size;
  return size;
}

void Parameters::bind_values(int bucket, int buffer) {
  const std::vector<Distribution> sections = values(bucket, buffer);
  for_each_in(bucket, [&](Parameter& p, const WeightSection&) { p.value_ = rows(sections[p.section_].all, p.flat_shard_.offset, p.size()).data; });
}

// Trained sections come first, so that section numbers are valid for gradients too.
void Parameters::bind_gradients(int bucket, int buffer) {
  const std::vector<Distribution> sections = gradients(bucket, buffer);
  for_each_in(bucket, [&](Parameter& p, const WeightSection&) {
    if (p.trained) p.gradient_ = rows(sections[p.section_].all, p.gradient_offset_, p.size()).data;
  });
}

void Parameters::keep_gradients(Device& dev, int bucket, int buffer) {
  const std::vector<Distribution> distributed = gradients(bucket, buffer);
  std::size_t i = 0;
  for (const WeightSection& s : buckets_[bucket].sections) {
    if (!s.trained) continue;
    const AnyTensor kept = rows(gradients_, s.kept_gradients, s.kept_gradient_size());
    with_type(kept, [&]<class Kept>(const Kept& typed) {
      using A = typename Kept::value_type;
      add<A>(dev, distributed[i].mine.as<const A>(), typed);
    });
    ++i;
  }
}

std::vector<AnyTensor> Parameters::kept_gradients() const {
  if (shard() != Shard::optimizer) return {gradients_};
  std::vector<AnyTensor> kept;
  for (std::size_t b = 0; b < buckets_.size(); ++b)
    for (const Distribution& distributed : gradients(int(b), 0)) kept.push_back(distributed.mine);
  return kept;
}

bool Parameters::counts(const Parameter& p) const { return p.weight.expert || shard() != Shard::none || at_.experts.rank == 0; }

std::vector<int> Parameters::copy_counts(Axis axis, Holders who) const {
  std::set<int> counts;
  for (const auto& p : all_)
    if ((p->weight.sharding(axis) || p->weight.of_heads) && held_by(who, p->weight))
      for (const Held& held : p->held.boxes)
        if (held.copies[axis].ranks > 1) counts.insert(held.copies[axis].ranks);
  return {counts.begin(), counts.end()};
}

void Parameters::reduce_copies(Device& dev, Arena& communication, Axis axis, Holders who, BlockedCommunicator& along, bool split_rows) const {
  std::vector<int> counts = copy_counts(axis, who);
  if (split_rows && !std::count(counts.begin(), counts.end(), along.size())) counts.push_back(along.size());
  for (const int copies : counts) {
    std::vector<AnyTensor> parts;
    Index total = 0;
    for (const auto& p : all_) {
      if (!p->trained || !held_by(who, p->weight) || !(p->weight.sharding(axis) || p->weight.of_heads || (split_rows && p->weight.of_rows))) continue;
      const auto& boxes = p->held.boxes;
      if (std::none_of(boxes.begin(), boxes.end(), [&](const Held& held) { return held.copies[axis].ranks == copies; })) continue;
      const Piece kept = p->kept_gradient();
      stretches(*p, kept.of, [&](Index, Index local, Index count, const Held& held) {
        if (held.copies[axis].ranks != copies) return;
        parts.push_back(rows(kept.values, local, count));
        total += count;
      });
    }
    if (total == 0) continue;  // all of them are frozen, or in the ZeRO shards of other ranks
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
    const Device::Purpose purpose(dev, "gradients of weights that several ranks hold: elements");
    along.block(copies).all_reduce(dev, packed);
    copy(true);
  }
}

Box local_box(const Parameter& p, const Box& box) {
  for (const Held& held : p.held.boxes)
    if (const auto both = common(held.box, box); both && both->count == box.count) return moved(box, held.box.first, held.local);
  fail(Exit::internal, "{}: a box was requested that this rank does not hold", p.weight.name);
}

void assign(Device& dev, const Parameter& p, const std::function<double(Index)>& source) {
  if (dev.dry_run()) return;
  const Piece kept = p.kept_value();
  with_type(kept.values, [&]<class Value>(const Value& value) {
    using S = typename Value::value_type;
    HostValues<S> host(value);
    for (Index i = 0; i < kept.values.size; ++i) host(i) = S(0.0f);  // padding rows stay zero
    stretches(p, kept.of, [&](Index logical, Index local, Index count, const Held&) {
      parallel_on_host(count, [&](Index first, Index end) {
        for (Index i = first; i < end; ++i) host(local + i) = S(Acc<S>(source(logical + i)));
      });
    });
    host.put();
  });
}

void initialise(Device& dev, const Parameter& p, std::uint64_t seed) {
  const Stream stream(seed, p.weight.name);
  assign(dev, p, [&](Index i) { return draw(p.weight.init, stream, i); });
}

}  // namespace gyr
