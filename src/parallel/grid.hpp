// SPDX-License-Identifier: BSD-3-Clause
// The ranks of a layout as an MPI Cartesian grid, with communicators of those among them that differ along given axes.
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
  // Collective over `world`, whose size must be the layout's. `patience`: of all the job's ranks on this machine. `beacon`: told what
  // this rank does and waits for; may be null, and outlives the grid.
  Grid(Layout layout, MPI_Comm world, WaitPolicy patience, ProgressRecord* progress_record = nullptr);
  // The same place without communication: for plans.
  static Grid dry_run(Layout layout, int position);

  const Layout& layout() const { return layout_; }
  int position() const { return position_; }
  int size(Axes along) const { return layout_.size(along); }
  int coordinate(Axes along) const { return layout_.coordinate(position_, along); }
  bool is_dry_run() const { return cart_ == MPI_COMM_NULL; }
  // What this rank does from now on, for those who watch it. `task`: a literal.
  void begin_task(const char* task, std::int64_t micro = -1) {
    if (progress_record_) progress_record_->task(task, micro);
  }
  // Records what all communicators transfer from now on, and what others do who ask for the recorder; null: no more. It outlives the events.
  void record(Recorder* recorder);
  Recorder* recorder() { return recorder_; }

  // This rank and those that differ from it only along these axes, in the order of positions. A communicator is made when it is first asked
  // for, which is collective over the grid: all ranks ask for the same ones in the same order. Those of each axis and of all are made at once.
  Communicator& group(Axes);
  Communicator& world() { return group(all_axes); }
  BlockedCommunicator& tensor() { return *tensor_; }
  // The ranks of the tensor axis that work on the same mixer as this one; null where all work on both.
  BlockedCommunicator* team() { return team_blocks_ ? &*team_blocks_ : nullptr; }
  // The ranks with other tokens that deal experts among themselves, and those that have the same experts: null where every rank has all.
  Communicator* experts() { return experts_ ? &*experts_ : nullptr; }
  Communicator* expert_replicas() { return expert_replicas_ ? &*expert_replicas_ : nullptr; }
  // Those that hold the same of experts, or of what else there is, and work on other tokens.
  Communicator& replicas(bool of_experts);
  // First and last stage, which share a tied embedding: null on the others and where they are one.
  Communicator* embedding_group() { return embedding_group_ ? &*embedding_group_ : nullptr; }

  // Makes the blocks of the tensor axis, or of this rank's team, that weights with fewer units than ranks need. Collective over these ranks.
  void add_blocks(BlockedCommunicator&, const std::vector<int>& sizes);
  // Plain duplicate of the ranks in the order of positions, for file libraries (some corrupt data on Cartesian communicators).
  MPI_Comm duplicate() const;

  template <class Visit>
  void visit(Visit&& visit) {
    for (auto group = groups_.rbegin(); group != groups_.rend(); ++group)  // of inner axes first
      if (group->first == Axis::tensor) tensor_->visit(visit);
      else visit(group->second.communicator);
    if (team_blocks_) team_blocks_->visit(visit);
    for (auto* some : {&experts_, &expert_replicas_, &embedding_group_})
      if (*some) visit(**some);
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
  std::unique_ptr<Transport> transport_over(MPI_Comm) const;  // takes it over
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
    MPI_Comm comm;  // the communicator's own
    Communicator communicator;
  };
  std::map<Axes, Group> groups_;
  std::optional<Communicator> embedding_group_, experts_, expert_replicas_;
  std::optional<BlockedCommunicator> tensor_;
  std::unique_ptr<Group> team_;  // of one place, which its blocks point to
  std::optional<BlockedCommunicator> team_blocks_;
  WaitPolicy patience_ = WaitPolicy::spin;
  ProgressRecord* progress_record_ = nullptr;
  Recorder* recorder_ = nullptr;
};

}  // namespace gyr
