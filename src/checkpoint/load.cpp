// SPDX-License-Identifier: BSD-3-Clause
#include "src/checkpoint/catalogue.hpp"
#include "src/checkpoint/checkpoint.hpp"
#include "src/checkpoint/checkpoint_file.hpp"
#include "src/checkpoint/numbers.hpp"
#include "src/together.hpp"

namespace gyr {

namespace {

// Every weight of the model is there in its shape, and no other.
template <class T>
void check_model(const WeightSource& source, const ModelConfig& config) {
  std::vector<Weight> weights;
  for (const PlacedWeight& placed : model_weights<T>(config)) weights.push_back(placed.weight);
  check_weights(source, weights);
}

template <class T>
void check_moments(const CheckpointFile& file, const ModelConfig& config) {
  for (const PlacedWeight& placed : model_weights<T>(config))
    for (const Content content : {Content::first_moment, Content::second_moment}) {
      require(file.has(content, placed.weight.name), Exit::data, "{}: holds no {} of {}; start from its weights alone, with a new optimizer",
              file.name(), name_of(content), placed.weight.name);
      const StoredNumbers moment = file.open(content, placed.weight.name);
      require(moment.shape == placed.weight.shape, Exit::data, "{}: is {} where the weight is {}", moment.name, text_of(moment.shape),
              text_of(placed.weight.shape));
    }
}

// What this rank holds of a tensor, as S; rows that only pad are zero.
template <class S>
std::vector<S> share(const StoredNumbers& tensor, const Parameter& p) {
  const Index count = p.size();
  std::vector<std::byte> stored(count * size_of(tensor.dtype));
  for (const Piece& piece : p.share.pieces) {
    if (piece.extent == 0) continue;
    const int dim = p.weight.dealing.dim;
    Box there = whole(p.weight.shape), here = whole(p.share.shape);
    there.first[dim] = piece.global, here.first[dim] = piece.local;
    there.count[dim] = here.count[dim] = piece.extent;
    tensor.read(there, stored.data(), p.share.shape, here);
  }
  std::vector<S> numbers(count);
  convert_numbers(tensor.dtype, stored.data(), count, numbers.data(), tensor.name);
  return numbers;
}

template <class S>
void to_device(const std::vector<S>& numbers, Tensor1<S> x) {
  const Kokkos::View<const S*, Kokkos::HostSpace, Kokkos::MemoryTraits<Kokkos::Unmanaged>> host(numbers.data(), numbers.size());
  Kokkos::deep_copy(x, host);
}

template <class S>
void load_value(const WeightSource& source, const Parameter& p) {
  to_device(share<S>(source.open(p.weight.name, dtype_of<S>()), p), p.vector<S>());
}

template <class T>
void load_values(const WeightSource& source, Parameters<T>& parameters) {
  for (const auto& p : parameters.all()) p->dtype() == dtype_of<T>() ? load_value<T>(source, *p) : load_value<Acc<T>>(source, *p);
}

// Weights, masters, and moments of zero.
template <class T>
void load_anew(const WeightSource& source, Engine<T>& engine) {
  using A = Acc<T>;
  load_values(source, engine.stage().parameters());
  Optimizer<T>& optimizer = engine.optimizer();
  optimizer.reset(engine.device());
  for (const auto& p : engine.stage().parameters().all())
    if (optimizer.has_master(*p)) to_device(share<A>(source.open(p->weight.name, dtype_of<A>()), *p), optimizer.master(*p));
}

template <class T>
void load_moments(const CheckpointFile& file, Engine<T>& engine) {
  using A = Acc<T>;
  for (const auto& p : engine.stage().parameters().all()) {
    to_device(share<A>(file.open(Content::first_moment, p->weight.name), *p), engine.optimizer().moment1(*p));
    to_device(share<A>(file.open(Content::second_moment, p->weight.name), *p), engine.optimizer().moment2(*p));
  }
}

}  // namespace

template <class T>
CheckpointHeader load_checkpoint(const std::filesystem::path& file, Engine<T>& engine, LoadWhat what) {
  CheckpointHeader header;
  together(engine.grid().world(), [&] {
    const CheckpointFile source(file);
    check_model<T>(source, engine.config().model);
    if (what == LoadWhat::everything) check_moments<T>(source, engine.config().model);
    load_anew(source, engine);
    if (what == LoadWhat::everything) load_moments(source, engine);
    header = source.header();
  });
  return header;
}

template <class T>
void load_weights(const std::filesystem::path& path, Engine<T>& engine) {
  together(engine.grid().world(), [&] {
    const auto source = open_weights(path, engine.config().model);
    check_model<T>(*source, engine.config().model);
    load_anew(*source, engine);
  });
}

template <class T>
void load_weights(const std::filesystem::path& path, Grid& grid, Stage<T>& stage) {
  together(grid.world(), [&] {
    const auto source = open_weights(path, stage.config());
    check_model<T>(*source, stage.config());
    load_values(*source, stage.parameters());
  });
}

template CheckpointHeader load_checkpoint<double>(const std::filesystem::path&, Engine<double>&, LoadWhat);
template CheckpointHeader load_checkpoint<float>(const std::filesystem::path&, Engine<float>&, LoadWhat);
template CheckpointHeader load_checkpoint<bf16>(const std::filesystem::path&, Engine<bf16>&, LoadWhat);
template void load_weights<double>(const std::filesystem::path&, Engine<double>&);
template void load_weights<float>(const std::filesystem::path&, Engine<float>&);
template void load_weights<bf16>(const std::filesystem::path&, Engine<bf16>&);
template void load_weights<double>(const std::filesystem::path&, Grid&, Stage<double>&);
template void load_weights<float>(const std::filesystem::path&, Grid&, Stage<float>&);
template void load_weights<bf16>(const std::filesystem::path&, Grid&, Stage<bf16>&);

}  // namespace gyr
