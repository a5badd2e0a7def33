# Finds CUDA's compiler, runtime and cuBLASLt, NCCL, and optionally cuDNN, for GYR_BACKEND=cuda. CUDA_HOME and NCCL_HOME
# name their folders if environment modules do not.
set(where "set CUDA_HOME=FOLDER and NCCL_HOME=FOLDER; without a CUDA toolkit, `make` builds the CPU version")
find_program(GYR_NVCC nvcc HINTS ENV CUDA_HOME ENV CUDA_PATH PATHS /usr/local/cuda PATH_SUFFIXES bin DOC "CUDA's compiler")
if(NOT GYR_NVCC)
  message(FATAL_ERROR "GYR_BACKEND=cuda needs the CUDA toolkit, 12.4 or newer, but nvcc was not found: ${where}")
endif()
execute_process(COMMAND ${GYR_NVCC} --list-gpu-code OUTPUT_VARIABLE known OUTPUT_STRIP_TRAILING_WHITESPACE COMMAND_ERROR_IS_FATAL ANY)
set(GYR_GPUS "" CACHE STRING "compute capabilities to compile for, such as 80;90; empty: 80, 90, 100 as supported, and PTX for later GPUs")
foreach(gpu IN LISTS GYR_GPUS)
  if(NOT "${known}\n" MATCHES "sm_${gpu}\n")
    message(FATAL_ERROR "GYR_GPUS=${GYR_GPUS}: ${GYR_NVCC} does not support sm_${gpu}")
  endif()
endforeach()
set(gpus ${GYR_GPUS})
if(NOT gpus)
  foreach(gpu 80 90 100)
    if("${known}\n" MATCHES "sm_${gpu}\n")
      list(APPEND gpus ${gpu})
    endif()
  endforeach()
endif()
list(GET gpus -1 newest)
list(TRANSFORM gpus REPLACE "^90$" "90a")  # includes wgmma, which only compute capability 9.0 has
list(TRANSFORM gpus REPLACE "(.+)" "-gencode=arch=compute_\\1,code=sm_\\1" OUTPUT_VARIABLE GYR_GPU_CODE)
set(later)
if(NOT GYR_GPUS)  # PTX, which later GPUs compile at load time
  list(APPEND GYR_GPU_CODE -gencode=arch=compute_${newest},code=compute_${newest})
  set(later +)
endif()
list(JOIN gpus " " GYR_COMPILED_GPUS)
string(APPEND GYR_COMPILED_GPUS "${later}")  # format of compiled_gpus.hpp

set(CMAKE_CUDA_COMPILER ${GYR_NVCC})
set(CMAKE_CUDA_ARCHITECTURES OFF)
enable_language(CUDA)
if(NOT CMAKE_CUDA20_STANDARD_COMPILE_OPTION)  # CMake 3.25 does not know nvcc's option for C++20
  set(CMAKE_CUDA20_STANDARD_COMPILE_OPTION -std=c++20)
endif()
find_package(CUDAToolkit 12.4 REQUIRED)
find_path(NCCL_INCLUDE_DIR nccl.h HINTS ENV NCCL_HOME ENV CUDA_HOME PATH_SUFFIXES include REQUIRED)
find_library(NCCL_LIBRARY NAMES nccl libnccl.so.2 HINTS ENV NCCL_HOME ENV CUDA_HOME PATH_SUFFIXES lib lib64 REQUIRED)

# cuDNN and its front end. The front end consists of headers only: the folder `include` of NVIDIA's package
# nvidia-cudnn-frontend, or of its repository.
if(GYR_CUDNN)
  find_path(CUDNN_INCLUDE_DIR cudnn_graph.h HINTS ENV CUDNN_HOME ENV CUDA_HOME ${CUDAToolkit_INCLUDE_DIRS} PATH_SUFFIXES include)
  find_library(CUDNN_LIBRARY NAMES cudnn libcudnn.so.9 HINTS ENV CUDNN_HOME ENV CUDA_HOME ${CUDAToolkit_LIBRARY_DIR} PATH_SUFFIXES lib lib64)
  find_path(CUDNN_FRONTEND_INCLUDE_DIR cudnn_frontend.h HINTS ENV CUDNN_FRONTEND_HOME PATH_SUFFIXES include)
  foreach(part CUDNN_INCLUDE_DIR CUDNN_LIBRARY CUDNN_FRONTEND_INCLUDE_DIR)
    if(NOT ${part})
      message(FATAL_ERROR "GYR_CUDNN=ON needs ${part}, which was not found; set CUDNN_HOME=FOLDER for cuDNN, and CUDNN_FRONTEND_HOME=FOLDER for its "
              "front end (pip download --no-deps nvidia-cudnn-frontend, unpacked); without GYR_CUDNN, Gyrfalcon's own attention kernels are used")
    endif()
  endforeach()
endif()
