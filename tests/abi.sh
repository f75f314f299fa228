#!/usr/bin/env bash
# Header and symbols of the library against the reference's. Usage: abi.sh PREFIX REFERENCE
# (REFERENCE holds include/mpi_abi.h and lib/libmpi_abi.so.1)
set -euo pipefail
prefix=$1 reference=$2
cd "$(dirname "$0")"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
symbols() { nm -D --defined-only "$1" | awk '{print $3}' | grep -E '^P?MPI_' | sort -u; }
symbols "$prefix/lib/libmpi_abi.so.1" >"$work/ours"
symbols "$reference/lib/libmpi_abi.so.1" >"$work/theirs"
# The reference library also exports functions that left the standard long ago. Its header, and the ABI, do not have
# them.
grep -oE '\bP?MPI_[A-Za-z_0-9]+ *\(' "$reference/include/mpi_abi.h" | tr -d ' (' | sort -u >"$work/declared"
comm -12 "$work/theirs" "$work/declared" >"$work/expected"
diff "$work/expected" "$work/ours" || { echo "symbols differ (< reference, > ours)"; exit 1; }
# The library also exports the functions of the headers mad.h and mpi-ext.h, one for libmpifort_abi, and nothing else.
{ sed -nE 's/^(int|const char) \*?(mad_[a-z_]+)\(.*/\2/p' "$prefix/include/mad.h"; echo canele_follow_collective; echo canele_spawn_codes
    sed -nE 's/^int (P?MPIX_[A-Za-z_]+)\(.*/\1/p' "$prefix/include/mpi-ext.h"; } | sort >"$work/native.expected"
nm -D --defined-only "$prefix/lib/libmpi_abi.so.1" | awk '{print $3}' | sort | grep -vE '^P?MPI_' >"$work/native.found" || true
diff "$work/native.expected" "$work/native.found" || { echo "symbols besides MPI's differ (< headers, > ours)"; exit 1; }
# Reads to the end: objdump would fail if nobody took its output.
objdump -p "$prefix/lib/libmpi_abi.so.1" | grep 'SONAME *libmpi_abi.so.1$' >/dev/null || { echo "wrong soname"; exit 1; }

# Prototypes: both headers in one translation unit must agree.
for header in "$prefix/include/mpi.h" "$reference/include/mpi_abi.h"; do
    gcc -E -P "$header" | tr '\n' ' ' | sed 's/;/;\n/g' | tr -s ' ' | sed -E 's/^ //; s/ \* */ */g; s/\( /(/g; s/ \)/)/g; s/([a-zA-Z_0-9]+)\[\]/*\1/g' |
        grep -E '^(int|double|MPI_[A-Za-z]+) P?MPI_[A-Za-z_0-9]+\(' | sort
done >"$work/all"
sort "$work/all" | uniq -u >"$work/odd"
if [ -s "$work/odd" ]; then
    echo "prototypes that only one header has:"
    head -20 "$work/odd"
    exit 1
fi

# Constants: every name of the reference, its value in both.
names=$(grep -oE '^#define MPI_[A-Za-z0-9_]+|^ *MPI_[A-Z0-9_]+ +=' "$reference/include/mpi_abi.h" |
    sed -E 's/#define //; s/[ =]//g' | grep -v '^MPI_ABI_[A-Z][a-z]' | grep -vE '^MPI_H_ABI$' | sort -u)
for which in ours theirs; do
    header=$prefix/include/mpi.h
    [ $which = ours ] || header=$reference/include/mpi_abi.h
    {
        echo "#include \"$header\""
        echo '#include <stdio.h>'
        echo 'int main(void) {'
        for name in $names; do echo "printf(\"$name %lld\\n\", (long long)(intptr_t)$name);"; done
        echo 'printf("status %zu %zu %zu\n", sizeof(MPI_Status), sizeof(MPI_Aint), sizeof(MPI_Count));'
        echo 'return 0; }'
    } >"$work/$which.c"
    gcc -w "$work/$which.c" -o "$work/$which.bin"
    "$work/$which.bin" >"$work/$which.values"
done
diff "$work/theirs.values" "$work/ours.values"

# Datatypes: one program prints the same for about a hundred of them on both libraries.
"$prefix/bin/mpicc" -Wall -Werror -O1 programs/types.c -o "$work/types"
timeout 60 "$work/types" >"$work/types.ours"
LD_LIBRARY_PATH=$reference/lib timeout 60 "$work/types" >"$work/types.theirs"
diff "$work/types.theirs" "$work/types.ours" >"$work/types.diff" || { echo "datatypes differ (< reference, > ours)"; head -20 "$work/types.diff"; exit 1; }
echo "ABI: $(wc -l <"$work/ours") symbols, $(wc -l <"$work/ours.values") constants and $(wc -l <"$work/types.ours") lines about datatypes as in the reference"
