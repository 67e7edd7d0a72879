#!/usr/bin/env bash
# One run on several machines: start this on every one of them, with the same arguments.
#
#   NODES=4 GPUS=1 MASTER=node0:29500 scripts/multinode.sh model=resnet18 compressor=powersgd workers=4
#
# NODES x GPUS processes host the workers; workers must be a multiple of it. The results directory must be on a file system that
# all machines share, or at least be that of the machine that torchrun makes rank 0. Each machine needs the data set
# (dataset.root=DIR), or a shared file system here too.
set -euo pipefail

: "${NODES:?set NODES to the number of machines}"
: "${MASTER:?set MASTER to host:port of one of the machines}"
GPUS=${GPUS:-1}
JOB=${JOB:-accordion-bench}

exec torchrun \
  --nnodes "$NODES" \
  --nproc-per-node "$GPUS" \
  --rdzv-backend c10d \
  --rdzv-endpoint "$MASTER" \
  --rdzv-id "$JOB" \
  --max-restarts 0 \
  -m accordion_bench.worker "$@"
