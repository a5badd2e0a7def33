// SPDX-License-Identifier: BSD-3-Clause
#include "src/engine/dry_run/memory_lines.hpp"

#include <algorithm>
#include <map>

namespace gyr {

namespace {

// Number and type of elements that a rank keeps.
struct Elements {
  Index count = 0;
  DType dtype = DType::f32;

  Index bytes() const { return count * size_of(dtype); }
  std::string text(const char* what) const { return fmt::format("{}: {} elements x {} bytes", what, count, size_of(dtype)); }
};

class Lines {
 public:
  explicit Lines(Engine& engine) : engine_(engine), total_(engine.measured()) {}

  std::vector<MemoryLine> all() {
    weights();
    if (engine_.config().training) gradients(), optimizer(), activations();
    return std::move(lines_);
  }

 private:
  void add(Memory category, const std::string& what, Index bytes) {
    if (bytes != 0) lines_.emplace_back(category, what, bytes);
  }
  void add(Memory category, const char* what, const Elements& elements) { add(category, elements.text(what), elements.bytes()); }
  void close(Memory category, const char* what) {
    Index rest = total_.bytes(category);
    for (const MemoryLine& l : lines_)
      if (l.category == category) rest -= l.bytes;
    add(category, what, rest);
  }

  // Elements of a content that this rank keeps: those in the model's type, and those always kept in the accumulator's
  // type.
  std::array<Elements, 2> kept(Content content) const {
    const DType narrow = engine_.precision(), wide = accumulator_of(narrow);
    std::array<Elements, 2> sums{Elements{0, narrow}, Elements{0, wide}};
    for (const auto& p : engine_.parameters())
      if (const Piece piece = engine_.tensor(*p, content)) sums[piece.values.dtype != narrow].count += piece.values.size;
    return sums;
  }

  // Contents that the optimizer keeps, and their names in the plural.
  std::map<Content, std::string> stored_with_weights() const {
    std::map<Content, std::string> all;
    for (const auto& p : engine_.parameters())
      if (p->trained)
        for (const Content content : engine_.config().optimizer.stored_with(p->weight)) all[content] = plural(content);
    return all;
  }
  static std::string plural(Content content) {
    const std::string name = name_of(content);
    return name.ends_with("momentum") ? name : name + "s";
  }

  void weights() {
    const auto [narrow, wide] = kept(Content::weight);
    add(Memory::weights, "weights", narrow);
    add(Memory::weights, "weights kept in the accumulator's type", wide);
    const Parameters& parameters = engine_.stage().parameters();
    if (parameters.shard() == Shard::weights)
      add(Memory::weights, "gathered buckets of sharded weights", storage_of_buckets([&](int b) {
            Index bytes = 0;
            for (const Parameters::Distribution& d : parameters.values(b, 0)) bytes += d.all.bytes();
            return bytes;
          }));
    close(Memory::weights, "rotary tables, sums, alignment");
  }

  void gradients() {
    const auto [narrow, wide] = kept(Content::gradient);
    add(Memory::gradients, "gradients", narrow);
    add(Memory::gradients, "gradients", wide);
    const Parameters& parameters = engine_.stage().parameters();
    const auto size = [&](int b) { return parameters.gradient_size(b) * size_of(parameters.gradients().dtype); };
    if (parameters.shard() == Shard::optimizer) {
      Index others = -narrow.bytes() - wide.bytes();
      for (std::size_t b = 0; b < parameters.buckets().size(); ++b) others += size(int(b));
      add(Memory::gradients, "gradients that other data-parallel ranks reduce and update", others);
    }
    if (parameters.shard() >= Shard::gradients) add(Memory::gradients, "full gradients of buckets before their reduction", storage_of_buckets(size));
    close(Memory::gradients, engine_.config().reduce_dtype ? "copies in the type of the reduction, alignment" : "alignment");
  }

  void optimizer() {
    for (const auto& [content, what] : stored_with_weights()) {
      const auto [narrow, wide] = kept(content);
      add(Memory::optimizer, what.c_str(), narrow);
      add(Memory::optimizer, what.c_str(), wide);
    }
    close(Memory::optimizer, "alignment");
  }

  void activations() {
    for (const ReplayedSlots& chunk : total_.training)
      for (const auto& [name, bytes] : largest_kept_tensors(*chunk.rooms.back()))
        add(Memory::activations, fmt::format("{}, {} micro-batch{}", name, chunk.count, chunk.count == 1 ? "" : "es"), chunk.count * bytes);
    close(Memory::activations, "temporary tensors and gaps");
  }

  // Bytes for full buckets: those that are kept during a step, and two buffers of the largest size that the others take
  // turns in.
  template <class Bytes>
  Index storage_of_buckets(const Bytes& bytes_of) const {
    const auto& buckets = engine_.stage().parameters().buckets();
    Index unsharded = 0, most = 0, sharing_buffers = 0;
    for (std::size_t b = 0; b < buckets.size(); ++b) {
      const Index bytes = bytes_of(int(b));
      if (buckets[b].kept_unsharded) unsharded += bytes;
      else most = std::max(most, bytes), ++sharing_buffers;
    }
    return unsharded + std::min<Index>(sharing_buffers, 2) * most;
  }

  Engine& engine_;
  Capacity total_;
  std::vector<MemoryLine> lines_;
};

}  // namespace

std::vector<MemoryLine> memory_lines(Engine& engine) { return Lines(engine).all(); }

std::vector<std::pair<std::string, Index>> largest_kept_tensors(const Script& script) {
  std::map<Index, Index> changes;  // changes of the bytes alive between tasks, by time
  for (const SlotBlock& b : script.blocks)
    if (b.lasting) changes[b.first] += b.bytes, changes[b.last] -= b.bytes;
  Index now = 0, most = 0, when = 0;
  for (const auto& [time, change] : changes)
    if ((now += change) > most) most = now, when = time;
  std::map<std::string, Index> by_name;
  std::vector<bool> seen(script.blocks.size(), false);
  for (const Script::Request& r : script.requests) {
    const SlotBlock& b = script.blocks[r.block];
    if (b.lasting && b.first <= when && when < b.last && !seen[r.block]) by_name[r.name] += b.bytes;
    seen[r.block] = true;
  }
  std::vector<std::pair<std::string, Index>> list(by_name.begin(), by_name.end());
  std::stable_sort(list.begin(), list.end(), [](const auto& a, const auto& b) { return a.second > b.second; });
  return list;
}

}  // namespace gyr
