#!/bin/bash
# Workers for evaluator=spool as an array of Slurm jobs, one GPU each:
#     sbatch --array=0-7 slurm_workers.sh ~/spool
# Each worker ends after 20 minutes without a kernel, or shortly before its time limit, after the current kernel. Another
# worker judges the kernels that remain. Set the partition, the time and the `python` of your cluster.
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
