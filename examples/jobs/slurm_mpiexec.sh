#!/bin/bash
# A job under Slurm, its ranks started by the MPI's own mpiexec (that of the MPICH wheel as well):
# it finds out about the job's nodes by itself.
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
