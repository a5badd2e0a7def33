/* SPDX-License-Identifier: BSD-3-Clause
   Declarations of the NCCL functions that the program uses, for machines without NCCL. Names, values and meaning are those
   of NCCL's header, which is used instead if it is installed. */
#pragma once

#include <cuda_runtime_api.h>

#define NCCL_VERSION_CODE 22800
#define NCCL_UNIQUE_ID_BYTES 128
#define NCCL_SPLIT_NOCOLOR -1

typedef struct {
  char internal[NCCL_UNIQUE_ID_BYTES];
} ncclUniqueId;
typedef struct ncclComm* ncclComm_t;
typedef struct ncclConfig ncclConfig_t;
typedef enum {
  ncclSuccess = 0,
  ncclUnhandledCudaError = 1,
  ncclSystemError = 2,
  ncclInternalError = 3,
  ncclInvalidArgument = 4,
  ncclInvalidUsage = 5,
  ncclRemoteError = 6,
  ncclInProgress = 7
} ncclResult_t;
typedef enum { ncclSum = 0, ncclMax = 2 } ncclRedOp_t;
typedef enum { ncclUint8 = 1, ncclInt32 = 2, ncclInt64 = 4, ncclFloat32 = 7, ncclFloat64 = 8, ncclBfloat16 = 9 } ncclDataType_t;

#ifdef __cplusplus
extern "C" {
#endif
const char* ncclGetErrorString(ncclResult_t);
const char* ncclGetLastError(ncclComm_t);
ncclResult_t ncclGetVersion(int* version);
ncclResult_t ncclGetUniqueId(ncclUniqueId*);
ncclResult_t ncclCommInitRank(ncclComm_t*, int ranks, ncclUniqueId, int rank);
ncclResult_t ncclCommSplit(ncclComm_t, int color, int key, ncclComm_t*, ncclConfig_t*);
ncclResult_t ncclCommAbort(ncclComm_t);
ncclResult_t ncclCommDestroy(ncclComm_t);
ncclResult_t ncclCommGetAsyncError(ncclComm_t, ncclResult_t*);
ncclResult_t ncclCommRegister(const ncclComm_t, void* begin, size_t bytes, void** handle);
ncclResult_t ncclCommDeregister(const ncclComm_t, void* handle);
ncclResult_t ncclMemAlloc(void** memory, size_t bytes);
ncclResult_t ncclMemFree(void* memory);
ncclResult_t ncclGroupStart(void);
ncclResult_t ncclGroupEnd(void);
ncclResult_t ncclAllReduce(const void* in, void* out, size_t count, ncclDataType_t, ncclRedOp_t, ncclComm_t, cudaStream_t);
ncclResult_t ncclReduceScatter(const void* in, void* out, size_t count_each, ncclDataType_t, ncclRedOp_t, ncclComm_t, cudaStream_t);
ncclResult_t ncclAllGather(const void* in, void* out, size_t count_each, ncclDataType_t, ncclComm_t, cudaStream_t);
ncclResult_t ncclBroadcast(const void* in, void* out, size_t count, ncclDataType_t, int root, ncclComm_t, cudaStream_t);
ncclResult_t ncclSend(const void* in, size_t count, ncclDataType_t, int to, ncclComm_t, cudaStream_t);
ncclResult_t ncclRecv(void* out, size_t count, ncclDataType_t, int from, ncclComm_t, cudaStream_t);
#ifdef __cplusplus
}
#endif
