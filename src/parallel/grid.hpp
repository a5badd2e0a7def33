// SPDX-License-Identifier: BSD-3-Clause
// The ranks of a layout as an MPI Cartesian grid, with a communicator for each group of ranks that differ only along
// given axes.
#pragma once

#include <mpi.h>

#include <map>
#include <memory>
#include <optional>

#include "kernels/comm/blocked_communicator.hpp"
#include "kernels/comm/mpi/transport.hpp"
#include "src/parallel/layout.hpp"

namespace gyr {

class Grid {
 public:
  // Collective over `world`, whose size must be that of the layout. `patience`: how all ranks on this machine wait
  // (spin or yield). `progress_record`: receives the current task of this rank and the communication it waits for; may be null,
  // and must outlive the grid.
  Grid(Layout layout, MPI_Comm world, WaitPolicy patience, ProgressRecord* progress_record = nullptr);
  // The grid at a position, without communication: for planning.
  static Grid dry_run(Layout layout, int position);

  const Layout& layout() const { return layout_; }
  int position() const { return position_; }
  int size(Axes along) const { return layout_.size(along); }
  int coordinate(Axes along) const { return layout_.coordinate(position_, along); }
  bool is_dry_run() const { return cart_ == MPI_COMM_NULL; }
  // Records the current task of this rank for the processes that monitor it. `task`: a string literal.
  void begin_task(const char* task, std::int64_t micro = -1) {
    if (progress_record_) progress_record_->task(task, micro);
  }
  // Records the transfers of all communicators from now on; null stops recording. The recorder must outlive the events.
  // Other code that records transfers obtains it from recorder().
  void record(Recorder* recorder);
  Recorder* recorder() { return recorder_; }

  // Communicator of this rank and the ranks that differ from it only along these axes, ordered by position. It is
  // created on first use, which is collective over the grid: all ranks must request the same groups in the same order.
  // The constructor creates the groups that every run needs.
  Communicator& group(Axes);
  Communicator& world() { return group(all_axes); }
  BlockedCommunicator& tensor() { return *tensor_; }
  // Tensor-parallel ranks that compute the same mixer as this one; null if every rank computes both mixers.
  BlockedCommunicator* team() { return team_blocks_ ? &*team_blocks_ : nullptr; }
  // Expert-parallel ranks, and ranks with the same experts as this one; null if every rank has all experts.
  Communicator* experts() { return experts_ ? &*experts_ : nullptr; }
  Communicator* expert_replicas() { return expert_replicas_ ? &*expert_replicas_ : nullptr; }
  // Ranks with other tokens that hold the same weights as this one: expert weights, or all other weights.
  Communicator& replicas(bool of_experts);
  // Ranks of the stage that hold the same weights, whatever their axes, ordered by position. Created on first use, like
  // group().
  Communicator& holders(HeldBy);
  // First and last pipeline stage, which share a tied embedding; null on other stages and if there is only one stage.
  Communicator* embedding_group() { return embedding_group_ ? &*embedding_group_ : nullptr; }

  // Creates sub-communicators of `sizes` neighbouring ranks (blocks) in the tensor-parallel group, or in this rank's
  // team: the ranks that compute the same mixer. The ranks of a block hold the same unit of a weight with fewer units
  // (heads or groups) than ranks. Collective over the group or team.
  void add_blocks(BlockedCommunicator&, const std::vector<int>& sizes);
  // Plain duplicate of the communicator with ranks ordered by position, for file libraries (some corrupt data on
  // Cartesian communicators).
  MPI_Comm duplicate() const;

  template <class Visit>
  void visit(Visit&& visit) {
    for (auto group = groups_.rbegin(); group != groups_.rend(); ++group)  // visit the groups of inner axes first
      if (group->first == Axis::tensor) tensor_->visit(visit);
      else visit(group->second.communicator);
    if (team_blocks_) team_blocks_->visit(visit);
    for (auto* some : {&experts_, &expert_replicas_, &embedding_group_})
      if (*some) visit(**some);
    for (auto& [by, holders] : holders_) visit(holders);
  }

  Grid(Grid&&) = default;
  Grid& operator=(Grid&&) = delete;
  ~Grid();

 private:
  struct DryRun {};
  Grid(Layout layout, int position, DryRun) : layout_(std::move(layout)), position_(position) {}
  Axes present(Axes) const;
  MPI_Comm along(Axes) const;
  void make_groups();
  std::unique_ptr<Transport> transport_over(MPI_Comm) const;  // takes ownership of the MPI communicator
  Communicator made(std::string name, std::unique_ptr<Transport>);
  void add_embedding_group();
  void add_team();
  void add_experts();

  Layout layout_;
  int position_ = 0;
  struct Owned {
    MPI_Comm comm = MPI_COMM_NULL;
    Owned() = default;
    Owned(MPI_Comm c) : comm(c) {}
    Owned(Owned&& o) noexcept : comm(std::exchange(o.comm, MPI_COMM_NULL)) {}
    operator MPI_Comm() const { return comm; }
  };
  Owned plain_, cart_;
  struct Group {
    MPI_Comm comm;  // MPI handle, owned by `communicator`
    Communicator communicator;
  };
  std::map<Axes, Group> groups_;
  std::optional<Communicator> embedding_group_, experts_, expert_replicas_;
  std::map<HeldBy, Communicator> holders_;
  std::optional<BlockedCommunicator> tensor_;
  std::unique_ptr<Group> team_;  // group on the heap, because its blocks point to it
  std::optional<BlockedCommunicator> team_blocks_;
  WaitPolicy patience_ = WaitPolicy::spin;
  ProgressRecord* progress_record_ = nullptr;
  Recorder* recorder_ = nullptr;
};

}  // namespace gyr
