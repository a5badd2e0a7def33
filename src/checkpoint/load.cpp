// SPDX-License-Identifier: BSD-3-Clause
#include <algorithm>

#include "src/checkpoint/catalogue.hpp"
#include "src/checkpoint/checkpoint.hpp"
#include "src/checkpoint/checkpoint_file.hpp"
#include "src/checkpoint/numbers.hpp"
#include "src/parallel/collective_check.hpp"

namespace gyr {

namespace {

// States of a weight that the checkpoint has, whatever rule keeps them.
std::vector<std::string> stored_states(const CheckpointFile& file, const std::string& weight) {
  const std::string prefix = "/optimizer/", end = path_of(Content::state(""), weight).substr(prefix.size());
  std::vector<std::string> states;
  for (const StoredTensor& t : file.stored().tensors())
    if (t.path.starts_with(prefix) && t.path.ends_with(end)) {
      const std::string state = t.path.substr(prefix.size(), t.path.size() - prefix.size() - end.size());
      if (state.find('/') == std::string::npos && state != "master") states.push_back(state);
    }
  return states;
}

template <class Names>
std::string list_of(const Names& names) {
  return fmt::format("{}", fmt::join(names, " and "));
}

// Weights whose states in the checkpoint are those of another rule.
struct OtherRule {
  int count = 0;
  std::string first, stored;  // names of the first three weights; states that the checkpoint has of the first
  const UpdateRule* rule = nullptr;

  void add(const std::string& weight, const UpdateRule& rule, const std::vector<std::string>& states) {
    if (!this->rule) this->rule = &rule, stored = list_of(states);
    if (count++ < 3) first += (first.empty() ? "" : ", ") + weight;
  }
  void refuse(const std::string& file) const {
    if (rule)
      fail(
          Exit::config,
          "{}: holds {} of {}{}, but {} keeps {}: set optimizer.name and group_rules as in the run that wrote it (gyrfalcon info shows its deck), or "
          "start a new run from these weights (--init-from without train.branch)",
          file, stored, first, count > 3 ? fmt::format(" and {} more weights", count - 3) : "", rule->name(), list_of(rule->states()));
  }
};

// Requires every state of every trained weight in the checkpoint, in the weight's shape.
void check_states(const CheckpointFile& file, const ModelState& state) {
  OtherRule other;
  for (const PlacedTensor& placed : model_weights(state.model(), state.trained())) {
    if (!placed.trained) continue;
    const std::string& name = placed.weight.name;
    const UpdateRule& rule = state.optimizer_config().rule_of(placed.weight);
    const std::vector<std::string_view> wanted = rule.states();
    const auto missing = std::find_if(wanted.begin(), wanted.end(), [&](std::string_view s) { return !file.has(Content::state(s), name); });
    if (missing != wanted.end()) {
      const std::vector<std::string> stored = stored_states(file, name);
      require(!stored.empty(), Exit::config,
              "{}: holds no moments of {}, which was frozen or never trained when it was written; keep it frozen, or start a new run (without "
              "train.branch) from "
              "these weights",
              file.name(), name);
      const auto also = std::find_if(wanted.begin(), wanted.end(), [&](std::string_view s) { return file.has(Content::state(s), name); });
      if (also != wanted.end())
        fail(Exit::data, "{}: holds the {} of {}, but not its {}", file.name(), name_of(Content::state(*also)), name,
             name_of(Content::state(*missing)));
      other.add(name, rule, stored);
      continue;
    }
    for (const std::string_view kept : wanted) {
      const TensorReader tensor = file.open(Content::state(kept), name);
      require(tensor.shape == placed.weight.shape, Exit::data, "{}: has shape {}, but the weight has {}", tensor.name, text_of(tensor.shape),
              text_of(placed.weight.shape));
    }
  }
  other.refuse(file.name());
}

// Reads the elements `of` of this rank's shard of a tensor, converted to `dtype`. Padding rows are zero.
std::vector<std::byte> kept_of(const TensorReader& tensor, const Parameter& p, const Span& of, DType dtype) {
  std::vector<BoxPair> parts;
  for (const Held& held : pieces_of(p.held, of.first, of.last)) parts.push_back({held.box, {held.local, held.box.count}});
  std::vector<std::byte> shard(std::size_t(p.size() * size_of(tensor.dtype)));
  tensor.read_parts(parts, shard.data(), p.held.shape);
  std::vector<std::byte> values(std::size_t(of.size() * size_of(dtype)));
  with_type(dtype, [&]<class S>(std::type_identity<S>) {
    convert_values(tensor.dtype, shard.data() + of.first * size_of(tensor.dtype), of.size(), reinterpret_cast<S*>(values.data()), tensor.name);
  });
  return values;
}

// Reads a tensor into a rank's memory. With a grid, the first of the ranks with equal data reads it and broadcasts to
// the others. An error of the reader is kept until check(), because the other ranks wait for the next broadcast.
class Fetch {
 public:
  explicit Fetch(Grid* grid = nullptr) : grid_(grid) {}

  // Fills `kept`, the part of the parameter that this rank keeps. `sharded`: ranks keep different parts (ZeRO), so each
  // reads its own.
  void operator()(const std::function<TensorReader()>& open, const Parameter& p, const Piece& kept, bool sharded) {
    const AnyTensor& to = kept.values;
    if (sharded && to.size == 0) return;
    Communicator* const same = grid_ ? &grid_->replicas(bool(p.weight.expert)) : nullptr;
    if (!same || same->size() == 1) return copy_to_device(kept_of(open(), p, kept.of, to.dtype).data(), to);
    std::vector<std::byte> values(std::size_t(to.bytes()));
    if ((sharded || same->rank() == 0) && !failed_) try {
        values = kept_of(open(), p, kept.of, to.dtype);
      } catch (const Error& error) {
        failed_ = error;
      }
    Transport& transport = same->transport();
    if (!sharded) Event(&transport, transport.broadcast(values.data(), to.bytes(), DType::u8, 0)).host_wait();
    copy_to_device(values.data(), to);
  }
  void check() const {
    if (failed_) throw *failed_;
  }

 private:
  Grid* grid_;
  std::optional<Error> failed_;
};

void load_values(Fetch& fetch, const WeightSource& source, ParameterList parameters, Shard level = Shard::none, const Arrived& arrived = {}) {
  for (const auto& p : parameters) {
    fetch([&] { return source.open(p->weight.name, p->dtype()); }, *p, p->kept_value(), is_zero_sharded(Content::weight, level));
    if (arrived) arrived(*p);
  }
}

// Loads weights and master weights and sets the states to zero.
void load_weights_and_masters(Fetch& fetch, const WeightSource& source, ModelState& state) {
  const Shard level = state.grid().layout().zero_shard();
  load_values(fetch, source, state.parameters(), level);
  state.reset_optimizer();
  for (const auto& p : state.parameters())
    if (const Piece master = state.tensor(*p, Content::master))
      fetch([&] { return source.open(p->weight.name, master.values.dtype); }, *p, master, is_zero_sharded(Content::master, level));
}

void load_states(Fetch& fetch, const CheckpointFile& file, ModelState& state) {
  for (const auto& p : state.parameters()) {
    if (!p->trained) continue;
    for (const std::string_view name : state.optimizer_config().rule_of(p->weight).states())
      if (const Piece kept = state.tensor(*p, Content::state(name)))
        fetch([&] { return file.open(Content::state(name), p->weight.name); }, *p, kept,
              is_zero_sharded(Content::state(name), state.grid().layout().zero_shard()));
  }
}

// Opens a source and checks that its files are intact and that it belongs to this model. Collective.
template <class Open>
void open_checked(Communicator& world, const ModelConfig& model, Open&& open) {
  const WeightSource* source = nullptr;
  collective_check(world, [&] {
    source = open();
    check_model(*source, model);
  });
  collective_check(world, [&] { source->check(world.rank(), world.size()); });
}

}  // namespace

void load_weights(const WeightSource& source, ParameterList parameters) {
  Fetch fetch;
  load_values(fetch, source, parameters);
}

void check_model(const WeightSource& source, const ModelConfig& config) {
  std::vector<Weight> weights;
  for (const PlacedTensor& placed : model_weights(config)) weights.push_back(placed.weight);
  check_weights(source, weights);
}

void check_checkpoint(const std::filesystem::path& checkpoint, const ModelState& state) {
  const CheckpointFile file(checkpoint);
  check_model(file, state.model());
  check_states(file, state);
}

Reading reading_of(const std::string& name) { return name == "all" ? Reading::all : Reading::broadcast; }

CheckpointHeader load_checkpoint(const std::filesystem::path& path, ModelState& state, LoadWhat what, Reading reading, LoadTraffic* traffic) {
  Communicator& world = state.grid().world();
  std::optional<CheckpointFile> source;
  open_checked(world, state.model(), [&] {
    source.emplace(path);
    return &*source;
  });
  if (what == LoadWhat::everything) collective_check(world, [&] { check_states(*source, state); });
  collective_check(world, [&] {
    Fetch fetch(reading == Reading::broadcast ? &state.grid() : nullptr);
    load_weights_and_masters(fetch, *source, state);
    if (what == LoadWhat::everything) load_states(fetch, *source, state);
    fetch.check();
  });
  if (traffic) *traffic = {source->stored().bytes_read(), source->stored().bytes_from_disk()};
  return source->header();
}

void load_weights_from(const OpenWeights& open, ModelState& state) {
  std::unique_ptr<WeightSource> source;
  open_checked(state.grid().world(), state.model(), [&] { return (source = open()).get(); });
  collective_check(state.grid().world(), [&] {
    Fetch fetch;
    load_weights_and_masters(fetch, *source, state);
  });
}

void load_weights_from(const OpenWeights& open, Grid& grid, const ModelConfig& model, ParameterList parameters, const Arrived& arrived) {
  std::unique_ptr<WeightSource> source;
  open_checked(grid.world(), model, [&] { return (source = open()).get(); });
  collective_check(grid.world(), [&] {
    Fetch fetch;
    load_values(fetch, *source, parameters, Shard::none, arrived);
  });
}

}  // namespace gyr
