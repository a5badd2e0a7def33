// SPDX-License-Identifier: BSD-3-Clause
// Weights that move between models on simulated ranks get the bits that loading a checkpoint gives, whatever the ranks,
// layouts, ZeRO levels and precisions. The traffic is what the receivers lack.
#include "src/parallel/mover.hpp"

#include <numeric>
#include <random>
#include <set>

#include "regression/support/draw.hpp"
#include "regression/support/folder.hpp"
#include "regression/support/mailboxes.hpp"
#include "regression/support/seed.hpp"
#include "regression/support/state.hpp"
#include "regression/support/testing.hpp"
#include "src/checkpoint/catalogue.hpp"
#include "src/checkpoint/checkpoint.hpp"
#include "src/checkpoint/checkpoint_file.hpp"
#include "src/engine/model/filling.hpp"

namespace gyr::testing::mover_suite {
namespace {

constexpr int world = 8;
constexpr int salt = 1;

AnyTensor bytes_of(const Arena& arena) { return {arena.begin(), DType::u8, arena.used()}; }

// Weights of a model in the memory of one simulated rank.
class Weights {
 public:
  Weights(const ModelConfig& config, const WeightStorage& storage, const Layout& layout, int position)
      : storage_(storage), grid_(Grid::dry_run(layout, position)), memory_(Memory::weights, bytes_needed(config, storage, layout, position)),
        stage_(config, storage.precision, grid_, storage.trained, {}, storage.factors) {
    const std::vector<std::byte> garbage(std::size_t(memory_.capacity()), std::byte(0xff));
    copy_to_device(garbage.data(), {memory_.begin(), DType::u8, memory_.capacity()});
    stage_.allocate(memory_, none_, Gradients::none, 1);
  }

  Stage& stage() { return stage_; }
  ParameterList all() { return stage_.parameters().all(); }
  std::vector<std::byte> bytes() const {
    std::vector<std::byte> all(std::size_t(memory_.used()));
    copy_to_host(bytes_of(memory_), all.data());
    return all;
  }
  bool has_master(const Parameter& p) const { return masters_.contains(&p); }
  Piece stored(const Parameter& p, Content content) { return content == Content::weight ? p.kept_value() : masters_.at(&p).second; }

  // Sets weights and master weights to the state `salt`.
  void set_state() {
    for (const auto& p : all()) {
      assign(device_, *p, [&](Index i) { return state_value(salt, Content::weight, p->weight.name, i); });
      if (storage_.masters && p->trained && p->dtype() == DType::bf16) make_master(*p);
    }
  }

 private:
  static Index bytes_needed(const ModelConfig& config, const WeightStorage& storage, const Layout& layout, int position) {
    Grid dry = Grid::dry_run(layout, position);
    Stage stage(config, storage.precision, dry, storage.trained, {}, storage.factors);
    Arena memory = Arena::dry_run(Memory::weights), none = Arena::dry_run(Memory::gradients);
    stage.allocate(memory, none, Gradients::none, 1);
    return memory.high_water();
  }
  void make_master(const Parameter& p) {
    const Span of = is_zero_sharded(Content::master, grid_.layout().zero_shard()) ? p.updated() : Span{0, p.size()};
    std::vector<float> values(std::size_t(of.size()), 0.f);
    stretches(p, of, [&](Index logical, Index local, Index count, const Held&) {
      for (Index i = 0; i < count; ++i) values[local + i] = float(state_value(salt, Content::master, p.weight.name, logical + i));
    });
    auto& [arena, piece] = masters_.try_emplace(&p, Arena(Memory::optimizer, of.size() * 4), Piece()).first->second;
    piece = {take(arena, DType::f32, of.size()), of};
    copy_to_device(values.data(), piece.values);
  }

  WeightStorage storage_;
  Grid grid_;
  Arena memory_, none_ = Arena::dry_run(Memory::gradients);
  Stage stage_;
  Device device_{false, 0};
  std::map<const Parameter*, std::pair<Arena, Piece>> masters_;
};

// A model on simulated ranks.
struct Side {
  PlacedWeights model;
  WeightStorage storage;
  std::map<int, std::unique_ptr<Weights>> ranks;  // by world rank

  void allocate(const ModelConfig& config) {
    for (int rank = 0; rank < model.layout.ranks(); ++rank)
      ranks[model.mesh.ranks[std::size_t(rank)]] = std::make_unique<Weights>(config, storage, model.layout, model.layout.position_of(rank));
  }
};

template <class T>
T one_of(std::mt19937_64& random, std::vector<T> choices) {
  return choices[random() % choices.size()];
}

// A layout of the model on at most as many ranks as the world has. Not every model can be sharded so.
Layout drawn_layout(const ModelConfig& config, std::mt19937_64& random) {
  const int layers = int(config.layers());
  int data, pipeline, context, tensor;
  do {
    data = one_of<int>(random, {1, 1, 2, 3}), pipeline = one_of<int>(random, {1, 1, 2, 3}), context = one_of<int>(random, {1, 1, 2});
    tensor = one_of<int>(random, {1, 2, 2, 3, 4});
  } while (data * pipeline * context * tensor > world || pipeline > layers);
  const int stages = pipeline > 1 && 2 * pipeline <= layers && random() % 3 == 0 ? 2 * pipeline : pipeline;
  std::vector<Span> spans;
  for (int s = 0; s < stages; ++s) spans.push_back({layers * s / stages, layers * (s + 1) / stages});
  std::vector<Axis> order{Axis::data, Axis::pipeline, Axis::context, Axis::tensor};
  std::shuffle(order.begin(), order.end(), random);
  Layout layout = grid_layout(data, pipeline, tensor, spans, {}, order, context);
  layout.permutation.resize(std::size_t(layout.ranks()));
  std::iota(layout.permutation.begin(), layout.permutation.end(), 0);
  std::shuffle(layout.permutation.begin(), layout.permutation.end(), random);
  layout.shard = one_of<Shard>(random, {Shard::none, Shard::optimizer, Shard::gradients, Shard::weights});
  layout.bucket_bytes = one_of<Index>(random, {1, 2000, Index(32) << 20});
  if (tensor > 1 && random() % 3 == 0) layout.attention_ranks = 1 + int(random() % std::uint64_t(tensor - 1));
  layout.expert = random() % 2 && config.moe.experts % (data * context) == 0 ? data * context : 1;
  return layout;
}

Mesh drawn_mesh(int ranks, std::mt19937_64& random) {
  Mesh mesh = Mesh::of_all(world);
  std::shuffle(mesh.ranks.begin(), mesh.ranks.end(), random);
  mesh.ranks.resize(std::size_t(ranks));
  std::sort(mesh.ranks.begin(), mesh.ranks.end());
  return mesh;
}

// The model on random ranks in a random layout. Empty if it cannot be sharded so.
std::optional<Side> drawn_side(const ModelConfig& config, const WeightStorage& storage, std::mt19937_64& random) {
  Layout layout = drawn_layout(config, random);
  if (storage.factors == Factors::int8) layout.shard = Shard::none;
  Mesh mesh = drawn_mesh(layout.ranks(), random);
  try {
    return Side{placed_weights(config, storage, layout, std::move(mesh)), storage, {}};
  } catch (const Error& error) {
    EXPECT_EQ(error.code, Exit::config) << error.what();
    return {};
  }
}

// One move between two sides: the plan, and the communicator and mover of each world rank.
struct Rank {
  MostInFlight most;
  std::optional<Communicator> communicator;
  std::optional<Filling> filling;
  std::optional<Mover> mover;
  std::map<std::string, int> arrived;
};

// Executes the plan on all ranks, which advance in random order. False if the ranks wait for each other.
bool execute(const MovePlan& plan, Side& from, Side& to, Index bucket_bytes, Mailboxes& mail, std::vector<Rank>& ranks) {
  for (int rank = 0; rank < world; ++rank) {
    Rank& r = ranks[std::size_t(rank)];
    r.communicator.emplace("moves", std::make_unique<MailTransport>(mail, rank, world, r.most));
    MoveSource source;
    MoveDestination destination;
    if (const auto found = from.ranks.find(rank); found != from.ranks.end()) {
      Weights* const weights = found->second.get();
      source = {weights->all(), [weights](const Parameter& p, Content content) { return weights->stored(p, content); }};
    }
    if (const auto found = to.ranks.find(rank); found != to.ranks.end()) {
      r.filling.emplace(found->second->stage().parameters());
      destination = {r.filling->weights(), [&r, arrived = r.filling->arrived()](const Parameter& p) {
                       ++r.arrived[p.weight.name];
                       arrived(p);
                     }};
    }
    r.mover.emplace(plan, *r.communicator, source, destination, bucket_bytes);
  }
  std::mt19937 random(3);
  for (int idle = 0, left = world; left > 0; ++idle) {
    left = 0;
    const std::size_t first = random() % world;
    for (std::size_t i = 0; i < world; ++i) left += !ranks[(first + i) % world].mover->advance();
    if (idle > 1'000'000) return false;
  }
  return true;
}

// Values that a move must deliver, by way of a checkpoint of the sending model. Without master weights, by a formula.
struct Reference {
  std::optional<CheckpointFile> file;
  DType stored;

  void fill(Stage& stage) const {
    Device device(false, 0);
    stage.fill([&](ParameterList weights, const Arrived& arrived) {
      for (std::size_t i = 0; i < weights.size(); ++i) {
        const Parameter& p = *weights[i];
        if (file) load_weights(*file, weights.subspan(i, 1));
        else
          with_type(p.weight.storage == Storage::wide ? accumulator_of(stored) : stored, [&]<class S>(std::type_identity<S>) {
            assign(device, p, [&](Index e) {
              const S value(Acc<S>(state_value(salt, Content::weight, p.weight.name, e)));
              if constexpr (std::is_same_v<S, bf16>) return double(float(value));
              else return double(value);
            });
          });
        arrived(p);
      }
    });
  }
};

std::set<Index> elements_of(const Parameter& p, const Span& of) {
  std::set<Index> all;
  stretches(p, of, [&](Index logical, Index, Index count, const Held&) {
    for (Index i = 0; i < count; ++i) all.insert(logical + i);
  });
  return all;
}

// Closed form of the bytes that a rank receives: elements of its weights that it does not store in the form that is sent.
Index bytes_lacking(Weights& to, Weights* from) {
  Index bytes = 0;
  for (const auto& p : to.all()) {
    std::set<Index> lacking = elements_of(*p, p->kept_value().of);
    if (from)
      for (const auto& q : from->all()) {
        if (q->weight.name != p->weight.name) continue;
        const bool converts = q->dtype() != p->dtype();
        const Piece stored = from->stored(*q, converts && from->has_master(*q) ? Content::master : Content::weight);
        for (const Index i : elements_of(*q, stored.of)) lacking.erase(i);
      }
    bytes += Index(lacking.size()) * size_of(p->dtype());
  }
  return bytes;
}

void expect_result(const MovePlan& plan, const ModelConfig& config, Side& from, Side& to, const Reference& reference, std::vector<Rank>& ranks) {
  Index sent = 0, received = 0;
  for (int rank = 0; rank < world; ++rank) {
    const Rank& r = ranks[std::size_t(rank)];
    EXPECT_LE(r.most.sends, 2);
    EXPECT_LE(r.most.receives, 2);
    Index out = 0, in = 0;
    for (const auto& [pair, bytes] : plan.bytes()) out += pair.first == rank ? bytes : 0, in += pair.second == rank ? bytes : 0;
    EXPECT_EQ(r.communicator->traffic(Operation::send).bytes, out);
    EXPECT_EQ(r.communicator->traffic(Operation::receive).bytes, in);
    sent += out, received += in;
    const auto found = to.ranks.find(rank);
    if (found == to.ranks.end()) {
      EXPECT_EQ(in, 0);
      continue;
    }
    const auto source = from.ranks.find(rank);
    EXPECT_EQ(in, bytes_lacking(*found->second, source == from.ranks.end() ? nullptr : source->second.get())) << "rank " << rank;
    EXPECT_EQ(r.arrived.size(), found->second->all().size());
    for (const auto& [name, times] : r.arrived) EXPECT_EQ(times, 1) << name;
    Weights loaded(config, to.storage, plan.to.layout, plan.to.layout.position_of(plan.to.mesh.index_of(rank).value()));
    reference.fill(loaded.stage());
    EXPECT_TRUE(found->second->bytes() == loaded.bytes()) << "rank " << rank << " has other bits than after loading";
  }
  EXPECT_EQ(sent, received);
}

// A model whose weights are moved, and a checkpoint of its state in each precision.
class Moved {
 public:
  explicit Moved(const Draw& d) : config(d.full_model()), engine_(d.config(1)) {}
  const ModelConfig config;
  Trained trained() const { return engine_.optimizer.trained(); }
  Reference reference(DType precision, bool masters) {
    if (!masters) return {{}, precision};
    const std::filesystem::path at = folder_ / std::string(name_of(precision));
    if (!std::filesystem::exists(at)) {
      EngineConfig engine = engine_;
      engine.precision = precision;
      AnyRig rig(engine, single_rank_grid(config.layers()));
      testing::set_state(rig.engine, salt);
      save_checkpoint(at, {}, rig.engine);
    }
    return {CheckpointFile(checkpoint_path(at, 0)), precision};
  }

 private:
  EngineConfig engine_;
  Folder folder_;
};

void expect_moved_as_loaded(Moved& moved, std::mt19937_64& random, Side from, Side to) {
  const Index bucket_bytes = one_of<Index>(random, {1, 100, 5000, Index(32) << 20});
  SCOPED_TRACE(fmt::format("from {} on ranks {} in {}{} to {} on ranks {} in {}{}, messages of {} bytes", from.model.layout.text(),
                           from.model.mesh.text(), name_of(from.storage.precision), from.storage.masters ? " with master weights" : "",
                           to.model.layout.text(), to.model.mesh.text(), name_of(to.storage.precision),
                           to.storage.factors == Factors::int8 ? " and int8" : "", bucket_bytes));
  from.allocate(moved.config), to.allocate(moved.config);
  for (auto& [rank, weights] : from.ranks) weights->set_state();
  const MovePlan plan = moves(from.model, to.model, 1 << (random() % 4));
  Mailboxes mail;
  std::vector<Rank> ranks(world);
  ASSERT_TRUE(execute(plan, from, to, bucket_bytes, mail, ranks)) << "the ranks wait for each other";
  EXPECT_EQ(mail.bytes(), plan.bytes());
  EXPECT_LE(mail.largest(), std::max(bucket_bytes, size_of(DType::f64)));
  expect_result(plan, moved.config, from, to, moved.reference(from.storage.precision, from.storage.masters), ranks);
}

// GYR_SEED selects other draws.
TEST(mover, moved_weights_equal_loaded_weights) {
  const unsigned seed = seed_of_run();
  constexpr int models = 25, pairs = 8;
  std::mt19937_64 random(seed);
  for (int number = 0; number < models; ++number) {
    Draw d = draw(seed, number, world);
    d.offload = {}, d.recompute = {};
    SCOPED_TRACE(fmt::format("seed {} draw {}: {}", seed, number, d.text()));
    Moved moved(d);
    for (int pair = 0; pair < pairs;) {
      const std::vector<DType> precisions{DType::f64, DType::f32, DType::bf16, DType::bf16};
      const WeightStorage training{one_of(random, precisions), moved.trained(), random() % 4 > 0};
      const WeightStorage reading{one_of(random, precisions), {}, false, random() % 4 == 0 ? Factors::int8 : Factors::stored};
      std::optional<Side> from = drawn_side(moved.config, training, random), to = drawn_side(moved.config, reading, random);
      if (!from || !to) continue;
      expect_moved_as_loaded(moved, random, std::move(*from), std::move(*to));
      if (HasFailure()) return;
      ++pair;
    }
  }
}

}  // namespace
}  // namespace gyr::testing::mover_suite
