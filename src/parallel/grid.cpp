// SPDX-License-Identifier: BSD-3-Clause
#include "src/parallel/grid.hpp"

#include <algorithm>

namespace gyr {

namespace {

// Splits `comm` by color; returns MPI_COMM_NULL if color is MPI_UNDEFINED.
MPI_Comm split(MPI_Comm comm, int color, int key) {
  MPI_Comm part;
  MPI_Comm_split(comm, color, key, &part);
  return part;
}

}  // namespace

Grid::Grid(Layout layout, MPI_Comm world, WaitPolicy patience, ProgressRecord* progress_record)
    : layout_(std::move(layout)), patience_(patience), progress_record_(progress_record) {
  int ranks = 0, rank = 0;
  MPI_Comm_size(world, &ranks);
  MPI_Comm_rank(world, &rank);
  ensure(ranks == layout_.ranks(), "a layout of {} ranks on {} MPI ranks", layout_.ranks(), ranks);
  position_ = layout_.position_of(rank);

  // The permutation is applied by reordering the ranks. The Cartesian grid then keeps their order.
  plain_.comm = split(world, 0, position_);
  std::vector<int> sizes, periodic(layout_.axes.size(), 0);
  for (const LayoutAxis& axis : layout_.axes) sizes.push_back(axis.size);
  MPI_Comm cart;
  MPI_Cart_create(plain_, int(sizes.size()), sizes.data(), periodic.data(), 0, &cart);
  cart_.comm = cart;
  make_groups();
}

Grid Grid::dry_run(Layout layout, int position) {
  Grid grid(std::move(layout), position, DryRun{});
  grid.make_groups();
  return grid;
}

// Creates the groups that every run needs.
void Grid::make_groups() {
  group(all_axes), group(Axis::data), group(Axis::pipeline);
  if (size(Axis::context) > 1) group(Axis::context), group(token_axes);
  add_embedding_group();
  tensor_.emplace(group(Axis::tensor));
  add_team();
  add_experts();
}

MPI_Comm Grid::along(Axes axes) const {
  std::vector<int> keep;
  for (const LayoutAxis& a : layout_.axes) keep.push_back(axes.has(a.axis));
  MPI_Comm comm;
  if (axes == Axes{}) MPI_Comm_dup(MPI_COMM_SELF, &comm);  // MPICH returns a communicator without dimensions only on the first rank
  else MPI_Cart_sub(cart_, keep.data(), &comm);
  return comm;
}

// The given axes without those that the layout does not have.
Axes Grid::present(Axes axes) const {
  if (axes == all_axes) return axes;
  Axes some{};
  for (const LayoutAxis& a : layout_.axes)
    if (axes.has(a.axis)) some = some + a.axis;
  return some;
}

Communicator Grid::made(std::string name, std::unique_ptr<Transport> transport) {
  Communicator communicator(std::move(name), std::move(transport), progress_record_);
  communicator.record(recorder_);
  return communicator;
}

void Grid::record(Recorder* recorder) {
  recorder_ = recorder;
  visit([&](Communicator& c) { c.record(recorder); });
}

std::unique_ptr<Transport> Grid::transport_over(MPI_Comm comm) const { return backend::device_transport(mpi_transport(comm, patience_)); }

Communicator& Grid::group(Axes along_axes) {
  const Axes axes = present(along_axes);
  if (const auto known = groups_.find(axes); known != groups_.end()) return known->second.communicator;
  const MPI_Comm comm = is_dry_run() ? MPI_COMM_NULL : along(axes);
  auto transport = is_dry_run() ? dry_transport(coordinate(axes), size(axes)) : transport_over(comm);
  return groups_.emplace(axes, Group{comm, made(axes.text(), std::move(transport))}).first->second.communicator;
}

void Grid::add_embedding_group() {
  const int stages = size(Axis::pipeline), stage = coordinate(Axis::pipeline);
  const bool end = stages > 1 && (stage == 0 || stage == stages - 1);
  const MPI_Comm comm = is_dry_run() ? MPI_COMM_NULL : split(groups_.at(Axis::pipeline).comm, end ? 0 : MPI_UNDEFINED, stage);
  if (!end) return;
  embedding_group_.emplace(made("embedding", is_dry_run() ? dry_transport(stage == 0 ? 0 : 1, 2) : transport_over(comm)));
}

void Grid::add_team() {
  if (layout_.attention_ranks == 0) return;
  const int rank = coordinate(Axis::tensor);
  const Mixers mixers = layout_.mixers();
  const Span& team = mixers.team_of(rank);
  const MPI_Comm comm = is_dry_run() ? MPI_COMM_NULL : split(groups_.at(Axis::tensor).comm, int(team.first), rank);
  auto transport = is_dry_run() ? dry_transport(rank - int(team.first), int(team.size())) : transport_over(comm);
  team_.reset(new Group{comm, made(team == mixers.attention ? "attention" : "ssm", std::move(transport))});
  team_blocks_.emplace(team_->communicator);
}

void Grid::add_experts() {
  if (layout_.expert == 1) return;
  Communicator& all = group(token_axes);
  const int ranks = layout_.expert, rank = all.rank();
  const auto made_of = [&](const char* name, int size, int which, int color) {
    const bool single_rank = is_dry_run() || size == 1;
    return made(name, single_rank ? dry_transport(which, size) : transport_over(split(groups_.at(present(token_axes)).comm, color, which)));
  };
  experts_.emplace(made_of("expert", ranks, rank % ranks, rank / ranks));
  expert_replicas_.emplace(made_of("expert-replicas", all.size() / ranks, rank / ranks, rank % ranks));
}

Communicator& Grid::replicas(bool of_experts) { return of_experts && expert_replicas_ ? *expert_replicas_ : group(token_axes); }

Communicator& Grid::holders(HeldBy by) {
  if (const auto known = holders_.find(by); known != holders_.end()) return known->second;
  const std::vector<int> positions = layout_.holders(by, position_);
  const int rank = int(std::find(positions.begin(), positions.end(), position_) - positions.begin());
  auto transport = is_dry_run() ? dry_transport(rank, int(positions.size())) : transport_over(split(cart_, positions.front(), position_));
  return holders_.emplace(by, made(std::string(name_of(by)), std::move(transport))).first->second;
}

void Grid::add_blocks(BlockedCommunicator& ranks, const std::vector<int>& sizes) {
  const MPI_Comm comm = &ranks == team() ? team_->comm : groups_.at(Axis::tensor).comm;
  const int rank = ranks.rank();
  for (const int size : sizes) {
    if (ranks.has_block(size)) continue;
    auto transport = is_dry_run() ? dry_transport(rank % size, size) : transport_over(split(comm, rank / size, rank));
    ranks.add_block(size, made(fmt::format("{}/{}", ranks.full().name(), size), std::move(transport)));
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
  for (Owned* owned : {&plain_, &cart_})
    if (owned->comm != MPI_COMM_NULL) MPI_Comm_free(&owned->comm);
}

}  // namespace gyr
