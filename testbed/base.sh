#!/bin/bash
# base.sh    build the root file system that all boxes share, once, and print its path
# It lives in $OUTLIVE_TESTBED_CACHE (default /var/tmp/outlive-testbed). Two callers at once: the second waits for the first.
# Packages come from wherever this machine's own apt takes them.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
PATH=$PATH:/usr/local/sbin:/usr/sbin:/sbin
cache=${OUTLIVE_TESTBED_CACHE:-/var/tmp/outlive-testbed}

# A change of this list changes the name of the base, so an old one is never taken for a new one.
# `python3`, not `python3-minimal`: the latter lacks http, sqlite3 and more. The libs are what a foreign CPython prefix links to.
include=openssh-server,python3,rsync,procps,iproute2,tmux,zstd,ca-certificates,libffi8,libsqlite3-0,libssl3,liblzma5,libbz2-1.0,zlib1g

"$here/install.sh"
[ "$(id -u)" = 0 ] || { echo "base.sh: needs root (debootstrap, chroot)" >&2; exit 1; }

suite=$(. /etc/os-release && echo "${VERSION_CODENAME:?base.sh: this system has no codename}")
base=$cache/base-$suite-$(printf %s "$include" | sha256sum | cut -c1-8)
mkdir -p "$cache"
exec 9>"$cache/lock"
flock 9
if [ -e "$base/.outlive-base" ]; then echo "$base"; exit 0; fi

mirror=$(apt-get indextargets --format '$(REPO_URI) $(CODENAME) $(COMPONENT)' 'Created-By: Packages' \
  | awk -v suite="$suite" '$2 == suite && $3 == "main" { print $1; exit }')
[ -n "$mirror" ] || { echo "base.sh: apt on this machine knows no source for '$suite main'" >&2; exit 1; }
eval "$(apt-config shell proxy Acquire::http::Proxy)"
[ -z "${proxy:-}" ] || export http_proxy=$proxy

echo "building the boxes' root ($suite, about a minute, once) ..." >&2
# An interrupted build may have left /proc mounted in there.
findmnt -rno TARGET | { grep "^$base.new/" || true; } | sort -r | while read -r at; do umount "$at"; done
rm -rf --one-file-system "$base.new" "$base"
# Package scripts must not start or find daemons of this machine; debootstrap itself diverts start-stop-daemon.
if ! debootstrap --variant=minbase --include="$include" "$suite" "$base.new" "$mirror" >"$cache/debootstrap.log" 2>&1 9>&-; then
  tail -5 "$cache/debootstrap.log" "$base.new/debootstrap/debootstrap.log" 2>/dev/null >&2 || true
  echo "base.sh: debootstrap failed; the whole log: $cache/debootstrap.log" >&2
  rm -rf "$base.new"
  exit 1
fi
rm -rf "$base.new"/var/cache/apt/archives/*.deb "$base.new"/var/lib/apt/lists/* "$base.new"/etc/ssh/ssh_host_*
touch "$base.new/.outlive-base"
mv "$base.new" "$base"
echo "$base"
