#!/usr/bin/env bash
# Makes a Debian package of a release build. Everything lies in /usr/lib/canele, beside other MPIs; `mpicc`, `mpiexec` and the
# others are alternatives of low priority. Usage: deb.sh FOLDER
set -euo pipefail
cd "$(dirname "$0")/.."
folder=${1:?usage: deb.sh FOLDER}
command -v dpkg-deb >/dev/null || { echo "deb: dpkg-deb is missing: install dpkg" >&2; exit 1; }
version=$(sed -n 's/^version = "\(.*\)"/\1/p' Cargo.toml | head -1)
architecture=$(dpkg --print-architecture)
prefix=/usr/lib/canele
# The same files make the same package: dates are those of the commit, modes do not follow this shell's umask.
export SOURCE_DATE_EPOCH=${SOURCE_DATE_EPOCH:-$(git log -1 --format=%ct 2>/dev/null || date -r Cargo.toml +%s)}
umask 022
stage=$(mktemp -d)
trap 'rm -rf "$stage"' EXIT
chmod 755 "$stage"
DESTDIR=$stage scripts/install.sh $prefix >/dev/null
find "$stage" -name .debug -prune -exec rm -rf {} +
rm -r "$stage$prefix/share/canele/installed"
mkdir -p "$stage/usr/bin" "$stage/usr/share/doc" "$stage/DEBIAN"
# Programs that no other MPI has are on PATH; so is their documentation where Debian keeps it.
for program in canele canele-agent canele-gateway; do ln -s "../lib/canele/bin/$program" "$stage/usr/bin/$program"; done
# Completions and pages of these programs are where shells and man look; those of the others follow the alternatives.
mkdir -p "$stage"/usr/share/{bash-completion/completions,zsh/vendor-completions,man/man1}
for program in canele canele-gateway; do
    ln -s "../../../lib/canele/share/bash-completion/completions/$program" "$stage/usr/share/bash-completion/completions/$program"
    ln -s "../../../lib/canele/share/zsh/site-functions/_$program" "$stage/usr/share/zsh/vendor-completions/_$program"
done
for page in canele canele-agent canele-gateway; do mv "$stage$prefix/share/man/man1/$page.1" "$stage/usr/share/man/man1/"; done
gzip -9n "$stage"/usr/share/man/man1/*.1
mv "$stage$prefix/share/doc/canele" "$stage/usr/share/doc/canele"
cat LICENSE-MIT LICENSE-APACHE >"$stage/usr/share/doc/canele/copyright"
find "$stage$prefix/share/man" -type f -exec gzip -9n {} +
find "$stage$prefix/share/man" -type l -print0 | while IFS= read -r -d '' link; do
    ln -s "$(readlink "$link").gz" "$link.gz"
    rm "$link"
done
# The least glibc that the programs and libraries need.
glibc=$(find "$stage" -type f -exec grep -laE '^.ELF' {} + | xargs objdump -T 2>/dev/null | grep -oE 'GLIBC_2\.[0-9]+' | sort -Vu | tail -1)
# In KiB, and one for each folder and link: the length of a folder depends on the file system.
size=$(find "$stage/usr" -type f -printf '%s\n' -o -printf '1\n' | awk '{ sum += int(($1 + 1023) / 1024) } END { print sum }')
cat >"$stage/DEBIAN/control" <<X
Package: canele
Version: $version
Architecture: $architecture
Maintainer: The Canele developers <canele@localhost>
Installed-Size: $size
Depends: libc6 (>= ${glibc#GLIBC_}), libgcc-s1
Recommends: gcc
Suggests: openssh-client, g++, gfortran
Section: net
Priority: optional
Description: MPI for machines that are far apart
 One shared library with the MPI-5.0 standard ABI, compiler wrappers, mpiexec, and the command canele with measurements and
 an emulated grid.
X
slaves() { # master, others of its group
    local name
    for name in "${@:2}"; do printf -- ' --slave /usr/bin/%s %s %s/bin/%s' "$name" "$name" $prefix "$name"; done
    slave_page "$@"
}
slave_page() { # names
    local name
    for name; do printf -- ' --slave /usr/share/man/man1/%s.1.gz %s.1.gz %s/share/man/man1/%s.1.gz' "$name" "$name" $prefix "$name"; done
}
completions() { # of mpiexec and mpirun
    local name shell=/usr/share/bash-completion/completions
    for name in mpiexec mpirun; do printf -- ' --slave %s/%s %s.bash %s%s/%s' $shell $name $name $prefix ${shell#/usr} mpiexec; done
    printf -- ' --slave /usr/share/zsh/vendor-completions/_mpiexec mpiexec.zsh %s/share/zsh/site-functions/_mpiexec' $prefix
}
cat >"$stage/DEBIAN/postinst" <<X
#!/bin/sh
set -e
[ "\$1" = configure ] || exit 0
update-alternatives --install /usr/bin/mpirun mpirun $prefix/bin/mpirun 20$(slaves mpirun mpiexec)$(completions)
update-alternatives --install /usr/bin/mpicc mpi $prefix/bin/mpicc 20$(slaves mpicc mpicxx mpic++ mpifort mpif90 mpif77)
X
cat >"$stage/DEBIAN/prerm" <<X
#!/bin/sh
set -e
[ "\$1" = remove ] || [ "\$1" = deconfigure ] || exit 0
update-alternatives --remove mpirun $prefix/bin/mpirun
update-alternatives --remove mpi $prefix/bin/mpicc
X
chmod 755 "$stage/DEBIAN/postinst" "$stage/DEBIAN/prerm"
mkdir -p "$folder"
dpkg-deb --root-owner-group --build "$stage" "$folder/canele_${version}_$architecture.deb" >/dev/null
echo "$folder/canele_${version}_$architecture.deb"
