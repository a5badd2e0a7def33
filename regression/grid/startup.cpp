// SPDX-License-Identifier: BSD-3-Clause
// MPI calls of a run before its first step do not grow with the number of ranks. Communicators are created per axis,
// and ranks exchange data a fixed number of times. The calls are counted through the MPI profiling interface.
#include <mpi.h>

#include "regression/support/grids.hpp"
#include "regression/support/shared_folder.hpp"
#include "regression/support/testing.hpp"
#include "src/data/token_writer.hpp"
#include "src/train/trainer.hpp"

namespace {

// MPI calls of this rank.
struct Count {
  int communicators = 0;  // created ones that contain this rank
  int barriers = 0;
  int wide = 0, narrow = 0;  // other collectives: over all ranks of the job, and over fewer
};

struct Counting {
  Count count;
  int ranks = 0;  // ranks of the job; 0 disables counting
  int outer = 0;  // the same while MPI_Pcontrol has disabled counting
} counting;       // global, because the MPI profiling interface passes no argument

int made(int error, const MPI_Comm* comm) {
  if (counting.ranks > 0 && *comm != MPI_COMM_NULL) ++counting.count.communicators;
  return error;
}

void expect_startup(MPI_Comm comm) {
  if (counting.ranks == 0) return;
  int size = 0;
  PMPI_Comm_size(comm, &size);
  ++(size == counting.ranks ? counting.count.wide : counting.count.narrow);
}

void met() { counting.count.barriers += counting.ranks > 0; }

}  // namespace

// These functions replace those of the MPI library, which they call through PMPI.
extern "C" {
int MPI_Pcontrol(const int level, ...) {
  if ((level == 0) != (counting.ranks == 0)) std::swap(counting.ranks, counting.outer);
  return MPI_SUCCESS;
}

int MPI_Comm_dup(MPI_Comm c, MPI_Comm* n) { return made(PMPI_Comm_dup(c, n), n); }
int MPI_Comm_dup_with_info(MPI_Comm c, MPI_Info i, MPI_Comm* n) { return made(PMPI_Comm_dup_with_info(c, i, n), n); }
int MPI_Comm_idup(MPI_Comm c, MPI_Comm* n, MPI_Request* r) { return made(PMPI_Comm_idup(c, n, r), n); }
int MPI_Comm_split(MPI_Comm c, int color, int key, MPI_Comm* n) { return made(PMPI_Comm_split(c, color, key, n), n); }
int MPI_Comm_split_type(MPI_Comm c, int type, int key, MPI_Info i, MPI_Comm* n) { return made(PMPI_Comm_split_type(c, type, key, i, n), n); }
int MPI_Comm_create(MPI_Comm c, MPI_Group g, MPI_Comm* n) { return made(PMPI_Comm_create(c, g, n), n); }
int MPI_Comm_create_group(MPI_Comm c, MPI_Group g, int tag, MPI_Comm* n) { return made(PMPI_Comm_create_group(c, g, tag, n), n); }
int MPI_Cart_create(MPI_Comm c, int d, const int* s, const int* p, int order, MPI_Comm* n) { return made(PMPI_Cart_create(c, d, s, p, order, n), n); }
int MPI_Cart_sub(MPI_Comm c, const int* keep, MPI_Comm* n) { return made(PMPI_Cart_sub(c, keep, n), n); }

int MPI_Barrier(MPI_Comm c) { return met(), PMPI_Barrier(c); }
int MPI_Ibarrier(MPI_Comm c, MPI_Request* r) { return met(), PMPI_Ibarrier(c, r); }

int MPI_Bcast(void* x, int n, MPI_Datatype t, int root, MPI_Comm c) { return expect_startup(c), PMPI_Bcast(x, n, t, root, c); }
int MPI_Ibcast(void* x, int n, MPI_Datatype t, int root, MPI_Comm c, MPI_Request* r) { return expect_startup(c), PMPI_Ibcast(x, n, t, root, c, r); }
int MPI_Reduce(const void* x, void* y, int n, MPI_Datatype t, MPI_Op o, int root, MPI_Comm c) {
  return expect_startup(c), PMPI_Reduce(x, y, n, t, o, root, c);
}
int MPI_Allreduce(const void* x, void* y, int n, MPI_Datatype t, MPI_Op o, MPI_Comm c) { return expect_startup(c), PMPI_Allreduce(x, y, n, t, o, c); }
int MPI_Iallreduce(const void* x, void* y, int n, MPI_Datatype t, MPI_Op o, MPI_Comm c, MPI_Request* r) {
  return expect_startup(c), PMPI_Iallreduce(x, y, n, t, o, c, r);
}
int MPI_Ireduce_scatter_block(const void* x, void* y, int n, MPI_Datatype t, MPI_Op o, MPI_Comm c, MPI_Request* r) {
  return expect_startup(c), PMPI_Ireduce_scatter_block(x, y, n, t, o, c, r);
}
int MPI_Gather(const void* x, int n, MPI_Datatype t, void* y, int m, MPI_Datatype u, int root, MPI_Comm c) {
  return expect_startup(c), PMPI_Gather(x, n, t, y, m, u, root, c);
}
int MPI_Allgather(const void* x, int n, MPI_Datatype t, void* y, int m, MPI_Datatype u, MPI_Comm c) {
  return expect_startup(c), PMPI_Allgather(x, n, t, y, m, u, c);
}
int MPI_Iallgather(const void* x, int n, MPI_Datatype t, void* y, int m, MPI_Datatype u, MPI_Comm c, MPI_Request* r) {
  return expect_startup(c), PMPI_Iallgather(x, n, t, y, m, u, c, r);
}
int MPI_Ialltoall(const void* x, int n, MPI_Datatype t, void* y, int m, MPI_Datatype u, MPI_Comm c, MPI_Request* r) {
  return expect_startup(c), PMPI_Ialltoall(x, n, t, y, m, u, c, r);
}
int MPI_Ialltoallv(const void* x, const int* n, const int* d, MPI_Datatype t, void* y, const int* m, const int* e, MPI_Datatype u, MPI_Comm c,
                   MPI_Request* r) {
  return expect_startup(c), PMPI_Ialltoallv(x, n, d, t, y, m, e, u, c, r);
}
int MPI_Alltoall(const void* x, int n, MPI_Datatype t, void* y, int m, MPI_Datatype u, MPI_Comm c) {
  return expect_startup(c), PMPI_Alltoall(x, n, t, y, m, u, c);
}
}

namespace gyr::testing::startup_suite {
namespace {

// There are fewer key heads and groups than tensor-parallel ranks. The tensor axis of 8 ranks then has sub-groups of 2
// and of 4 ranks.
ModelConfig model() {
  ModelConfig m = widened(named("T2"));
  m.attention.num_kv_heads = 4, m.mamba.num_groups = 2;
  return m;
}

RunConfig run_on(const Layout& layout, const SharedFolder& folder, const std::string& name) {
  Deck deck = Deck::parse("train: {global_batch_size: 8, seq_length: 8, steps: 2}\ncheckpoint: {every: 1, files: node}\nmodel: {pattern: P x 8}\n",
                          "startup.yaml", {});
  RunConfig run = read_run_config(deck);
  run.model = model();
  run.data.prefixes = {folder / "text"}, run.data.split = "100,0,0", run.data.tokenizer.clear();
  run.train.eval_every = 0;
  run.parallel.data = layout.size(Axis::data), run.parallel.pipeline = layout.size(Axis::pipeline), run.parallel.tensor = layout.size(Axis::tensor);
  run.output = folder / name;
  return run;
}

// A run whose walltime is over before its first step: a complete start, and an end that saves nothing.
Count start(RunConfig run, MPI_Comm comm) {
  run.train.walltime = 1e-6;
  ::testing::internal::CaptureStdout();
  counting = {};
  PMPI_Comm_size(comm, &counting.ranks);
  const Error end = error_of([&] { train(run, "", {}, comm); });
  const Count count = std::exchange(counting, {}).count;
  ::testing::internal::GetCapturedStdout();
  EXPECT_EQ(end.code, Exit::again) << end.what();
  return count;
}

void write_text(const SharedFolder& folder) {
  if (SharedFolder::rank() == 0) {
    TokenWriter writer(folder / "text", 62);
    for (int document = 0; document < 32; ++document) {
      for (std::int32_t token = 0; token < 20; ++token) writer.add(std::span(&token, 1));
      writer.end_document();
    }
    writer.finish();
  }
  sync_ranks();
}

struct Shape {
  int data, pipeline, tensor;
  int ranks() const { return data * pipeline * tensor; }
  bool ends(int stage) const { return pipeline > 1 && (stage == 0 || stage == pipeline - 1); }
  // Number of tensor-axis sub-groups, for key heads and for SSM groups that several ranks hold.
  int blocks() const { return (tensor > 4) + (tensor > 2); }
};
constexpr Shape shapes[] = {{1, 1, 1}, {2, 1, 1}, {1, 2, 1}, {1, 1, 2}, {1, 2, 2}, {1, 1, 4}, {8, 1, 1}, {1, 8, 1}, {1, 1, 8}, {2, 2, 2}};

// All grids make the same calls, apart from the communicators counted by ends() and blocks(). A single rank makes fewer
// calls, because there is no other rank.
TEST(startup, mpi_calls_do_not_grow_with_ranks) {
  const SharedFolder folder;
  write_text(folder);
  const int rank = SharedFolder::rank();
  if (rank == 0) std::printf("ranks  data x pipeline x tensor  communicators  barriers  other collectives of all ranks  of fewer\n");
  Count one, two;  // calls of one rank, and of two ranks
  for (const Shape& s : shapes) {
    const std::string name = fmt::format("{}x{}x{}", s.data, s.pipeline, s.tensor);
    const Layout layout = layout_of(s.data, s.pipeline, s.tensor);
    SCOPED_TRACE(name);
    MPI_Comm comm;
    MPI_Comm_split(MPI_COMM_WORLD, rank < s.ranks() ? 0 : MPI_UNDEFINED, rank, &comm);
    Count c;
    if (comm != MPI_COMM_NULL) {
      c = start(run_on(layout, folder, name), comm);
      MPI_Comm_free(&comm);
    }
    sync_ranks();
    for (Count* reference : {&one, &two})
      if (&s == &shapes[reference == &one ? 0 : 1]) MPI_Bcast(&(*reference = c), sizeof c / sizeof(int), MPI_INT, 0, MPI_COMM_WORLD);
    if (rank >= s.ranks()) continue;
    EXPECT_EQ(c.communicators, one.communicators + s.ends(layout.coordinate(rank, Axis::pipeline)) + s.blocks());
    EXPECT_EQ(c.barriers, 0);
    if (s.ranks() > 1) {
      EXPECT_EQ(c.wide + c.narrow, two.wide + two.narrow);
      EXPECT_GT(c.wide, 0);
    }
    if (rank == 0) std::printf("%5d  %24s  %13d  %8d  %30d  %8d\n", s.ranks(), name.c_str(), c.communicators, c.barriers, c.wide, c.narrow);
  }
  std::fflush(stdout);
}

// Some MPI libraries corrupt files that are written on a Cartesian communicator.
TEST(startup, file_libraries_get_no_cartesian_communicator) {
  Grid& grid = *grid_of(layout_of(2, 2, 2, {5, 2, 7, 0, 3, 6, 1, 4}));
  MPI_Comm files = grid.duplicate();
  int topology = 0, position = 0;
  MPI_Topo_test(files, &topology);
  MPI_Comm_rank(files, &position);
  EXPECT_EQ(topology, MPI_UNDEFINED);
  EXPECT_EQ(position, grid.position());
  MPI_Comm_free(&files);
}

}  // namespace
}  // namespace gyr::testing::startup_suite
