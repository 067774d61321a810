#!/bin/bash
# A job under LSF, its ranks started by mpiexec: bsub < lsf.sh
#BSUB -J diffusion
#BSUB -n 4
#BSUB -W 00:30
#BSUB -r
#BSUB -oo diffusion.%J.log
# Two minutes before the end of the time LSF sends SIGUSR1, and others at the end. (Not SIGTERM: Open
# MPI's mpiexec would end the ranks at once.)
#BSUB -wa USR1 -wt 2

export DISTARRAY_JOB_END=$(( $(date +%s) + 1800 ))

# This script waits for the ranks when it is told to stop.
trap : USR1 TERM
python -m distarray.job mpiexec -n "$LSB_DJOB_NUMPROC" python "${PROGRAM:-diffusion.py}" "$@"
status=$?

if [ $status -eq 0 ] && [ ! -e result.npy ]; then
    brequeue "$LSB_JOBID"
fi
exit $status
