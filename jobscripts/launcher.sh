#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# Prints the words that start ranks on this machine, to be followed by -n RANKS PROGRAM: the mpiexec of the MPI that FILEs are linked with.
#   launcher.sh [FILE...]      programs, or MPI's own library; without any, the first launcher of the PATH
# Exit codes: 0, 69 there is none.
set -eu

first() { for name in "$@"; do command -v "$name" && return 0; done; echo "launcher: there is no mpiexec in PATH" >&2; return 69; }

linked=$(printf '%s\n' "$@"; for file in "$@"; do ldd "$file" 2>/dev/null || true; done)
case $linked in
  *openmpi* | *libopen-pal* | *libopen-rte*) mpiexec=$(first mpiexec.openmpi mpiexec) ;;
  *) mpiexec=$(first mpiexec.hydra mpiexec.mpich mpiexec) ;;
esac
case $("$mpiexec" --version 2>/dev/null) in
  # Open MPI asks to be told where ranks may be more than cores, and that root means it, as in a container.
  *'Open MPI'* | *OpenRTE* | *PRRTE*) mpiexec="$mpiexec --oversubscribe"; [ "$(id -u)" != 0 ] || mpiexec="$mpiexec --allow-run-as-root" ;;
esac
echo "$mpiexec"
