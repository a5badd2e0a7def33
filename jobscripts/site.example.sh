# SPDX-License-Identifier: BSD-3-Clause
# Settings of a site. Copy this file to site.sh in this folder (for all users of an installation) or to
# ~/.config/gyrfalcon/site.sh (for yourself), and remove the # of the lines that you need. job.sh reads both files in this
# order, or only the file that GYRFALCON_SITE names. submit.sh reads them, too. The file is sourced by bash.
# shellcheck shell=bash disable=SC2034

# ---- Submission (submit.sh). sbatch and qsub without submit.sh do not read these lines. ----
# PARTITION=gpu                      # partition (Slurm) or queue (PBS)
# ACCOUNT=my-project                 # account that is charged
# CLUSTER_FILE=/sw/gyrfalcon/our-machine.yaml     # a deck that does not fit in its memory is refused (78)
# SUBMIT_SBATCH=(--qos=long --constraint=h100)   # further options of sbatch, for slurm-*.sh
# SUBMIT_QSUB=(-W group_list=my-group)           # further options of qsub, for pbs-*.sh
# SUBMIT=(-j oe)                                  # further options of whichever is used

# ---- Modules and program ----
# . /etc/profile.d/modules.sh        # defines `module`, if batch shells do not have it
# module load gcc cray-mpich cray-hdf5-parallel
# export GYRFALCON=/sw/gyrfalcon/bin/gyrfalcon   # default: program of the clone or installation of the jobscripts

# ---- Launcher. The type must suit the MPI of the program; a wrong one ends with exit code 69 and names the right one. ----
# export SLURM_MPI_TYPE=pmix         # srun --mpi=: pmi2 for MPICH and Intel MPI (default), pmix for Open MPI, cray_shasta
# export LAUNCHER="aprun -n 512"     # complete command, for any other launcher

# ---- NCCL: data between GPUs of different nodes ----
# export NCCL_SOCKET_IFNAME=ib0      # interface for the bootstrap; NCCL may choose a management network that does not route
# export NCCL_IB_HCA==mlx5_0,mlx5_3,mlx5_4,mlx5_5   # adapters for data; excludes those of storage. `==`: exact names
# export NCCL_NET_PLUGIN=ofi         # Slingshot and EFA: the plugin aws-ofi-nccl, in LD_LIBRARY_PATH
# export NCCL_CROSS_NIC=0            # rail-optimised networks: a ring stays on adapters of the same rail
# export NCCL_IB_GID_INDEX=3         # RoCE: RoCE v2 address of the adapters (show_gids)

# ---- UCX: messages of MPI. CPU nodes: all data. GPU nodes: start-up, agreements and what NCCL does not carry. ----
# export UCX_TLS=rc,sm,self          # transports; `tcp,sm,self` if InfiniBand is not available to the job
# export UCX_NET_DEVICES=mlx5_0:1    # adapter; rank_gpu.sh otherwise takes the one close to the GPU
# export FI_PROVIDER=cxi             # MPI over libfabric (Cray MPICH, Intel MPI) instead of UCX
