#!/bin/sh
# install.sh            install what the test bed needs and this machine lacks (Debian and its relatives; as root)
# install.sh --check    only say what is missing; exit 1 if anything is
# Not root: prints the line to type and exits 1. Nothing here starts a service: an sshd that was not there before is
# installed masked (`systemctl unmask ssh` if you want it), because the tests start their own on ports of their own.
set -eu
[ "$(uname)" = Linux ] || { echo "install.sh: no boxes on $(uname): their tests need Linux and stay off" >&2; exit 0; }
PATH=$PATH:/usr/local/sbin:/usr/sbin:/sbin

missing=""
# command:the package that brings it
for need in ssh:openssh-client debootstrap:debootstrap mkfs.ext4:e2fsprogs losetup:mount unshare:util-linux \
    ip:iproute2 nft:nftables rsync:rsync zstd:zstd tmux:tmux ps:procps rclone:rclone \
    sshd:openssh-server fish:fish tcsh:tcsh busybox:busybox \
    sbatch:slurm-client slurmctld:slurmctld slurmd:slurmd munged:munge shellcheck:shellcheck; do
    command -v "${need%%:*}" >/dev/null || missing="$missing ${need#*:}"
done
[ -n "$missing" ] || exit 0

line="apt-get update && apt-get install -y --no-install-recommends$missing"
if [ "${1:-}" = --check ] || [ "$(id -u)" != 0 ]; then
    echo "the test bed lacks:$missing" >&2
    echo "as root:  $line" >&2
    exit 1
fi
command -v apt-get >/dev/null || { echo "install.sh: no apt-get here; install by hand:$missing" >&2; exit 1; }

export DEBIAN_FRONTEND=noninteractive
echo "installing$missing" >&2
log=$(mktemp)
policy=
trap 'rm -f "$log" $policy' EXIT
case $missing in *openssh-server*)
    mkdir -p /etc/systemd/system
    for unit in ssh.service ssh.socket; do
        [ -e /etc/systemd/system/$unit ] || ln -s /dev/null /etc/systemd/system/$unit
    done
    if [ ! -e /usr/sbin/policy-rc.d ]; then  # the same for machines without systemd, for as long as this takes
        policy=/usr/sbin/policy-rc.d
        printf '#!/bin/sh\nexit 101\n' >$policy && chmod 755 $policy
    fi ;;
esac
# shellcheck disable=SC2086  # a list of package names
if ! { apt-get update -qq && apt-get install -y -qq --no-install-recommends $missing; } >"$log" 2>&1; then
    tail -20 "$log" >&2
    echo "install.sh: failed: $line" >&2
    exit 1
fi
