#!/usr/bin/env bash
# Source of a Debian package, by apt, unpacked to FOLDER/PACKAGE unless it is there: whole, or one part of it.
# Usage: debian_source.sh FOLDER PACKAGE VERSION [PART]
set -euo pipefail
folder=$1 package=$2 version=$3 part=${4:-}
[ ! -e "$folder/$package" ] || exit 0
# The lists of sources are its own, because the system's may have binaries only.
apt=$folder/apt
mkdir -p "$apt/parts" "$apt/lists/partial"
grep -ls '^URIs:.*/debian' /etc/apt/sources.list.d/*.sources | while read -r file; do
    sed 's/^Types:.*/Types: deb-src/' "$file" >"$apt/parts/${file##*/}"
done || true
sed -n 's/^deb /deb-src /p' /etc/apt/sources.list 2>/dev/null >"$apt/sources.list" || true
from=(-q -o "Dir::Etc::SourceList=$apt/sources.list" -o "Dir::Etc::SourceParts=$apt/parts" -o "Dir::State::Lists=$apt/lists")
apt-get "${from[@]}" update >/dev/null
(cd "$folder" && apt-get "${from[@]}" source --tar-only "$package" >/dev/null)
archive=$(find "$folder" -maxdepth 1 -name "${package}_$version*.orig.tar.*" ! -name '*.asc' | head -1)
[ -n "$archive" ] || { echo "this Debian has another $package than $version, whose tests are known here" >&2; exit 1; }
unpacked=$(mktemp -d -p "$folder")
tar -xf "$archive" -C "$unpacked" --strip-components=1 --wildcards "*/$part*"
chmod 755 "$unpacked"
mv "$unpacked" "$folder/$package"
