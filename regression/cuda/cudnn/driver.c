/* SPDX-License-Identifier: BSD-3-Clause
   Stub of the CUDA driver for machines without a driver or GPU. It reports no device, and accepts any kernel that a library
   loads without looking at it. This lets cuDNN make plans for a GPU that is only described to it. No plan can run. */

enum { success = 0, no_device = 100 };

static int anything;

int cuLibraryLoadData(void** library) {
  *library = &anything;
  return success;
}
int cuLibraryGetKernel(void** kernel) {
  *kernel = &anything;
  return success;
}
int cuLibraryUnload(void* library) {
  (void)library;
  return success;
}
int cuDeviceGetCount(int* count) {
  *count = 0;
  return no_device;
}
int cuGetErrorString(int error, const char** text) {
  (void)error;
  *text = "there is no driver";
  return success;
}

/* Other driver functions that cuDNN and the CUDA runtime look up. All of them return an error. */
#define NOT_HERE(NAME) \
  int NAME(void) { return no_device; }
NOT_HERE(cuInit)
NOT_HERE(cuCtxGetCurrent)
NOT_HERE(cuCtxGetLimit)
NOT_HERE(cuCtxPopCurrent)
NOT_HERE(cuCtxPushCurrent)
NOT_HERE(cuDeviceGet)
NOT_HERE(cuDriverGetVersion)
NOT_HERE(cuGetErrorName)
NOT_HERE(cuKernelGetAttribute)
NOT_HERE(cuKernelSetAttribute)
NOT_HERE(cuLaunchCooperativeKernel)
NOT_HERE(cuLaunchKernel)
NOT_HERE(cuLaunchKernelEx)
NOT_HERE(cuLibraryLoadFromFile)
NOT_HERE(cuLinkAddData)
NOT_HERE(cuLinkComplete)
NOT_HERE(cuLinkCreate)
NOT_HERE(cuLinkDestroy)
NOT_HERE(cuOccupancyMaxPotentialClusterSize)
NOT_HERE(cuStreamGetCtx)
