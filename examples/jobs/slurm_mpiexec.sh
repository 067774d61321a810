#!/bin/bash
# A job under Slurm, its ranks started by the mpiexec of MPICH or of what is made of it (that of the
# MPICH wheel as well): it finds out about the job's nodes by itself. Not for Open MPI, whose ranks
# Slurm does not tell of a preemption then: slurm_srun.sh, with MPI_PLUGIN=pmix.
#SBATCH --job-name=diffusion
#SBATCH --ntasks=4
#SBATCH --time=00:30:00
#SBATCH --requeue
#SBATCH --open-mode=append
#SBATCH --output=diffusion.%j.log

# One rank a core. Slurm is asked because the job may have been given another size while it waited to
# go on: scontrol update JobId=... NumCPUs=... NumTasks=...
ranks=$(squeue --noheader --jobs "$SLURM_JOB_ID" --format %C)

mpiexec -n "$ranks" python "${PROGRAM:-diffusion.py}" "$@"
status=$?

if [ $status -eq 0 ] && [ ! -e result.npy ]; then
    scontrol requeue "$SLURM_JOB_ID"
fi
exit $status
