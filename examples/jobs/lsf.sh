#!/bin/bash
# A job under LSF, its ranks started by mpiexec: bsub < lsf.sh
#BSUB -J diffusion
#BSUB -n 4
#BSUB -W 00:30
#BSUB -r
#BSUB -oo diffusion.%J.log
# Two minutes before the end of the time LSF sends SIGTERM, and SIGKILL at the end.
#BSUB -wa TERM -wt 2

export DISTARRAY_JOB_END=$(( $(date +%s) + 1800 ))

mpiexec -n "$LSB_DJOB_NUMPROC" python "${PROGRAM:-diffusion.py}" "$@"
status=$?

if [ $status -eq 0 ] && [ ! -e result.npy ]; then
    brequeue "$LSB_JOBID"
fi
exit $status
