#!/usr/bin/env bash
# Programs that others have compiled for MPICH's older ABI: Intel's benchmarks. Prints their name, and the numbers of
# programs run and failed. Usage: programs_of_mpich.sh PREFIX INTEL (INTEL: the environment of the package impi-rt)
set -euo pipefail
prefix=$1 intel=$2
export LD_LIBRARY_PATH=$prefix/lib/canele/mpich
run=0 failed=0
for program in "IMB-MPI1 -iter 20 -msglog 1:10" "IMB-NBC -iter 10 -msglog 1:8" "IMB-RMA -iter 20 -msglog 1:8" "IMB-P2P -iter 10 -msglog 1:8"; do
    run=$((run + 1))
    said=$(timeout 300 "$prefix/bin/mpiexec" -n 2 "$intel/bin/"$program -npmin 2 2>&1) &&
        grep -q 'All processes entering MPI_Finalize' <<<"$said" && continue
    failed=$((failed + 1))
    echo "failed: $program: $(tail -3 <<<"$said" | tr '\n' '/')" >&2
done
echo "IMB $run $failed"
[ $failed = 0 ]
