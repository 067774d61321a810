#!/bin/bash
# A job under PBS (OpenPBS, PBS Pro), its ranks started by mpiexec.
#PBS -N diffusion
#PBS -l select=1:ncpus=4:mpiprocs=4
#PBS -l walltime=00:30:00
#PBS -r y
#PBS -j oe

cd "${PBS_O_WORKDIR:-.}" || exit 1
# PBS does not say when a job ends: this does, with the walltime above in seconds.
export DISTARRAY_JOB_END=$(( $(date +%s) + 1800 ))
# PBS tells all processes of the job to stop: this one waits for the ranks, and the launcher, which
# would end them (Open MPI's), is kept out of it by distarray.job.
trap : TERM
# One rank for each line of the node file. An MPI that was built for PBS finds it by itself.
ranks=$(wc -l < "$PBS_NODEFILE")

python -m distarray.job mpiexec -n "$ranks" python "${PROGRAM:-diffusion.py}" "$@"
status=$?

if [ $status -eq 0 ] && [ ! -e result.npy ]; then
    qrerun "$PBS_JOBID"
fi
exit $status
