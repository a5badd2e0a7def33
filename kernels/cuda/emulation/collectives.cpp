// SPDX-License-Identifier: BSD-3-Clause
// Emulation of NCCL on emulated devices, over MPI; linked in place of NCCL. Each NCCL call on a stream becomes a task
// that starts a nonblocking MPI operation and polls it. Sends are synchronous, so that a message without a receiver is
// never complete. Messages carry no tag and are matched in order.
#include <mpi.h>
#include <nccl.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "kernels/cuda/emulation/memory.hpp"
#include "kernels/cuda/emulation/registrations.hpp"
#include "kernels/cuda/emulation/streams.hpp"

using namespace gyr::cuda;
using gyr::bf16;

struct ncclComm {
  MPI_Comm ranks;
};

namespace {

struct Span {
  const void* data;
  std::size_t bytes;
  Touch how;
};

// One NCCL call, within a group or by itself.
struct Call {
  std::string name;
  ncclComm_t communicator;
  cudaStream_t stream;
  std::vector<Span> spans;
  std::function<void(MPI_Request*)> begin;
};

struct Group {
  int depth = 0;
  std::vector<Call> calls;
};
Group& group() {
  static Group group;
  return group;
}

MPI_Datatype bf16_type() {
  static const MPI_Datatype type = [] {
    MPI_Datatype t;
    MPI_Type_contiguous(2, MPI_BYTE, &t);
    MPI_Type_commit(&t);
    return t;
  }();
  return type;
}
template <class Combine>
void combine_bf16(void* in, void* inout, int* count, Combine combine) {
  for (int i = 0; i < *count; ++i) {
    bf16& to = static_cast<bf16*>(inout)[i];
    to = bf16(combine(float(static_cast<const bf16*>(in)[i]), float(to)));
  }
}
void sum_bf16(void* in, void* inout, int* n, MPI_Datatype*) {
  combine_bf16(in, inout, n, [](float a, float b) { return a + b; });
}
void max_bf16(void* in, void* inout, int* n, MPI_Datatype*) {
  combine_bf16(in, inout, n, [](float a, float b) { return std::max(a, b); });
}
MPI_Op made(MPI_User_function* f) {
  MPI_Op op;
  MPI_Op_create(f, 1, &op);
  return op;
}

MPI_Datatype mpi(ncclDataType_t type) {
  switch (type) {
    case ncclUint8: return MPI_UINT8_T;
    case ncclInt32: return MPI_INT32_T;
    case ncclInt64: return MPI_INT64_T;
    case ncclFloat32: return MPI_FLOAT;
    case ncclFloat64: return MPI_DOUBLE;
    case ncclBfloat16: return bf16_type();
  }
  return MPI_DATATYPE_NULL;
}
MPI_Op mpi(ncclRedOp_t op, ncclDataType_t type) {
  static const MPI_Op sum = made(sum_bf16), max = made(max_bf16);
  if (type == ncclBfloat16) return op == ncclSum ? sum : max;
  return op == ncclSum ? MPI_SUM : MPI_MAX;
}
std::size_t bytes_of(ncclDataType_t type) {
  switch (type) {
    case ncclUint8: return 1;
    case ncclBfloat16: return 2;
    case ncclInt32:
    case ncclFloat32: return 4;
    default: return 8;
  }
}
int size_of(ncclComm_t c) {
  int size = 0;
  MPI_Comm_size(c->ranks, &size);
  return size;
}
int rank_of(ncclComm_t c) {
  int rank = 0;
  MPI_Comm_rank(c->ranks, &rank);
  return rank;
}

// Enqueues the calls of a group. The calls for one stream form one task.
void report_group() {
  std::vector<Call> calls = std::move(group().calls);
  group().calls.clear();
  while (!calls.empty()) {
    std::vector<Call> merged, remaining;
    for (Call& call : calls) (call.stream == calls.front().stream ? merged : remaining).push_back(call);
    const auto requests = std::make_shared<std::vector<MPI_Request>>(merged.size(), MPI_REQUEST_NULL);
    const cudaStream_t stream = merged.front().stream;
    const std::string name = merged.front().name;
    Streams::instance().enqueue(
        reinterpret_cast<Stream*>(stream), name,
        [merged, requests] {
          for (std::size_t i = 0; i < merged.size(); ++i) {
            for (const Span& span : merged[i].spans) touch(span.data, span.bytes, span.how);
            merged[i].begin(&(*requests)[i]);
          }
        },
        [requests] {
          int done = 0;
          MPI_Testall(int(requests->size()), requests->data(), &done, MPI_STATUSES_IGNORE);
          return done != 0;
        });
    calls = std::move(remaining);
  }
}

ncclResult_t call(Call c) {
  for (const Span& span : c.spans) Registrations::instance().judge_operation(c.name.c_str(), c.communicator, span.data, span.bytes);
  group().calls.push_back(std::move(c));
  if (group().depth == 0) report_group();
  return ncclSuccess;
}

// A unique id consists of the rank in MPI_COMM_WORLD that created it and a counter on that rank. All ranks of the
// communicator send their world rank to the root, which sends the full list back.
constexpr int who_tag = 31000, all_tag = 31001, group_tag = 31002;
struct Identity {
  int root, number;
};

MPI_Comm met(int ranks, const Identity& id, int rank) {
  int me = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &me);
  std::vector<int> all(static_cast<std::size_t>(ranks));
  const int mine[3] = {id.number, rank, me};
  MPI_Request sent;
  MPI_Isend(mine, 3, MPI_INT, id.root, who_tag + 10 * (1 + id.number % 50), MPI_COMM_WORLD, &sent);
  if (me == id.root) {
    for (int i = 0; i < ranks; ++i) {
      int other[3];
      MPI_Recv(other, 3, MPI_INT, MPI_ANY_SOURCE, who_tag + 10 * (1 + id.number % 50), MPI_COMM_WORLD, MPI_STATUS_IGNORE);
      all[std::size_t(other[1])] = other[2];
    }
    for (const int other : all)
      if (other != me) MPI_Send(all.data(), ranks, MPI_INT, other, all_tag, MPI_COMM_WORLD);
  }
  MPI_Wait(&sent, MPI_STATUS_IGNORE);
  if (me != id.root) MPI_Recv(all.data(), ranks, MPI_INT, id.root, all_tag, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
  MPI_Group world, members;
  MPI_Comm_group(MPI_COMM_WORLD, &world);
  MPI_Group_incl(world, ranks, all.data(), &members);
  MPI_Comm comm;
  MPI_Comm_create_group(MPI_COMM_WORLD, members, group_tag, &comm);
  MPI_Group_free(&members), MPI_Group_free(&world);
  return comm;
}

}  // namespace

const char* ncclGetErrorString(ncclResult_t r) { return r == ncclSuccess ? "no error" : "NCCL error"; }
const char* ncclGetLastError(ncclComm_t) { return ""; }
ncclResult_t ncclGetVersion(int* version) {
  *version = NCCL_VERSION_CODE;
  return ncclSuccess;
}
ncclResult_t ncclGetUniqueId(ncclUniqueId* id) {
  static int number = 0;
  Identity mine{0, number++};
  MPI_Comm_rank(MPI_COMM_WORLD, &mine.root);
  *id = {};
  std::memcpy(id->internal, &mine, sizeof mine);
  return ncclSuccess;
}
ncclResult_t ncclCommInitRank(ncclComm_t* c, int ranks, ncclUniqueId id, int rank) {
  Identity where;
  std::memcpy(&where, id.internal, sizeof where);
  *c = new ncclComm{met(ranks, where, rank)};
  return ncclSuccess;
}
ncclResult_t ncclCommSplit(ncclComm_t c, int color, int key, ncclComm_t* part, ncclConfig_t*) {
  MPI_Comm ranks;
  MPI_Comm_split(c->ranks, color == NCCL_SPLIT_NOCOLOR ? MPI_UNDEFINED : color, key, &ranks);
  *part = ranks == MPI_COMM_NULL ? nullptr : new ncclComm{ranks};
  return ncclSuccess;
}
ncclResult_t ncclCommDestroy(ncclComm_t c) {
  Registrations::instance().judge_end(c);
  int finalized = 0;
  MPI_Finalized(&finalized);
  if (!finalized) MPI_Comm_free(&c->ranks);
  delete c;
  return ncclSuccess;
}
ncclResult_t ncclCommAbort(ncclComm_t) { return ncclSuccess; }
ncclResult_t ncclCommGetAsyncError(ncclComm_t, ncclResult_t* state) {
  *state = ncclSuccess;
  return ncclSuccess;
}
ncclResult_t ncclCommRegister(const ncclComm_t c, void* begin, size_t bytes, void** handle) {
  *handle = Registrations::instance().add(c, begin, bytes);
  return ncclSuccess;
}
ncclResult_t ncclCommDeregister(const ncclComm_t c, void* handle) {
  Registrations::instance().remove(c, handle);
  return ncclSuccess;
}
ncclResult_t ncclMemAlloc(void** memory, size_t bytes) {
  constexpr std::size_t piece = 2 << 20;
  return cudaMalloc(memory, (bytes + piece - 1) / piece * piece) == cudaSuccess ? ncclSuccess : ncclUnhandledCudaError;
}
ncclResult_t ncclMemFree(void* memory) { return cudaFree(memory) == cudaSuccess ? ncclSuccess : ncclUnhandledCudaError; }
ncclResult_t ncclGroupStart() {
  ++group().depth;
  return ncclSuccess;
}
ncclResult_t ncclGroupEnd() {
  if (--group().depth == 0) report_group();
  return ncclSuccess;
}

ncclResult_t ncclAllReduce(const void* in, void* out, size_t count, ncclDataType_t type, ncclRedOp_t op, ncclComm_t c, cudaStream_t s) {
  const std::size_t bytes = count * bytes_of(type);
  return call({"ncclAllReduce", c, s, {{in, bytes, Touch::read}, {out, bytes, Touch::write}}, [=](MPI_Request* r) {
                 MPI_Iallreduce(in == out ? MPI_IN_PLACE : resolved(in), resolved(out), int(count), mpi(type), mpi(op, type), c->ranks, r);
               }});
}
// Reads from a copy, because MPI's in-place variant puts the result at another position than NCCL's.
ncclResult_t ncclReduceScatter(const void* in, void* out, size_t count, ncclDataType_t type, ncclRedOp_t op, ncclComm_t c, cudaStream_t s) {
  const std::size_t bytes = count * bytes_of(type), all = bytes * std::size_t(size_of(c));
  const auto copy = std::make_shared<std::vector<char>>(all);
  return call({"ncclReduceScatter", c, s, {{in, all, Touch::read}, {out, bytes, Touch::write}}, [=](MPI_Request* r) {
                 std::memcpy(copy->data(), resolved(in), all);
                 MPI_Ireduce_scatter_block(copy->data(), resolved(out), int(count), mpi(type), mpi(op, type), c->ranks, r);
               }});
}
ncclResult_t ncclAllGather(const void* in, void* out, size_t count, ncclDataType_t type, ncclComm_t c, cudaStream_t s) {
  const std::size_t bytes = count * bytes_of(type);
  const bool in_place = in == static_cast<char*>(out) + std::size_t(rank_of(c)) * bytes;
  return call({"ncclAllGather", c, s, {{in, bytes, Touch::read}, {out, bytes * std::size_t(size_of(c)), Touch::write}}, [=](MPI_Request* r) {
                 MPI_Iallgather(in_place ? MPI_IN_PLACE : resolved(in), int(count), mpi(type), resolved(out), int(count), mpi(type), c->ranks, r);
               }});
}
ncclResult_t ncclBroadcast(const void* in, void* out, size_t count, ncclDataType_t type, int root, ncclComm_t c, cudaStream_t s) {
  if (in != out) return ncclInvalidUsage;  // the program only uses in-place broadcasts
  const Touch how = rank_of(c) == root ? Touch::read : Touch::write;
  return call({"ncclBroadcast", c, s, {{out, count * bytes_of(type), how}}, [=](MPI_Request* r) {
                 MPI_Ibcast(resolved(out), int(count), mpi(type), root, c->ranks, r);
               }});
}
ncclResult_t ncclSend(const void* in, size_t count, ncclDataType_t type, int to, ncclComm_t c, cudaStream_t s) {
  return call({"ncclSend", c, s, {{in, count * bytes_of(type), Touch::read}}, [=](MPI_Request* r) {
                 MPI_Issend(resolved(in), int(count), mpi(type), to, 0, c->ranks, r);
               }});
}
ncclResult_t ncclRecv(void* out, size_t count, ncclDataType_t type, int from, ncclComm_t c, cudaStream_t s) {
  return call({"ncclRecv", c, s, {{out, count * bytes_of(type), Touch::write}}, [=](MPI_Request* r) {
                 MPI_Irecv(resolved(out), int(count), mpi(type), from, 0, c->ranks, r);
               }});
}
