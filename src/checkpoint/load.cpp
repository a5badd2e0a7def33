// SPDX-License-Identifier: BSD-3-Clause
#include <algorithm>

#include "src/checkpoint/catalogue.hpp"
#include "src/checkpoint/checkpoint.hpp"
#include "src/checkpoint/numbers.hpp"
#include "src/together.hpp"

namespace gyr {

namespace {

class Reader {
 public:
  explicit Reader(const std::filesystem::path& path)
      : file_(hdf5::File::open(path)), header_(read_header(file_)), paths_(file_.datasets()) {}

  const CheckpointHeader& header() const { return header_; }
  bool has(Content content, const Weight& w) const { return std::binary_search(paths_.begin(), paths_.end(), path_of(content, w.name)); }

  hdf5::Dataset dataset(Content content, const Weight& w) const {
    hdf5::Dataset dataset = file_.dataset(path_of(content, w.name));
    require(dataset.shape() == w.shape, Exit::config, "{}: is {} in the checkpoint and {} in the model of the deck: it is of another model",
            dataset.name(), text_of(dataset.shape()), text_of(w.shape));
    require(dataset.checksummed(), Exit::data, "{}: carries no checksums; this program did not write it", dataset.name());
    return dataset;
  }

  // Every weight of the model is there in its shape, and no other.
  void check_model(const std::vector<PlacedWeight>& weights, bool moments) const {
    for (const PlacedWeight& placed : weights) {
      require(has(Content::weight, placed.weight), Exit::config, "{}: holds no {}: it is of another model than the deck's", file_.name(),
              placed.weight.name);
      dataset(Content::weight, placed.weight);
      for (const Content content : {Content::first_moment, Content::second_moment})
        require(!moments || has(content, placed.weight), Exit::data,
                "{}: holds no {} of {}; start from its weights alone, with a new optimizer", file_.name(), name_of(content),
                placed.weight.name);
    }
    std::vector<std::string> known;
    for (const PlacedWeight& placed : weights) known.push_back(path_of(Content::weight, placed.weight.name));
    std::sort(known.begin(), known.end());
    for (const std::string& path : paths_)
      require(!path.starts_with("/model/") || std::binary_search(known.begin(), known.end(), path), Exit::config,
              "{}: holds {}, which the deck's model has not: it is of another model", file_.name(), printable(path));
  }

  // What this rank holds of a tensor, as S; rows that only pad are zero.
  template <class S>
  std::vector<S> share(Content content, const Parameter& p) const {
    const hdf5::Dataset dataset = this->dataset(content, p.weight);
    const Index count = p.size();
    std::vector<std::byte> stored(count * size_of(dataset.dtype()));
    for (const Piece& piece : p.share.pieces) {
      if (piece.extent == 0) continue;
      const int dim = p.weight.dealing.dim;
      Box there = whole(p.weight.shape), here = whole(p.share.shape);
      there.first[dim] = piece.global, here.first[dim] = piece.local;
      there.count[dim] = here.count[dim] = piece.extent;
      dataset.read(there, stored.data(), p.share.shape, here);
    }
    std::vector<S> numbers(count);
    convert_numbers(dataset.dtype(), stored.data(), count, numbers.data(), dataset.name());
    return numbers;
  }

  // The most exact copy of a weight for values of type `wanted`: itself where it is stored so, otherwise its master.
  Content source(const Parameter& p, DType wanted) const {
    if (!has(Content::master, p.weight)) return Content::weight;
    return dataset(Content::weight, p.weight).dtype() == wanted ? Content::weight : Content::master;
  }

 private:
  hdf5::File file_;
  CheckpointHeader header_;
  std::vector<std::string> paths_;
};

template <class S>
void to_device(const std::vector<S>& numbers, Tensor1<S> x) {
  const Kokkos::View<const S*, Kokkos::HostSpace, Kokkos::MemoryTraits<Kokkos::Unmanaged>> host(numbers.data(), numbers.size());
  Kokkos::deep_copy(x, host);
}

template <class S>
void load_value(const Reader& reader, const Parameter& p) {
  to_device(reader.share<S>(reader.source(p, dtype_of<S>()), p), p.vector<S>());
}

template <class T>
void load_values(const Reader& reader, Parameters<T>& parameters) {
  for (const auto& p : parameters.all()) p->dtype() == dtype_of<T>() ? load_value<T>(reader, *p) : load_value<Acc<T>>(reader, *p);
}

template <class T>
void load_state(const Reader& reader, Engine<T>& engine, LoadWhat what) {
  using A = Acc<T>;
  const Optimizer<T>& optimizer = engine.optimizer();
  for (const auto& p : engine.stage().parameters().all()) {
    if (what == LoadWhat::everything) {
      to_device(reader.share<A>(Content::first_moment, *p), optimizer.moment1(*p));
      to_device(reader.share<A>(Content::second_moment, *p), optimizer.moment2(*p));
    }
    if (optimizer.has_master(*p)) to_device(reader.share<A>(reader.source(*p, dtype_of<A>()), *p), optimizer.master(*p));
  }
}

}  // namespace

template <class T>
CheckpointHeader load_checkpoint(const std::filesystem::path& file, Engine<T>& engine, LoadWhat what) {
  CheckpointHeader header;
  together(engine.grid().world(), [&] {
    const Reader reader(file);
    reader.check_model(model_weights<T>(engine.config().model), what == LoadWhat::everything);
    load_values(reader, engine.stage().parameters());
    engine.optimizer().reset(engine.device());
    load_state(reader, engine, what);
    header = reader.header();
  });
  return header;
}

template <class T>
CheckpointHeader load_weights(const std::filesystem::path& file, Grid& grid, Stage<T>& stage) {
  CheckpointHeader header;
  together(grid.world(), [&] {
    const Reader reader(file);
    reader.check_model(model_weights<T>(stage.config()), false);
    load_values(reader, stage.parameters());
    header = reader.header();
  });
  return header;
}

template CheckpointHeader load_checkpoint<double>(const std::filesystem::path&, Engine<double>&, LoadWhat);
template CheckpointHeader load_checkpoint<float>(const std::filesystem::path&, Engine<float>&, LoadWhat);
template CheckpointHeader load_checkpoint<bf16>(const std::filesystem::path&, Engine<bf16>&, LoadWhat);
template CheckpointHeader load_weights<double>(const std::filesystem::path&, Grid&, Stage<double>&);
template CheckpointHeader load_weights<float>(const std::filesystem::path&, Grid&, Stage<float>&);
template CheckpointHeader load_weights<bf16>(const std::filesystem::path&, Grid&, Stage<bf16>&);

}  // namespace gyr
