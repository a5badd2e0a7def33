// SPDX-License-Identifier: BSD-3-Clause
#include "src/checkpoint/catalogue.hpp"
#include "src/checkpoint/checkpoint.hpp"
#include "src/checkpoint/checkpoint_file.hpp"
#include "src/checkpoint/numbers.hpp"
#include "src/parallel/collective_check.hpp"

namespace gyr {

namespace {

// Every weight of the model is there in its shape, and no other.
template <class T>
void check_model(const WeightSource& source, const ModelConfig& config) {
  std::vector<Weight> weights;
  for (const PlacedWeight& placed : model_weights(config)) weights.push_back(placed.weight);
  check_weights(source, weights);
}

// A weight in training goes on from its moments.
template <class T>
void check_moments(const CheckpointFile& file, const EngineConfig& config) {
  for (const PlacedWeight& placed : model_weights(config.model, config.optimizer.trained())) {
    if (!placed.trained) continue;
    const std::string& name = placed.weight.name;
    const bool first = file.has(Content::first_moment, name), second = file.has(Content::second_moment, name);
    require(first || second, Exit::config,
            "{}: holds no moments of {}, which was frozen or never trained when it was written; keep it frozen, or start a new run from "
            "these weights",
            file.name(), name);
    require(first && second, Exit::data, "{}: holds one moment of {} without the other", file.name(), name);
    for (const Content content : {Content::first_moment, Content::second_moment}) {
      const StoredNumbers moment = file.open(content, name);
      require(moment.shape == placed.weight.shape, Exit::data, "{}: is {} where the weight is {}", moment.name, text_of(moment.shape),
              text_of(placed.weight.shape));
    }
  }
}

// What this rank holds of a tensor, as S; rows that only pad are zero.
template <class S>
std::vector<S> share(const StoredNumbers& tensor, const Parameter& p) {
  const Index count = p.size();
  std::vector<BoxPair> parts;
  for (const Held& held : p.held.boxes) parts.push_back({held.box, {held.local, held.box.count}});
  std::vector<std::byte> stored(count * size_of(tensor.dtype));
  tensor.read_parts(parts, stored.data(), p.held.shape);
  std::vector<S> numbers(count);
  convert_numbers(tensor.dtype, stored.data(), count, numbers.data(), tensor.name);
  return numbers;
}

// Brings shares to a rank: read by itself, or by the first of those that hold the same, who tells the others. An error of a reader is kept
// until `check`, because the others wait for what comes next.
class Fetch {
 public:
  explicit Fetch(Communicator* same = nullptr) : same_(same && same->size() > 1 ? same : nullptr) {}

  template <class S>
  std::vector<S> operator()(const std::function<StoredNumbers()>& open, const Parameter& p) {
    if (!same_) return share<S>(open(), p);
    std::vector<S> numbers(p.size());
    if (same_->rank() == 0 && !failed_) try {
        numbers = share<S>(open(), p);
      } catch (const Error& error) {
        failed_ = error;
      }
    Transport& transport = same_->transport();
    Event(&transport, transport.broadcast(numbers.data(), Index(numbers.size() * sizeof(S)), DType::u8, 0)).host_wait();
    return numbers;
  }
  void check() const {
    if (failed_) throw *failed_;
  }

 private:
  Communicator* same_;
  std::optional<Error> failed_;
};

template <class S>
void to_device(const std::vector<S>& numbers, Tensor1<S> x) {
  const Kokkos::View<const S*, Kokkos::HostSpace, Kokkos::MemoryTraits<Kokkos::Unmanaged>> host(numbers.data(), numbers.size());
  Kokkos::deep_copy(x, host);
}

template <class S>
void load_value(Fetch& fetch, const WeightSource& source, const Parameter& p) {
  to_device(fetch.operator()<S>([&] { return source.open(p.weight.name, dtype_of<S>()); }, p), p.vector<S>());
}

template <class T>
void load_values(Fetch& fetch, const WeightSource& source, Stage<T>& stage) {
  for (const auto& p : stage.parameters().all())
    p->dtype() == dtype_of<T>() ? load_value<T>(fetch, source, *p) : load_value<Acc<T>>(fetch, source, *p);
}

// Weights, masters, and moments of zero.
template <class T>
void load_anew(Fetch& fetch, const WeightSource& source, Engine<T>& engine) {
  using A = Acc<T>;
  load_values(fetch, source, engine.stage());
  Optimizer<T>& optimizer = engine.optimizer();
  optimizer.reset(engine.device());
  for (const auto& p : engine.stage().parameters().all())
    if (optimizer.has_master(*p))
      to_device(fetch.operator()<A>([&] { return source.open(p->weight.name, dtype_of<A>()); }, *p), optimizer.master(*p));
}

template <class T>
void load_moments(Fetch& fetch, const CheckpointFile& file, Engine<T>& engine) {
  using A = Acc<T>;
  const auto moment = [&](Content content, const Parameter& p, Tensor1<A> to) {
    to_device(fetch.operator()<A>([&] { return file.open(content, p.weight.name); }, p), to);
  };
  for (const auto& p : engine.stage().parameters().all()) {
    if (!p->trained) continue;
    moment(Content::first_moment, *p, engine.optimizer().moment1(*p));
    moment(Content::second_moment, *p, engine.optimizer().moment2(*p));
  }
}

// Opens a source and looks whether it is whole and of this model. Collective.
template <class T, class Open>
void open_checked(Communicator& world, const ModelConfig& model, Open&& open) {
  const WeightSource* source = nullptr;
  collective_check(world, [&] {
    source = open();
    check_model<T>(*source, model);
  });
  collective_check(world, [&] { source->check(world.rank(), world.size()); });
}

}  // namespace

template <class T>
void load_weights(const WeightSource& source, Stage<T>& stage) {
  Fetch fetch;
  load_values(fetch, source, stage);
}

template <class T>
void check_shapes(const std::filesystem::path& checkpoint, const ModelConfig& model) {
  check_model<T>(CheckpointFile(checkpoint), model);
}

Reading reading_of(const std::string& name) { return name == "all" ? Reading::all : Reading::broadcast; }

template <class T>
CheckpointHeader load_checkpoint(const std::filesystem::path& path, Engine<T>& engine, LoadWhat what, Reading reading, LoadTraffic* traffic) {
  Communicator& world = engine.grid().world();
  std::optional<CheckpointFile> source;
  open_checked<T>(world, engine.config().model, [&] {
    source.emplace(path);
    return &*source;
  });
  if (what == LoadWhat::everything) collective_check(world, [&] { check_moments<T>(*source, engine.config()); });
  collective_check(world, [&] {
    Fetch fetch(reading == Reading::broadcast ? &engine.grid().group(Axis::data) : nullptr);
    load_anew(fetch, *source, engine);
    if (what == LoadWhat::everything) load_moments(fetch, *source, engine);
    fetch.check();
  });
  if (traffic) *traffic = {source->stored().bytes_read(), source->stored().bytes_from_disk()};
  return source->header();
}

template <class T>
void load_weights_from(const OpenWeights& open, Engine<T>& engine) {
  std::unique_ptr<WeightSource> source;
  open_checked<T>(engine.grid().world(), engine.config().model, [&] { return (source = open()).get(); });
  collective_check(engine.grid().world(), [&] {
    Fetch fetch;
    load_anew(fetch, *source, engine);
  });
}

template <class T>
void load_weights_from(const OpenWeights& open, Grid& grid, Stage<T>& stage) {
  std::unique_ptr<WeightSource> source;
  open_checked<T>(grid.world(), stage.config(), [&] { return (source = open()).get(); });
  collective_check(grid.world(), [&] {
    Fetch fetch;
    load_values(fetch, *source, stage);
  });
}

template void check_shapes<double>(const std::filesystem::path&, const ModelConfig&);
template CheckpointHeader load_checkpoint<double>(const std::filesystem::path&, Engine<double>&, LoadWhat, Reading, LoadTraffic*);
template void check_shapes<float>(const std::filesystem::path&, const ModelConfig&);
template CheckpointHeader load_checkpoint<float>(const std::filesystem::path&, Engine<float>&, LoadWhat, Reading, LoadTraffic*);
template void check_shapes<bf16>(const std::filesystem::path&, const ModelConfig&);
template CheckpointHeader load_checkpoint<bf16>(const std::filesystem::path&, Engine<bf16>&, LoadWhat, Reading, LoadTraffic*);
template void load_weights<double>(const WeightSource&, Stage<double>&);
template void load_weights<float>(const WeightSource&, Stage<float>&);
template void load_weights<bf16>(const WeightSource&, Stage<bf16>&);
template void load_weights_from<double>(const OpenWeights&, Engine<double>&);
template void load_weights_from<float>(const OpenWeights&, Engine<float>&);
template void load_weights_from<bf16>(const OpenWeights&, Engine<bf16>&);
template void load_weights_from<double>(const OpenWeights&, Grid&, Stage<double>&);
template void load_weights_from<float>(const OpenWeights&, Grid&, Stage<float>&);
template void load_weights_from<bf16>(const OpenWeights&, Grid&, Stage<bf16>&);

}  // namespace gyr
