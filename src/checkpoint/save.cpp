// SPDX-License-Identifier: BSD-3-Clause
#include <chrono>
#include <thread>

#include "kernels/comm/mpi/node.hpp"
#include "src/base/fault_point.hpp"
#include "src/base/stopwatch.hpp"
#include "src/checkpoint/completion.hpp"
#include "src/checkpoint/file_sink.hpp"
#include "src/parallel/collective_check.hpp"

namespace gyr {

namespace {

constexpr int first_rank = 0;
constexpr std::chrono::microseconds shortest_pause(200), longest_pause(10'000);

// For each position, the lowest position on the same node. Collective.
std::vector<int> first_on_node(Grid& grid) {
  MPI_Comm all = grid.duplicate(), node = node_of(all);
  int first = grid.position();
  MPI_Bcast(&first, 1, MPI_INT, 0, node);
  MPI_Comm_free(&node);
  MPI_Comm_free(&all);
  const double mine = first;
  const std::vector<double> firsts = grid.world().gather({&mine, 1});
  return {firsts.begin(), firsts.end()};
}

std::vector<int> writers_of(Files files, Grid& grid) {
  if (files == Files::node) return first_on_node(grid);
  std::vector<int> writers(std::size_t(grid.layout().ranks()), first_rank);
  for (int position = 0; files == Files::rank && position < grid.layout().ranks(); ++position) writers[position] = position;
  return writers;
}

// The shard file of this rank, with the fault points at which tests kill the process.
class ShardFile {
 public:
  ShardFile(const std::filesystem::path& path, const CheckpointHeader& header, const ShardOptions& options, const std::vector<StoredTensor>& tensors,
            int position)
      : writer_(path, header, options), tensors_(tensors), position_(position), step_(header.step) {}

  void write(const Move& b, Index rows, const void* data) {
    if (++slabs_ == 3) fault_point("shard", position_, step_);
    writer_.write(tensors_[b.tensor], b.tensor, b.box, rows, data);
  }
  ManifestFile finish() {
    fault_point("written", position_, step_);
    ManifestFile file = writer_.finish();
    fault_point("synced", position_, step_);
    return file;
  }

 private:
  ShardWriter writer_;
  const std::vector<StoredTensor>& tensors_;
  int position_, slabs_ = 0;
  std::int64_t step_;
};

// Stores the slabs one after the other in a buffer.
class MemorySink : public Sink {
 public:
  explicit MemorySink(std::vector<std::byte>& buffer) : buffer_(buffer) {}
  std::byte* place(Index) override { return buffer_.data() + end_; }
  void taken(const Move&, Index, Index bytes) override { end_ += bytes; }
  void check() const override { ensure(end_ == Index(buffer_.size()), "the copy has {} bytes, but its buffer {}", end_, buffer_.size()); }

 private:
  std::vector<std::byte>& buffer_;
  Index end_ = 0;
};

// Writes the slabs that a MemorySink has stored to a file.
ManifestFile write_copy(ShardFile& file, const std::vector<Move>& boxes, const std::vector<StoredTensor>& tensors, const std::byte* data) {
  for (const Move& b : boxes) {
    const StoredTensor& t = tensors[b.tensor];
    const Index all = b.box.count[0], row = elements(b.box.count) / all * size_of(t.dtype), slab = slab_rows(t.dtype, b.box.count);
    for (Index first = 0; first < all; first += slab) {
      const Index rows = std::min(slab, all - first);
      file.write(b, rows, data);
      data += rows * row;
    }
  }
  return file.finish();
}

}  // namespace

Files files_of(const std::string& name) { return name == "rank" ? Files::rank : name == "node" ? Files::node : Files::single; }

Saver::Saver(std::filesystem::path folder, const SaveOptions& options, ModelState& state, std::vector<int> writers)
    : folder_(std::move(folder)), options_(options), state_(state),
      tensors_(std::make_unique<const std::vector<PlacedTensor>>(
          model_tensors(state.model(), state.precision(), state.grid().layout(), state.optimizer_config()))) {
  for (const PlacedTensor& t : *tensors_) stored_.push_back(stored_tensor(t));
  if (writers.empty()) writers = writers_of(options.files, state.grid());
  delivery_ = std::make_unique<const Delivery>(state, *tensors_, std::move(writers), options.files != Files::single);
  buffer_.resize(std::size_t(buffer_bytes()));
}

Saver::~Saver() = default;

Index Saver::buffer_bytes() const { return options_.async ? delivery_->bytes() : 0; }

// Copies the data that this rank writes (async), or writes it as it arrives. Returns the remaining work.
Saver::Write Saver::hand_over(const std::filesystem::path& shard, const CheckpointHeader& header) {
  Communicator& world = state_.grid().world();
  const bool writes = !delivery_->boxes().empty();
  const auto make_file = [this, shard, header, position = world.rank()] {
    return std::make_shared<ShardFile>(shard, header, options_.shard, stored_, position);
  };
  if (options_.async) {
    MemorySink sink(buffer_);
    delivery_->run(writes ? &sink : nullptr);
    if (!writes) return [] { return std::nullopt; };
    return [this, make_file] { return write_copy(*make_file(), delivery_->boxes(), stored_, buffer_.data()); };
  }
  std::shared_ptr<ShardFile> file;
  collective_check(world, [&] {
    if (writes) file = make_file();
  });
  collective_check(world, [&] {
    std::optional<FileSink> sink;
    if (writes) sink.emplace([&](const Move& b, Index rows, const void* data) { file->write(b, rows, data); });
    delivery_->run(sink ? &*sink : nullptr);
  });
  if (!writes) return [] { return std::nullopt; };
  return [file] { return file->finish(); };
}

void Saver::begin(CheckpointHeader header) {
  const Stopwatch watch(blocked_seconds_);
  Communicator& world = state_.grid().world();
  Manifest manifest{stamped(std::move(header), state_.precision(), state_.grid().layout()), stored_, {}, {}};
  const std::int64_t step = manifest.header.step;
  const std::filesystem::path target = checkpoint_path(folder_, step);

  std::unique_ptr<Transaction> transaction;  // not null on the first rank only
  collective_check(world, [&] {
    if (world.rank() != first_rank) return;
    remove_unfinished(folder_);
    transaction = std::make_unique<Transaction>(target, manifest.header, manifest.bytes());
  });
  fault_point("begin", world.rank(), step);
  Write write;
  try {
    write = hand_over(Transaction::temporary(target) / shard_name(world.rank()), manifest.header);
  } catch (...) {  // an error on one rank is thrown on every rank
    transaction.reset();
    world.barrier();
    throw;
  }
  fault_point("copied", world.rank(), step);
  in_flight_ = std::make_unique<Completion>(world, folder_, options_, std::move(manifest), std::move(transaction), std::move(write));
}

std::optional<Saved> Saver::save(CheckpointHeader header) {
  std::optional<Saved> before = finish();
  blocked_seconds_ = 0;
  begin(std::move(header));
  return options_.async ? std::move(before) : finish();
}

std::optional<Saved> Saver::poll() {
  if (!in_flight_) return {};
  bool done = false;
  try {
    const Stopwatch watch(blocked_seconds_);
    done = in_flight_->advance();
  } catch (...) {
    in_flight_.reset();
    throw;
  }
  return done ? ended() : std::nullopt;
}

std::optional<Saved> Saver::finish() {
  std::optional<Saved> saved;
  // The pause grows: ranks that poll constantly take CPU time from the rank that writes.
  for (auto pause = shortest_pause; in_flight_ && !(saved = poll()); pause = std::min(2 * pause, longest_pause)) {
    const Stopwatch watch(blocked_seconds_);
    std::this_thread::sleep_for(pause);
  }
  return saved;
}

std::optional<Saved> Saver::ended() {
  Saved saved = in_flight_->saved();
  in_flight_.reset();
  saved.blocked_seconds = std::exchange(blocked_seconds_, 0);
  // a synchronous save writes the data as it arrives, so the blocked time includes the writing
  if (!options_.async) saved.write_seconds = saved.blocked_seconds;
  return saved;
}

Index save_buffer_bytes(const ModelConfig& model, DType precision, const Layout& layout, int position, const OptimizerConfig& optimizer) {
  const auto tensors = model_tensors(model, precision, layout, optimizer);
  return bytes_of(contributed_boxes(tensors, layout, position, true), tensors);
}

Index checkpoint_bytes(const ModelConfig& model, DType precision, const Layout& layout, const OptimizerConfig& optimizer) {
  Index bytes = 0;
  for (const PlacedTensor& t : model_tensors(model, precision, layout, optimizer)) bytes += t.weight.size() * size_of(t.dtype);
  return bytes;
}

Saved save_checkpoint(const std::filesystem::path& folder, CheckpointHeader header, ModelState& state, const SaveOptions& options) {
  Saver saver(folder, options, state);
  std::optional<Saved> saved = saver.save(std::move(header));
  if (!saved) saved = saver.finish();
  return *saved;
}

}  // namespace gyr
