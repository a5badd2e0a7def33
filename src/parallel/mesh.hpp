// SPDX-License-Identifier: BSD-3-Clause
// The ranks that a model lives on: any subset of the ranks of a run. A layout on a mesh counts its ranks from 0.
#pragma once

#include <mpi.h>

#include <optional>
#include <string>
#include <vector>

namespace gyr {

struct Mesh {
  std::vector<int> ranks;  // ranks of the run, ascending

  static Mesh of_all(int ranks);
  // Reads "all", or ranks and ranges such as "0-3,6", for a run of `ranks` ranks. Empty if the text has another form, names
  // a rank twice, or a rank that the run does not have.
  static std::optional<Mesh> read(const std::string& text, int ranks);

  int size() const { return int(ranks.size()); }
  std::optional<int> index_of(int rank) const;  // number of a rank of the run among those of the mesh; empty: it is not in the mesh
  std::string text() const;                     // as read() reads it: "0-3,6"
  bool operator==(const Mesh&) const = default;
};

// Communicator of the ranks of a mesh, in its order; MPI_COMM_NULL on the other ranks. The caller frees it. Collective over
// `world`.
MPI_Comm communicator_of(const Mesh&, MPI_Comm world);

}  // namespace gyr
