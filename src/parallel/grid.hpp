// SPDX-License-Identifier: BSD-3-Clause
// The ranks of a layout as an MPI Cartesian grid, with a communicator for each axis.
#pragma once

#include <mpi.h>

#include <memory>
#include <optional>

#include "kernels/axis.hpp"
#include "kernels/mpi/transport.hpp"
#include "src/parallel/layout.hpp"

namespace gyr {

class Grid {
 public:
  // Collective over `world`, whose size must be the layout's. `patience`: of all the job's ranks on this machine. `beacon`: told what
  // this rank does and waits for; may be null, and outlives the grid.
  Grid(Layout layout, MPI_Comm world, Patience patience, Beacon* beacon = nullptr);
  // The same place without communication: for plans.
  static Grid dry_run(Layout layout, int position);

  const Layout& layout() const { return layout_; }
  int position() const { return position_; }
  int coordinate(const std::string& axis) const { return layout_.coordinate(position_, axis); }
  bool is_dry_run() const { return cart_ == MPI_COMM_NULL; }
  // What this rank does from now on, for those who watch it. `task`: a literal.
  void tell(const char* task, std::int64_t micro = -1) {
    if (beacon_) beacon_->task(task, micro);
  }

  Communicator& world() { return *world_; }  // all ranks, in the order of positions
  Axis& tensor() { return *tensor_; }
  Communicator& pipeline() { return *pipeline_; }
  Communicator& data() { return *data_; }
  // First and last stage, which share a tied embedding: null on the others and where they are one.
  Communicator* embedding_group() { return embedding_group_ ? &*embedding_group_ : nullptr; }

  // Makes the blocks of the tensor axis that weights with fewer units than ranks need. Collective over the tensor axis.
  void add_tensor_blocks(const std::vector<int>& sizes);
  // Plain duplicate of the ranks in the order of positions, for file libraries (some corrupt data on Cartesian communicators).
  MPI_Comm duplicate() const;

  template <class Visit>
  void visit(Visit&& visit) {
    tensor_->visit(visit);
    visit(*pipeline_);
    visit(*data_);
    if (embedding_group_) visit(*embedding_group_);
  }

  Grid(Grid&&) = default;
  Grid& operator=(Grid&&) = delete;
  ~Grid();

 private:
  struct DryRun {};
  Grid(Layout layout, int position, DryRun) : layout_(std::move(layout)), position_(position) {}
  Layout layout_;
  int position_ = 0;
  struct Owned {
    MPI_Comm comm = MPI_COMM_NULL;
    Owned() = default;
    Owned(MPI_Comm c) : comm(c) {}
    Owned(Owned&& o) noexcept : comm(std::exchange(o.comm, MPI_COMM_NULL)) {}
    operator MPI_Comm() const { return comm; }
  };
  Owned plain_, cart_, tensor_cart_;
  std::optional<Communicator> world_, pipeline_, data_, embedding_group_;
  std::optional<Axis> tensor_;
  Patience patience_ = Patience::spin;
  Beacon* beacon_ = nullptr;
};

// Factorisations data x pipeline x tensor of `ranks` that suit: for the message of a grid that does not.
std::string suitable_grids(int ranks, Index layers, const std::vector<Index>& units);

}  // namespace gyr
