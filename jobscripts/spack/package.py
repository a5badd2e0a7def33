# SPDX-License-Identifier: BSD-3-Clause
# Spack recipe. Copy this folder as packages/gyrfalcon into a Spack repository (spack repo create). Then run, in a clone:
#   spack dev-build gyrfalcon@main
# Alternatively set `git = "URL of your clone"` in the class below and run `spack install gyrfalcon`.
from spack.package import *

try:
    from spack_repo.builtin.build_systems.cmake import CMakePackage
    from spack_repo.builtin.build_systems.cuda import CudaPackage
except ImportError:
    pass  # before version 1.0, spack.package contains both


class Gyrfalcon(CMakePackage, CudaPackage):
    """Trains hybrid attention + state-space language models on an MPI grid."""

    license("BSD-3-Clause")

    version("main", branch="main")

    variant("openmp", default=False, description="OpenMP threads within each rank (Kokkos with OpenMP)")
    variant("onednn", default=True, description="bf16 GEMMs with oneDNN")
    variant("cuda", default=False, description="NVIDIA GPUs (CUDA and NCCL)")

    depends_on("c", type="build")
    depends_on("cxx", type="build")
    depends_on("cmake@3.25:", type="build")
    depends_on("pkgconfig", type="build")
    depends_on("mpi")
    depends_on("hdf5@1.10:+mpi")
    depends_on("kokkos+openmp", when="+openmp")
    depends_on("kokkos~openmp", when="~openmp")
    depends_on("openblas")
    depends_on("onednn@2", when="+onednn")
    depends_on("yaml-cpp")
    depends_on("nlohmann-json")
    depends_on("cli11")
    depends_on("fmt")
    depends_on("pcre2")
    depends_on("utf8proc")
    depends_on("xxhash")
    depends_on("zlib-api")
    depends_on("zstd")
    depends_on("libpng")
    depends_on("libjpeg-turbo")
    depends_on("libwebp")
    depends_on("libexif")
    depends_on("googletest", type="test")
    depends_on("benchmark", type="test")
    depends_on("nccl", when="+cuda")
    depends_on("cuda@12.4:", when="+cuda")

    build_targets = ["gyrfalcon"]

    def cmake_args(self):
        args = [
            self.define("GYR_BACKEND", "cuda" if "+cuda" in self.spec else "kokkos"),
            self.define("GYR_NATIVE_ARCH", False),  # Spack's compiler wrapper sets the target
            self.define("CMAKE_SKIP_INSTALL_ALL_DEPENDENCY", True),  # install does not require the tests, which are not built
        ]
        if "+cuda" in self.spec and "none" not in self.spec.variants["cuda_arch"].value:
            args.append(self.define("GYR_GPUS", list(self.spec.variants["cuda_arch"].value)))
        return args
