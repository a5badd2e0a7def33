#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# Prints the command that launches MPI ranks on this machine, to be followed by -n RANKS PROGRAM: the mpiexec of the MPI
# library that the given files are linked with.
#   launcher.sh [FILE...]      programs, or the MPI library itself; without files, the first launcher in PATH
# Exit codes: 0 success, 69 no launcher was found.
set -eu

first() { for name in "$@"; do command -v "$name" && return 0; done; echo "launcher: no mpiexec in PATH; install MPICH or Open MPI, or load its module" >&2; return 69; }

linked=$(printf '%s\n' "$@"; for file in "$@"; do ldd "$file" 2>/dev/null || true; done)
case $linked in
  *openmpi* | *libopen-pal* | *libopen-rte*) mpiexec=$(first mpiexec.openmpi mpiexec) ;;
  *) mpiexec=$(first mpiexec.hydra mpiexec.mpich mpiexec) ;;
esac
case $("$mpiexec" --version 2>/dev/null) in
  # Open MPI needs options to allow more ranks than cores, and to allow root, as in a container.
  *'Open MPI'* | *OpenRTE* | *PRRTE*) mpiexec="$mpiexec --oversubscribe"; [ "$(id -u)" != 0 ] || mpiexec="$mpiexec --allow-run-as-root" ;;
esac
echo "$mpiexec"
