// SPDX-License-Identifier: BSD-3-Clause
#include <algorithm>
#include <cstring>
#include <functional>
#include <optional>

#include "src/checkpoint/catalogue.hpp"
#include "src/checkpoint/checkpoint.hpp"
#include "src/together.hpp"
#include "src/checkpoint/writer.hpp"

namespace gyr {

namespace {

constexpr Index slab_bytes = Index(32) << 20;
constexpr int root = 0;

using Bytes = std::vector<std::byte>;

Index slab_rows(const StoredTensor& t) {
  const Index chunk = hdf5::chunk_rows(t.dtype, t.shape), row = elements(t.shape) / t.shape[0] * size_of(t.dtype);
  return std::max<Index>(1, slab_bytes / (chunk * row)) * chunk;  // whole chunks, so that none is written twice
}

// This rank's share of a tensor, on the host.
template <class S>
Bytes to_host(Tensor1<const S> x) {
  Bytes bytes(x.span() * sizeof(S));
  const Kokkos::View<S*, Kokkos::HostSpace, Kokkos::MemoryTraits<Kokkos::Unmanaged>> host(reinterpret_cast<S*>(bytes.data()), x.span());
  Kokkos::deep_copy(host, x);
  return bytes;
}

template <class T>
Bytes local_share(Engine<T>& engine, const StoredTensor& t) {
  const Optimizer<T>& optimizer = engine.optimizer();
  for (const auto& p : engine.stage().parameters().all()) {
    if (p->weight.name != t.weight_name) continue;
    switch (t.content) {
      case Content::first_moment: return to_host<Acc<T>>(optimizer.moment1(*p));
      case Content::second_moment: return to_host<Acc<T>>(optimizer.moment2(*p));
      case Content::master: return to_host<Acc<T>>(optimizer.master(*p));
      case Content::weight:
        return p->dtype() == dtype_of<T>() ? to_host<T>(p->template vector<const T>())
                                           : to_host<Acc<T>>(p->template vector<const Acc<T>>());
    }
  }
  fail(Exit::internal, "{} is not on this rank", t.weight_name);
}

// One rank that gives elements of a tensor.
struct Giver {
  int position;
  std::vector<Stretch> stretches;
};

class Gathering {
 public:
  Gathering(Communicator& world, const StoredTensor& tensor, std::vector<Giver> givers)
      : world_(world), givers_(std::move(givers)), size_(size_of(tensor.dtype)) {}

  // On a giver: hands over the elements of [first, last) that this rank's `share` has.
  void give(const Bytes& share, Index first, Index last) const {
    for (const Giver& giver : givers_) {
      if (giver.position != world_.rank() || giver.position == root) continue;
      const Bytes packed = pack(share, inside(giver.stretches, first, last));
      if (!packed.empty()) transfer(&Transport::send, packed.data(), Index(packed.size()), root).wait();
    }
  }

  // On the first rank: all elements [first, last) in logical order.
  Bytes collect(const Bytes& share, Index first, Index last) const {
    Bytes slab((last - first) * size_);
    std::vector<Bytes> packed(givers_.size());
    std::vector<Request> requests;
    for (std::size_t g = 0; g < givers_.size(); ++g) {
      const auto parts = inside(givers_[g].stretches, first, last);
      if (givers_[g].position == root) {
        packed[g] = pack(share, parts);
      } else if (!parts.empty()) {
        packed[g].resize(total(parts) * size_);
        requests.push_back(transfer(&Transport::receive, packed[g].data(), Index(packed[g].size()), givers_[g].position));
      }
    }
    for (Request& request : requests) request.wait();
    for (std::size_t g = 0; g < givers_.size(); ++g) {
      const std::byte* from = packed[g].data();
      for (const Stretch& part : inside(givers_[g].stretches, first, last)) {
        std::memcpy(slab.data() + (part.logical - first) * size_, from, part.count * size_);
        from += part.count * size_;
      }
    }
    return slab;
  }

 private:
  Bytes pack(const Bytes& share, const std::vector<Stretch>& parts) const {
    Bytes packed(total(parts) * size_);
    std::byte* to = packed.data();
    for (const Stretch& part : parts) {
      std::memcpy(to, share.data() + part.local * size_, part.count * size_);
      to += part.count * size_;
    }
    return packed;
  }
  template <class Call, class Pointer>
  Request transfer(Call call, Pointer* data, Index bytes, int other) const {
    Transport& transport = world_.transport();
    return Request(&transport, (transport.*call)(data, bytes, DType::u8, other, 0));
  }

  Communicator& world_;
  std::vector<Giver> givers_;
  Index size_;
};

std::vector<Giver> givers_of(const PlacedWeight& placed, const Layout& layout) {
  std::vector<Giver> givers;
  const int ranks = layout.size("tensor");
  for (int rank = 0; rank < ranks; ++rank)
    givers.push_back({position_at(layout, placed.stage, rank), given_stretches(placed.weight, ranks, rank)});
  return givers;
}

// Takes rows to the file until a write fails, and drops them from then on: what other ranks have sent must be received all the same.
class Sink {
 public:
  explicit Sink(CheckpointWriter& writer) : writer_(writer) {}
  void write(const StoredTensor& t, Index first, Index count, const Bytes& rows) {
    if (failed_) return;
    try {
      writer_.write(t, first, count, rows.data());
    } catch (const Error& error) {
      failed_ = error;
    }
  }
  void check() const {
    if (failed_) throw *failed_;
  }

 private:
  CheckpointWriter& writer_;
  std::optional<Error> failed_;
};

// One tensor from all ranks that have it into the sink, which only the first rank has.
template <class T>
void save_tensor(Engine<T>& engine, const StoredTensor& t, const std::vector<Giver>& givers, Sink* sink) {
  Communicator& world = engine.grid().world();
  const bool gives = std::any_of(givers.begin(), givers.end(),
                                 [&](const Giver& g) { return g.position == world.rank() && !g.stretches.empty(); });
  const Bytes share = gives ? local_share(engine, t) : Bytes();
  const Gathering gathering(world, t, givers);
  const Index rows = t.shape[0], row = elements(t.shape) / rows, slab = slab_rows(t);
  for (Index first = 0; first < rows; first += slab) {
    const Index count = std::min(slab, rows - first);
    if (sink) sink->write(t, first, count, gathering.collect(share, first * row, (first + count) * row));
    else gathering.give(share, first * row, (first + count) * row);
  }
}

std::string describe(const Layout& layout) {
  std::string text;
  for (const LayoutAxis& axis : layout.axes) text += fmt::format("{}{}={}", text.empty() ? "" : " ", axis.name, axis.size);
  return text;
}

}  // namespace

template <class T>
Saved save_checkpoint(const std::filesystem::path& folder, CheckpointHeader header, Engine<T>& engine, int keep) {
  Communicator& world = engine.grid().world();
  const Layout& layout = engine.grid().layout();
  header.precision = name_of(dtype_of<T>());
  header.layout = describe(layout);
  header.world = layout.ranks();

  const auto weights = model_weights<T>(engine.config().model, layout, engine.config().optimizer.trained());
  std::vector<StoredTensor> tensors;
  for (const PlacedWeight& placed : weights)
    for (const StoredTensor& t : stored_tensors<T>(placed)) tensors.push_back(t);

  Saved saved{checkpoint_path(folder, header.step), 0, {}};
  std::optional<CheckpointWriter> writer;  // on the first rank
  // When the ranks hear of an error, nothing of the unfinished file is left.
  const auto all_or_nothing = [&](const std::function<void()>& f) {
    together(world, [&] {
      try {
        f();
      } catch (...) {
        writer.reset();
        throw;
      }
    });
  };
  all_or_nothing([&] {
    if (world.rank() == root) writer.emplace(saved.path, header, tensors);
  });
  for (const PlacedWeight& placed : weights) {
    const std::vector<Giver> givers = givers_of(placed, layout);
    all_or_nothing([&] {
      std::optional<Sink> sink;
      if (writer) sink.emplace(*writer);
      for (const StoredTensor& t : stored_tensors<T>(placed)) save_tensor(engine, t, givers, sink ? &*sink : nullptr);
      if (sink) sink->check();
    });
  }
  all_or_nothing([&] {
    if (!writer) return;
    writer->commit();
    saved.bytes = writer->bytes();
    OutputFile latest(folder / "latest");  // for people: a resumed run looks at the files themselves
    latest.append(saved.path.filename().string() + "\n");
    latest.commit();
    saved.notes = keep_last(folder, header.step, keep);
  });
  return saved;
}

template Saved save_checkpoint<double>(const std::filesystem::path&, CheckpointHeader, Engine<double>&, int);
template Saved save_checkpoint<float>(const std::filesystem::path&, CheckpointHeader, Engine<float>&, int);
template Saved save_checkpoint<bf16>(const std::filesystem::path&, CheckpointHeader, Engine<bf16>&, int);

}  // namespace gyr
