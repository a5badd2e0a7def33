// SPDX-License-Identifier: BSD-3-Clause
#include "src/parallel/grid.hpp"

namespace gyr {

namespace {

MPI_Comm along(MPI_Comm cart, const Layout& layout, const std::string& name) {
  std::vector<int> keep;
  for (const LayoutAxis& axis : layout.axes) keep.push_back(axis.name == name);
  MPI_Comm sub;
  MPI_Cart_sub(cart, keep.data(), &sub);
  return sub;
}

// Ranks of `comm` of one color; MPI_COMM_NULL where color is MPI_UNDEFINED.
MPI_Comm split(MPI_Comm comm, int color, int key) {
  MPI_Comm part;
  MPI_Comm_split(comm, color, key, &part);
  return part;
}

}  // namespace

Grid::Grid(Layout layout, MPI_Comm world, Patience patience, Beacon* beacon) : layout_(std::move(layout)), patience_(patience), beacon_(beacon) {
  int ranks = 0, rank = 0;
  MPI_Comm_size(world, &ranks);
  MPI_Comm_rank(world, &rank);
  ensure(ranks == layout_.ranks(), "a layout of {} ranks on {}", layout_.ranks(), ranks);
  position_ = layout_.position_of(rank);

  // The permutation is the order of the ranks; the Cartesian grid then numbers them as they stand.
  plain_.comm = split(world, 0, position_);
  std::vector<int> sizes, periodic(layout_.axes.size(), 0);
  for (const LayoutAxis& axis : layout_.axes) sizes.push_back(axis.size);
  MPI_Comm cart;
  MPI_Cart_create(plain_, int(sizes.size()), sizes.data(), periodic.data(), 0, &cart);
  cart_.comm = cart;

  const auto communicator = [&](std::string name, MPI_Comm comm) { return Communicator(std::move(name), mpi_transport(comm, patience), beacon); };
  MPI_Comm all;
  MPI_Comm_dup(cart_, &all);
  world_.emplace(communicator("world", all));
  data_.emplace(communicator("data", along(cart_, layout_, "data")));
  const MPI_Comm pipeline = along(cart_, layout_, "pipeline");
  const int stages = layout_.size("pipeline"), stage = coordinate("pipeline");
  const bool end = stages > 1 && (stage == 0 || stage == stages - 1);
  const MPI_Comm embedding_group = split(pipeline, end ? 0 : MPI_UNDEFINED, stage);
  if (end) embedding_group_.emplace(communicator("embedding", embedding_group));
  pipeline_.emplace(communicator("pipeline", pipeline));
  const MPI_Comm tensor = along(cart_, layout_, "tensor");
  MPI_Comm_dup(tensor, &tensor_cart_.comm);
  tensor_.emplace(communicator("tensor", tensor));
}

Grid Grid::dry_run(Layout layout, int position) {
  Grid grid(std::move(layout), position, DryRun{});
  const auto communicator = [&](std::string name, int size, int rank) { return Communicator(std::move(name), dry_transport(rank, size)); };
  const auto axis = [&](std::string name) { return communicator(name, grid.layout_.size(name), grid.coordinate(name)); };
  grid.world_.emplace(communicator("world", grid.layout_.ranks(), position));
  grid.data_.emplace(axis("data"));
  grid.pipeline_.emplace(axis("pipeline"));
  grid.tensor_.emplace(axis("tensor"));
  const int stages = grid.layout_.size("pipeline"), stage = grid.coordinate("pipeline");
  if (stages > 1 && (stage == 0 || stage == stages - 1)) grid.embedding_group_.emplace(communicator("embedding", 2, stage == 0 ? 0 : 1));
  return grid;
}

void Grid::add_tensor_blocks(const std::vector<int>& sizes) {
  const int rank = tensor_->rank();
  for (const int size : sizes) {
    if (tensor_->has_block(size)) continue;
    auto transport = is_dry_run() ? dry_transport(rank % size, size) : mpi_transport(split(tensor_cart_, rank / size, rank), patience_);
    tensor_->add_block(size, Communicator(fmt::format("tensor/{}", size), std::move(transport), beacon_));
  }
}

MPI_Comm Grid::duplicate() const {
  MPI_Comm comm;
  MPI_Comm_dup(plain_, &comm);
  return comm;
}

Grid::~Grid() {
  int finalized = 0;
  MPI_Finalized(&finalized);
  if (finalized) return;
  for (Owned* owned : {&plain_, &cart_, &tensor_cart_})
    if (owned->comm != MPI_COMM_NULL) MPI_Comm_free(&owned->comm);
}

std::string suitable_grids(int ranks, Index layers, const std::vector<Index>& units) {
  std::string list;
  for (int tensor = 1; tensor <= ranks; ++tensor) {
    bool fits = ranks % tensor == 0;
    for (const Index n : units) fits = fits && (n % tensor == 0 || tensor % n == 0);
    if (!fits) continue;
    for (int pipeline = 1; pipeline <= ranks / tensor; ++pipeline)
      if (ranks / tensor % pipeline == 0 && pipeline <= layers)
        list += fmt::format("{}{}x{}x{}", list.empty() ? "" : ", ", ranks / tensor / pipeline, pipeline, tensor);
  }
  return list;
}

}  // namespace gyr
