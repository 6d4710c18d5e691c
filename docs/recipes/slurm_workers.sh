#!/bin/bash
# Workers for evaluator=spool as an array of Slurm jobs, one GPU each:
#     sbatch --array=0-7 slurm_workers.sh ~/spool
# Each ends after 20 minutes without a kernel, or before its time is up, after the kernel at hand; what one leaves, another
# judges. Set the partition, the time and what `python` is for your cluster.
#SBATCH --job-name=ksflow-worker
#SBATCH --gpus=1
#SBATCH --cpus-per-task=4
#SBATCH --time=08:00:00
#SBATCH --signal=B:INT@300
#SBATCH --requeue

set -euo pipefail
spool=${1:?which folder? sbatch slurm_workers.sh FOLDER}
cd "$spool/worker"
exec "${PYTHON:-python}" -m ksflow worker .. idle_minutes="${IDLE_MINUTES:-20}"
