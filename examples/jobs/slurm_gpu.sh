#!/bin/bash
# A job under Slurm with one rank for each GPU of two nodes.
#SBATCH --job-name=diffusion
#SBATCH --nodes=2
#SBATCH --ntasks-per-node=4
#SBATCH --gpus-per-node=4
#SBATCH --cpus-per-task=16
#SBATCH --time=00:30:00
#SBATCH --requeue
#SBATCH --open-mode=append
#SBATCH --output=diffusion.%j.log

# Each rank of a node sees all four GPUs and takes the one that its number among them names; so MPI
# can move blocks from GPU to GPU. (With --gpus-per-task=1 each would see its own alone.)
export DISTARRAY_DEVICE=cuda
srun --mpi="${MPI_PLUGIN:-pmi2}" --cpus-per-task="$SLURM_CPUS_PER_TASK" --cpu-bind=cores \
    python "${PROGRAM:-diffusion.py}" "$@"
status=$?

if [ $status -eq 0 ] && [ ! -e result.npy ]; then
    scontrol requeue "$SLURM_JOB_ID"
fi
exit $status
