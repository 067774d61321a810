#!/bin/bash
# A job under Slurm, its ranks started by srun.
#
# MPICH and what is made of it (the MPICH wheel, Intel MPI, Cray MPICH): --mpi=pmi2.
# Open MPI 5: --mpi=pmix. `srun --mpi=list` tells what the site's Slurm has.
#SBATCH --job-name=diffusion
#SBATCH --ntasks=4
#SBATCH --time=00:30:00
#SBATCH --requeue
#SBATCH --open-mode=append
#SBATCH --output=diffusion.%j.log

# One rank a core. Slurm is asked because the job may have been given another size while it waited to
# go on: scontrol update JobId=... NumCPUs=... NumTasks=...
ranks=$(squeue --noheader --jobs "$SLURM_JOB_ID" --format %C)

srun --mpi="${MPI_PLUGIN:-pmi2}" -n "$ranks" python "${PROGRAM:-diffusion.py}" "$@"
status=$?

# The program ends well when it has been told to stop, too: then it goes on from its checkpoint
# as soon as there is room. After a failure nothing is tried again.
if [ $status -eq 0 ] && [ ! -e result.npy ]; then
    scontrol requeue "$SLURM_JOB_ID"
fi
exit $status
