// SPDX-License-Identifier: BSD-3-Clause
#include "src/train/policy_generator.hpp"

#include <algorithm>
#include <utility>

#include "kernels/comm/mpi/transport.hpp"
#include "src/checkpoint/catalogue.hpp"
#include "src/train/peer_wait.hpp"

namespace gyr {

namespace {

constexpr Index largest_message = Index(32) << 20, smallest_message = 4096;

// Lowest number of ranks on a node.
int ranks_per_node(MPI_Comm world) {
  MPI_Comm node;
  MPI_Comm_split_type(world, MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL, &node);
  int size = 0;
  MPI_Comm_size(node, &size);
  MPI_Comm_free(&node);
  MPI_Allreduce(MPI_IN_PLACE, &size, 1, MPI_INT, MPI_MIN, world);
  return size;
}

}  // namespace

MovePlan generation_moves(const ModelConfig& model, DType precision, const Trained& trained, const Layout& training, const GenerationPlace& place,
                          int ranks_per_node) {
  return moves(placed_weights(model, {precision, trained, true}, training, place.training),
               placed_weights(model, {place.precision}, place.layout, place.mesh), ranks_per_node);
}

GeneratorBytes generation_bytes(const ModelConfig& model, const GenerationPlace& place, const GeneratorCapacity& limits, int rank) {
  const std::optional<int> here = place.mesh.index_of(rank);
  if (!here) return {};
  Grid grid = Grid::dry_run(place.layout, place.layout.position_of(*here));
  GeneratorBytes bytes = Generator::bytes_of(model, place.precision, grid, limits);
  if (place.borrows) bytes.weights = 0;
  return bytes;
}

PolicyGenerator::PolicyGenerator(ModelState* trained, GenerationPlace place, MPI_Comm world, const Arena& working, ProgressRecord& progress_record,
                                 const std::filesystem::path& output)
    : trained_(trained), place_(std::move(place)), working_(working), progress_record_(progress_record), peers_(output, place_.mesh.ranks),
      patience_(wait_policy_of(world)), mesh_(communicator_of(place_.mesh, world)) {
  MPI_Comm run;
  MPI_Comm_dup(world, &run);
  world_ = std::make_unique<Communicator>("moves", backend::device_transport(mpi_transport(run, patience_)), &progress_record);
  message_bytes_ = common_message_bytes();
}

PolicyGenerator::PolicyGenerator(ModelState& trained, GenerationPlace place, const GeneratorCapacity& limits, MPI_Comm world, const Arena& working,
                                 ProgressRecord& progress_record, const std::filesystem::path& output)
    : PolicyGenerator(&trained, std::move(place), world, working, progress_record, output) {
  begin(trained.model(), trained.precision(), trained.trained(), trained.grid().layout(), limits, world, progress_record);
}

PolicyGenerator::PolicyGenerator(const EngineConfig& trained, const Layout& training, GenerationPlace place, const GeneratorCapacity& limits,
                                 MPI_Comm world, const Arena& working, ProgressRecord& progress_record, const std::filesystem::path& output)
    : PolicyGenerator(nullptr, std::move(place), world, working, progress_record, output) {
  begin(trained.model, trained.precision, trained.optimizer.trained(), training, limits, world, progress_record);
}

void PolicyGenerator::begin(const ModelConfig& model, DType precision, const Trained& trained, const Layout& training,
                            const GeneratorCapacity& limits, MPI_Comm world, ProgressRecord& progress_record) {
  if (!place_.borrows) moves_ = generation_moves(model, precision, trained, training, place_, ranks_per_node(world));
  if (mesh_ == MPI_COMM_NULL) return;
  grid_ = std::make_unique<Grid>(place_.layout, mesh_, patience_, &progress_record);
  generator_ = place_.borrows ? std::make_unique<Generator>(*trained_, *grid_, limits, &working_)
                              : std::make_unique<Generator>(model, place_.precision, *grid_, limits, &working_);
  service_ = std::make_unique<GenerationService>(*generator_);
}

PolicyGenerator::~PolicyGenerator() {
  service_.reset(), generator_.reset(), grid_.reset(), world_.reset();
  if (mesh_ != MPI_COMM_NULL) MPI_Comm_free(&mesh_);
}

std::vector<GeneratedText> PolicyGenerator::generate(const std::vector<Request>& requests, const Sampling& sampling) {
  if (trained_) trained_->device().fence();  // engine and generator use the same working memory, in streams of their own
  write(requests, sampling);
  return shared();
}

void PolicyGenerator::write(const std::vector<Request>& requests, const Sampling& sampling) {
  if (service_) texts_ = service_->serve(requests, sampling), generator_->fence();
}

// Largest message of which four fit in the working memory of every rank. Senders and receivers must agree on it.
Index PolicyGenerator::common_message_bytes() const {
  const Index here = working_.capacity() / 4 / 256 * 256 - 256;
  return std::min(largest_message, Index(-world_->max(-double(here))));
}

void PolicyGenerator::update() {
  // All parameters are complete once they have been asked for; messages use memory of the passes, of which none runs now.
  MoveSource from;
  if (trained_) {
    from = {trained_->parameters(), [this](const Parameter& p, Content content) { return trained_->tensor(p, content); }};
    trained_->device().fence();
  }
  MoveDestination to;
  if (generator_) to.parameters = generator_->stage().parameters().all();
  Mover mover(*moves_, *world_, std::move(from), std::move(to), std::max(message_bytes_, smallest_message),
              message_bytes_ < smallest_message ? nullptr : &working_);
  mover.finish();
}

// Ranks that do not generate wait until the others have finished.
void PolicyGenerator::await_answers() {
  const int first = *place_.mesh.ranks.begin();
  double done = 0;
  if (!service_) {
    Event arrived = world_->start_receive<double>(device(), Tensor1<double>(&done, 1), first);
    return wait_for(arrived, peers_, progress_record_);
  }
  if (world_->rank() != first) return;
  for (int rank = 0; rank < world_->size(); ++rank)
    if (!place_.mesh.index_of(rank)) world_->start_send<double>(device(), Tensor1<const double>(&done, 1), rank).host_wait();
}

std::vector<GeneratedText> PolicyGenerator::shared() {
  std::vector<GeneratedText> texts = std::exchange(texts_, {});
  if (place_.mesh.size() == world_->size()) return texts;
  await_answers();
  std::vector<double> all;
  for (const GeneratedText& text : texts) {
    all.insert(all.end(), {double(text.id), double(text.sample)});
    append_values(text, all);
  }
  all.resize(std::size_t(world_->max(double(all.size()))));
  world_->start_broadcast(device(), Tensor1<double>(all.data(), Index(all.size())), place_.mesh.ranks.front()).host_wait();
  if (service_) return texts;
  for (const double* from = all.data(); from < all.data() + all.size();) {
    const Index id = Index(from[0]), sample = Index(from[1]);
    texts.push_back(text_of_values(id, sample, from += 2));
  }
  return texts;
}

}  // namespace gyr
