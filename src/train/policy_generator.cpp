// SPDX-License-Identifier: BSD-3-Clause
#include "src/train/policy_generator.hpp"

#include <algorithm>

#include "kernels/comm/mpi/transport.hpp"
#include "src/checkpoint/catalogue.hpp"

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
  return moves(placed_weights(model, {precision, trained, true}, training, Mesh::of_all(training.ranks())),
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

PolicyGenerator::PolicyGenerator(ModelState& trained, GenerationPlace place, const GeneratorCapacity& limits, MPI_Comm world, const Arena& working,
                                 ProgressRecord& progress_record)
    : trained_(trained), place_(std::move(place)), working_(working), mesh_(communicator_of(place_.mesh, world)) {
  MPI_Comm run;
  MPI_Comm_dup(world, &run);
  const WaitPolicy patience = wait_policy_of(world);
  world_ = std::make_unique<Communicator>("moves", backend::device_transport(mpi_transport(run, patience)), &progress_record);
  message_bytes_ = common_message_bytes();
  const ModelConfig& model = trained_.model();
  if (!place_.borrows)
    moves_ = generation_moves(model, trained_.precision(), trained_.trained(), trained_.grid().layout(), place_, ranks_per_node(world));
  if (mesh_ == MPI_COMM_NULL) return;
  grid_ = std::make_unique<Grid>(place_.layout, mesh_, patience, &progress_record);
  generator_ = place_.borrows ? std::make_unique<Generator>(trained_, *grid_, limits, &working_)
                              : std::make_unique<Generator>(model, place_.precision, *grid_, limits, &working_);
  service_ = std::make_unique<GenerationService>(*generator_);
}

PolicyGenerator::~PolicyGenerator() {
  service_.reset(), generator_.reset(), grid_.reset(), world_.reset();
  if (mesh_ != MPI_COMM_NULL) MPI_Comm_free(&mesh_);
}

std::vector<GeneratedText> PolicyGenerator::generate(const std::vector<Request>& requests, const Sampling& sampling) {
  trained_.device().fence();  // engine and generator use the same working memory, in streams of their own
  std::vector<GeneratedText> texts;
  if (service_) texts = service_->serve(requests, sampling), generator_->fence();
  share(requests, texts);
  return texts;
}

// Largest message of which four fit in the working memory of every rank. Senders and receivers must agree on it.
Index PolicyGenerator::common_message_bytes() const {
  const Index here = working_.capacity() / 4 / 256 * 256 - 256;
  return std::min(largest_message, Index(-world_->max(-double(here))));
}

void PolicyGenerator::update() {
  // All parameters are complete once they have been asked for; messages use memory of the passes, of which none runs now.
  MoveSource from{trained_.parameters(), [this](const Parameter& p, Content content) { return trained_.tensor(p, content); }};
  trained_.device().fence();
  MoveDestination to;
  if (generator_) to.parameters = generator_->stage().parameters().all();
  Mover mover(*moves_, *world_, std::move(from), std::move(to), std::max(message_bytes_, smallest_message),
              message_bytes_ < smallest_message ? nullptr : &working_);
  mover.finish();
}

void PolicyGenerator::share(const std::vector<Request>& requests, std::vector<GeneratedText>& texts) {
  if (place_.mesh.size() == world_->size()) return;
  const int first = place_.mesh.ranks.front();
  std::vector<double> all;
  for (const GeneratedText& text : texts) append_values(text, all);
  all.resize(std::size_t(world_->max(double(all.size()))));
  world_->start_broadcast(trained_.device(), Tensor1<double>(all.data(), Index(all.size())), first).host_wait();
  if (service_) return;
  const double* from = all.data();
  for (const Request& request : requests)
    for (Index sample = 0; sample < request.samples; ++sample) texts.push_back(text_of_values(request.id, sample, from));
}

}  // namespace gyr
