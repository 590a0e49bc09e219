#!/bin/bash
# box.sh: one real sshd "that looks like a rental": its own root, host name, pid 1, memory, CPU, disk and inodes.
#
#   box.sh up NAME [option...]     make the box and wait until its sshd listens
#   box.sh kill NAME               the whole box dies at once, as in a preemption; its disk stays
#   box.sh start NAME              start a killed box: same disk, new pid 1 (the host's boot id does not change)
#   box.sh restart NAME            kill + start
#   box.sh empty NAME              kill, throw the disk away, start from the image again; volumes stay
#   box.sh read-only NAME          its ext4 disk refuses every write, as after a disk error;  box.sh repair NAME
#                                  ends everything, checks the disk, mounts it anew and starts: nothing less brings it back
#   box.sh power-cut NAME          what was not synced to its ext4 disk is lost; everything ends, and the box starts again
#   box.sh freeze NAME             SIGSTOP to every sshd of the box: connections hang, the work goes on;  box.sh thaw NAME
#   box.sh down NAME               end it and remove every trace;  box.sh down --all
#   box.sh show NAME               its settings as KEY=VALUE;  box.sh ls   the names of all boxes
#
# Options of `up`:
#   --address IP (127.0.3.1)   --port N (2200)   --netns NAME        where sshd listens
#   --memory-mb N (512)        --cpu-percent N (100: one core)       --pids N (512)
#   --disk tmpfs:SIZE:INODES | ext4:MB:INODES (tmpfs:128m:8000)      pages on tmpfs count against --memory-mb
#   --volume PATH=tmpfs:SIZE:INODES | PATH=ext4:MB:INODES            a second tier, survives `empty`; may be repeated
#   --volume PATH=bind:DIR                                           a directory of this machine, as several boxes share one
#   --user NAME                log in as NAME (own home, no root) instead of root
#   --key FILE.pub             the key that may log in (default: one made for all boxes, $root/id)
#   --no-rsync --no-tmux --no-sftp --no-multiplex --max-sessions N   what this rental does not have or allow
#   --noisy                    a banner, and a start-up file that talks on stdout in every session
#   --python X.Y               no python3; only `python` and `pythonX.Y`, read-only, from a pyenv on this machine
#   --env K=V                  environment of pid 1, not of a login session; may be repeated (pid 1 is then a shell that waits
#                              for sshd, because sshd overwrites its own environment; otherwise pid 1 is sshd)
#
# State: $OUTLIVE_TESTBED_BOXES (default $OUTLIVE_TESTBED_CACHE/boxes). Needs root and Linux.
# Any command that fails stops the script, names itself, and `up` takes back what it had made.
set -eEuo pipefail
here=$(cd "$(dirname "$0")" && pwd)
PATH=$PATH:/usr/local/sbin:/usr/sbin:/sbin
root=${OUTLIVE_TESTBED_BOXES:-${OUTLIVE_TESTBED_CACHE:-/var/tmp/outlive-testbed}/boxes}

die() { trap - ERR; echo "box.sh: $*" >&2; exit 1; }
trap 'die "line $LINENO: \`$BASH_COMMAND\` failed (exit $?)"' ERR

# --- cgroups: version 1 (one hierarchy per controller) or 2, whichever this machine limits memory with ----------------

controllers="memory cpu pids"

declare -A v1_mounts=() # controller -> mount point, filled once
while read -r at super; do
  for one in ${super//,/ }; do v1_mounts[$one]=${v1_mounts[$one]:-$at}; done
done < <(awk '{ for (i = 7; i < NF; i++) if ($i == "-") break; if ($(i+1) == "cgroup") print $5, $(i+3) }' /proc/self/mountinfo)

v1_mount() { # the mount point of a version 1 controller, empty if there is none
  printf %s "${v1_mounts[$1]:-}"
}

cgroup_dirs() { # every cgroup directory that belongs to the box, one a line
  local group=outlive-bed-$tag controller at
  if [ -n "$(v1_mount memory)" ]; then
    for controller in $controllers; do
      at=$(v1_mount "$controller"); [ -n "$at" ] || die "no cgroup v1 hierarchy for '$controller'"
      echo "$at/$group"
    done | sort -u
  elif [ -e /sys/fs/cgroup/cgroup.controllers ]; then
    echo "/sys/fs/cgroup/$group"
  else
    die "no cgroup memory controller is mounted under /sys/fs/cgroup"
  fi
}

cgroup_make() {
  local dir memory
  if [ -n "$(v1_mount memory)" ]; then
    for dir in $(cgroup_dirs); do mkdir "$dir"; done
    memory=$(v1_mount memory)/outlive-bed-$tag
    echo "${memory_mb}M" >"$memory/memory.limit_in_bytes"
    echo $((cpu_percent * 1000)) >"$(v1_mount cpu)/outlive-bed-$tag/cpu.cfs_quota_us"
    echo "$pids" >"$(v1_mount pids)/outlive-bed-$tag/pids.max"
  else
    echo "+memory +cpu +pids" >/sys/fs/cgroup/cgroup.subtree_control
    dir=$(cgroup_dirs); mkdir "$dir"
    echo "${memory_mb}M" >"$dir/memory.max"
    [ ! -e "$dir/memory.swap.max" ] || echo 0 >"$dir/memory.swap.max"
    echo "$((cpu_percent * 1000)) 100000" >"$dir/cpu.max"
    echo "$pids" >"$dir/pids.max"
  fi
}

cgroup_pids() { # the processes of the box, as this pid namespace sees them
  local dir; dir=$(cgroup_dirs | tail -1)
  [ ! -d "$dir" ] || cat "$dir/cgroup.procs"
}

cgroup_remove() {
  local dir try
  for dir in $(cgroup_dirs); do
    for try in $(seq 60); do # a dying process leaves its cgroup a moment after it left /proc
      [ -d "$dir" ] || break
      rmdir "$dir" 2>/dev/null && break
      [ "$try" -lt 60 ] || die "cgroup $dir does not empty: $(tr '\n' ' ' <"$dir/cgroup.procs")"
      sleep 0.05
    done
  done
}

# --- disks -------------------------------------------------------------------------------------------------------------

extra_bytes=0 extra_inodes=0 # what a copied base occupies: added, so that the box's own share stays what was asked for

mount_disk() { # SPEC IMAGE MOUNTPOINT
  local kind size inodes bytes
  IFS=: read -r kind size inodes <<<"$1"
  if [ "$kind" = bind ]; then mkdir -p "$3"; mount --bind "$size" "$3"; return; fi
  [[ $inodes =~ ^[0-9]+$ ]] || die "disk '$1' is not tmpfs:SIZE:INODES or ext4:MB:INODES"
  mkdir -p "$3"
  case $kind in
    tmpfs)
      bytes=$(numfmt --from=iec "${size^^}")
      mount -t tmpfs -o "mode=755,size=$((bytes + extra_bytes)),nr_inodes=$((inodes + extra_inodes))" "outlive-$name" "$3" ;;
    ext4)
      if [ ! -e "$2" ]; then
        truncate -s $((size * 1048576 + extra_bytes)) "$2"
        mkfs.ext4 -q -F -m 0 -N $((inodes + extra_inodes)) "$2"
      fi
      mount -o loop "$2" "$3" ;;
    *) die "disk '$1' is not tmpfs:SIZE:INODES or ext4:MB:INODES" ;;
  esac
}

disk_make() { # the box's root at $dir/root: the shared base below, its own disk on top
  mkdir -p "$dir/root"
  if [ "${OUTLIVE_TESTBED_COPY:-}" != 1 ]; then
    mount_disk "$disk" "$dir/disk.img" "$dir/disk"
    mkdir "$dir/disk/up" "$dir/disk/work"
    if mount -t overlay -o "lowerdir=$base,upperdir=$dir/disk/up,workdir=$dir/disk/work" "outlive-$name" "$dir/root" 2>"$dir/overlay.err"; then
      layers=overlay
      return
    fi
    echo "box.sh: no overlay here ($(head -1 "$dir/overlay.err")); copying the base instead" >&2
    umount "$dir/disk"; rm -f "$dir/disk.img"
  fi
  layers=copy
  extra_bytes=$(($(du -s --block-size=1 "$base" | cut -f1) * 11 / 10))
  extra_inodes=$(($(find "$base" | wc -l) + 100))
  mount_disk "$disk" "$dir/disk.img" "$dir/disk"
  extra_bytes=0 extra_inodes=0
  cp -a --reflink=auto "$base/." "$dir/disk/"
  mount --bind "$dir/disk" "$dir/root"
}

disk_repair() { # what an owner does after the kernel made a disk read-only; its files stay
  [[ $disk == ext4:* && $layers == overlay ]] || die "only an ext4 disk under an overlay can be repaired"
  umount "$dir/root" "$dir/disk"
  e2fsck -fp "$dir/disk.img" >"$dir/fsck.log" 2>&1 || [ $? -le 1 ] || die "e2fsck: $(tail -1 "$dir/fsck.log")"
  mount -o loop "$dir/disk.img" "$dir/disk"
  mount -t overlay -o "lowerdir=$base,upperdir=$dir/disk/up,workdir=$dir/disk/work" "outlive-$name" "$dir/root"
}

disk_drop() {
  local at
  for at in "$dir/root" "$dir/disk"; do
    if mountpoint -q "$at"; then umount "$at" 2>/dev/null || umount -l "$at"; fi
  done
  rm -rf "$dir/disk.img"
  rmdir "$dir/root" "$dir/disk" 2>/dev/null || true
}

# --- what the rental looks like inside -----------------------------------------------------------------------------------

furnish() { # after disk_make: key, user, tools taken away
  local m=$dir/root home=/root tool
  [ -e "$dir/host_key" ] || ssh-keygen -q -t ed25519 -N '' -C "$name" -f "$dir/host_key"
  install -m 600 "$dir/host_key" "$m/etc/ssh/ssh_host_ed25519_key"
  install -m 644 "$dir/host_key.pub" "$m/etc/ssh/ssh_host_ed25519_key.pub"
  echo "$name" >"$m/etc/hostname"
  printf '127.0.0.1 localhost\n%s %s\n' "$address" "$name" >"$m/etc/hosts"
  if [ "$user" != root ]; then
    chroot "$m" useradd --create-home --shell /bin/bash --password '*' "$user" # '!' would mean locked, and sshd would refuse
    home=/home/$user
  fi
  mkdir -p "$m/run/sshd" "$m$home/.ssh"
  install -m 600 "$key" "$m$home/.ssh/authorized_keys"
  chmod 700 "$m$home/.ssh"
  chroot "$m" chown -R "$user:" "$home/.ssh"
  for tool in $without; do rm -f "$m/usr/bin/$tool"; done
  if [ "$sftp" = no ]; then rm -f "$m/usr/lib/openssh/sftp-server" "$m/usr/lib/sftp-server"; fi
  if [ "$noisy" = yes ]; then
    printf 'Welcome to %s.\n*** Unpaid boxes are deleted. Billing is per second. ***\n' "$name" | tee "$m/etc/issue.net" >"$m/etc/motd"
    { printf 'echo "[%s] activating environment ..."\necho "GPU quota: unknown" >&2\n' "$name"; cat "$m$home/.bashrc" 2>/dev/null || true; } >"$dir/bashrc"
    install -m 644 "$dir/bashrc" "$m$home/.bashrc"
    chroot "$m" chown "$user:" "$home/.bashrc"
  fi
  if [ -n "$python" ]; then
    rm -f "$m"/usr/bin/python3* "$m"/usr/local/bin/python3*
    mkdir -p "$m/opt/python$python"
    ln -sfn "/opt/python$python/bin/python$python" "$m/usr/local/bin/python$python"
    ln -sfn "python$python" "$m/usr/local/bin/python"
    # The prefix was built elsewhere and is only mounted when the box runs; its libpython is found through the loader's cache.
    echo "/opt/python$python/lib" >"$m/etc/ld.so.conf.d/python.conf"
    mount --bind "$python_prefix" "$m/opt/python$python"
    ldconfig -r "$m"
    umount "$m/opt/python$python"
  fi
}

python_find() { # X.Y: sets python_prefix to the newest prefix of that version on this machine
  local place found
  for place in "${PYENV_ROOT:-}" "${HOME:-/root}/.pyenv" /root/.pyenv; do
    found=$(find "${place:-/nonexistent}/versions" -mindepth 1 -maxdepth 1 -name "$1.*" 2>/dev/null | sort -V | tail -1)
    if [ -n "$found" ] && [ -x "$found/bin/python$1" ]; then python_prefix=$found; return; fi
  done
  die "--python $1: no pyenv here has it (looked in \$PYENV_ROOT and ~/.pyenv)"
}

# --- life and death ------------------------------------------------------------------------------------------------------

start_ticks() { # empty for a process that is gone, or dead and not yet waited for (pid 1 of a container may never wait)
  { sed 's/.*) //' "/proc/$1/stat" 2>/dev/null || true; } | awk '$1 != "Z" && $1 != "X" { print $20 }'
}

outer_alive() { # true if the recorded process is ours and lives; a pid that was given to somebody else is not ours
  local pid ticks
  [ -s "$dir/pid" ] || return 1
  read -r pid ticks <"$dir/pid"
  [ -n "$ticks" ] && [ "$(start_ticks "$pid")" = "$ticks" ]
}

box_start() {
  local m=$dir/root v1="" controller at child="" try
  outer_alive && die "box $name is running already"
  cgroup_make
  if [ -n "$(v1_mount memory)" ]; then
    for controller in $controllers; do # co-mounted controllers (cpu,cpuacct) can only be mounted as the set they are
      v1+=" $(awk -F: -v want="$controller" '("," $2 ",") ~ ("," want ",") { print $2; exit }' /proc/self/cgroup)"
    done
  fi
  mkdir -p "$m/proc" "$m/sys" "$m/dev" "$m/run/sshd" "$m/oldroot"
  for at in "${!volumes[@]}"; do mkdir -p "$m${volumes[at]%%=*}"; done
  {
    declare -p name address port user m v1 max_sessions sftp noisy python python_prefix layers dir
    declare -p volumes environment
    cat "$here/box-init.sh"
  } >"$dir/init.sh"
  : >"$dir/sshd.log"
  local enter=()
  [ "$netns" = - ] || enter=(ip netns exec "$netns")
  (
    trap - ERR
    for at in $(cgroup_dirs); do echo $BASHPID >"$at/cgroup.procs"; done
    exec setsid "${enter[@]}" unshare -m -p -u -i -C --fork --kill-child --mount-proc=/proc bash "$dir/init.sh" \
      </dev/null >"$dir/sshd.log" 2>&1
  ) &
  echo "$! $(start_ticks $!)" >"$dir/pid"
  disown
  for try in $(seq 400); do
    grep -q "Server listening on" "$dir/sshd.log" && break
    if ! outer_alive || [ "$try" = 400 ]; then
      tail -5 "$dir/sshd.log" >&2
      die "box $name did not start; its log: $(tail -1 "$dir/sshd.log")"
    fi
    sleep 0.025
  done
  # With `ip netns exec` and setsid all exec'ing, the recorded process is unshare and its only child is the box's pid 1.
  child=$(tr -d ' ' <"/proc/$(cut -d' ' -f1 "$dir/pid")/task/$(cut -d' ' -f1 "$dir/pid")/children")
  [ -n "$child" ] || die "box $name has no pid 1"
  echo "$child" >"$dir/pid1"
  local host="[$address]:$port"
  [ "$port" != 22 ] || host=$address # ssh looks the usual port up without it
  echo "$host $(cut -d' ' -f1,2 "$dir/host_key.pub")" >"$dir/known_hosts"
  write_ssh_config
}

write_ssh_config() {
  cat >"$dir/ssh_config" <<EOT
Host $name
  HostName $address
  Port $port
  User $user
  IdentityFile ${key%.pub}
  IdentitiesOnly yes
  UserKnownHostsFile $dir/known_hosts
  StrictHostKeyChecking yes
  LogLevel ERROR
EOT
}

box_kill() {
  local pid ticks try
  if outer_alive; then
    read -r pid ticks <"$dir/pid"
    # Pid 1 first: the kernel then kills everything in its pid namespace in one go, which is what a preemption looks like.
    if [ -s "$dir/pid1" ]; then kill -KILL "$(cat "$dir/pid1")" 2>/dev/null || true; else kill -KILL "$pid" 2>/dev/null || true; fi
  fi
  for try in $(seq 100); do
    if ! outer_alive && [ -z "$(cgroup_pids)" ]; then break; fi
    if [ "$try" -gt 10 ]; then for pid in $(cgroup_pids); do kill -KILL "$pid" 2>/dev/null || true; done; fi
    [ "$try" -lt 100 ] || die "box $name does not die: $(cgroup_pids | tr '\n' ' ')"
    sleep 0.03
  done
  rm -f "$dir/pid" "$dir/pid1"
  cgroup_remove
}

box_signal() { # SIGNAL to every sshd of the box (listener and sessions), to nothing else
  local pid count=0
  for pid in $(cgroup_pids); do
    case $(cat "/proc/$pid/comm" 2>/dev/null) in sshd*) kill "-$1" "$pid"; count=$((count + 1)) ;; esac
  done
  [ $count -gt 0 ] || die "box $name has no sshd to signal; is it killed?"
}

box_remove() {
  local at
  box_kill
  disk_drop
  for at in "$dir"/volume*; do
    if mountpoint -q "$at"; then umount "$at" 2>/dev/null || umount -l "$at"; fi
  done
  rm -rf --one-file-system "$dir"
}

save() { declare -p name tag dir base layers address port netns memory_mb cpu_percent pids disk user key without sftp max_sessions noisy python python_prefix volumes environment >"$dir/settings"; }

load() { # NAME
  name=${1:?box.sh: which box?} dir=$root/$1
  [ -d "$dir" ] || die "no box '$name' in $root (there are: $(names | tr '\n' ' '))"
  [ -s "$dir/settings" ] || die "box '$name' in $root was never completed; remove it with: rm -r $dir"
  # shellcheck disable=SC1091
  . <(sed 's/^declare /declare -g /' "$dir/settings")
}

names() { local d; for d in "$root"/*/; do if [ -s "$d/settings" ]; then basename "$d"; fi; done; }

box_up() {
  address=127.0.3.1 port=2200 netns=- memory_mb=512 cpu_percent=100 pids=512 disk=tmpfs:128m:8000
  user=root key=$root/id.pub without="" sftp=yes max_sessions=100 noisy=no python="" python_prefix=""
  layers=none
  declare -ga volumes=() environment=()
  name=${1:?box.sh up: a name, please}; shift
  [[ $name =~ ^[a-z][a-z0-9-]{0,40}$ ]] || die "box name '$name': lower-case letters, digits and dashes, please"
  while [ $# -gt 0 ]; do
    case $1 in
      --address | --port | --netns | --memory-mb | --cpu-percent | --pids | --disk | --user | --key | --max-sessions | --python | --volume | --env)
        [ $# -ge 2 ] || die "$1 needs a value" ;;&
      --address) address=$2; shift 2 ;;
      --port) port=$2; shift 2 ;;
      --netns) netns=$2; shift 2 ;;
      --memory-mb) memory_mb=$2; shift 2 ;;
      --cpu-percent) cpu_percent=$2; shift 2 ;;
      --pids) pids=$2; shift 2 ;;
      --disk) disk=$2; shift 2 ;;
      --volume) volumes+=("$2"); shift 2 ;;
      --user) user=$2; shift 2 ;;
      --key) key=$(realpath "$2"); shift 2 ;;
      --no-rsync) without+=" rsync"; shift ;;
      --no-tmux) without+=" tmux"; shift ;;
      --no-sftp) sftp=no; shift ;;
      --no-multiplex) max_sessions=1; shift ;;
      --max-sessions) max_sessions=$2; shift 2 ;;
      --noisy) noisy=yes; shift ;;
      --python) python=$2; shift 2 ;;
      --env) environment+=("$2"); shift 2 ;;
      *) die "up: unknown option '$1' (see the top of $here/box.sh)" ;;
    esac
  done
  [ -z "$python" ] || python_find "$python"
  base=$("$here/base.sh")
  mkdir -p "$root"
  if [ "$key" = "$root/id.pub" ]; then
    ( flock 9; [ -e "$root/id.pub" ] || ssh-keygen -q -t ed25519 -N '' -C outlive-testbed -f "$root/id" ) 9>"$root/lock"
  fi
  dir=$root/$name
  mkdir "$dir" 2>/dev/null || die "box '$name' exists already; end it with: $here/box.sh down $name"
  tag=$(printf %s "$dir $$ $(start_ticks $$)" | sha256sum | cut -c1-12) # cgroup names are shared by the whole machine
  save
  trap 'code=$?; [ $code = 0 ] || { trap - ERR; set +e; cp "$dir/sshd.log" "$root/last-failed.log" 2>/dev/null; box_remove; }' EXIT
  local i
  for i in "${!volumes[@]}"; do
    mount_disk "${volumes[i]#*=}" "$dir/volume$i.img" "$dir/volume$i"
    chmod 1777 "$dir/volume$i"
  done
  disk_make
  furnish
  [[ $disk != ext4:* ]] || sync -f "$dir/disk" # a box that stands for longer than a moment has its own files on its disk
  save
  box_start
}

[ "$(uname)" = Linux ] || die "boxes need Linux"
verb=${1:-}; shift || true
case $verb in ls | "" | help | -h | --help) ;; *) [ "$(id -u)" = 0 ] || die "boxes need root (mounts, namespaces, cgroups)" ;; esac
case $verb in
  up) box_up "$@" ;;
  kill) load "${1:-}"; box_kill ;;
  start) load "${1:-}"; box_start ;;
  restart) load "${1:-}"; box_kill; box_start ;;
  empty) load "${1:-}"; box_kill; disk_drop; rm -f "$dir/host_key" "$dir/host_key.pub"; disk_make; furnish; save; box_start ;;
  read-only) load "${1:-}"; mount -o remount,abort "$dir/disk" ;;
  power-cut) # the order that file system developers test with: no byte reaches the disk after it, not even the journal's
    load "${1:-}"
    python3 -c 'import fcntl, os, struct, sys; fcntl.ioctl(os.open(sys.argv[1], os.O_RDONLY), 0x8004587D, struct.pack("I", 2))' "$dir/disk"
    box_kill; disk_repair; box_start ;;
  repair) load "${1:-}"; box_kill; disk_repair; box_start ;;
  freeze) load "${1:-}"; box_signal STOP ;;
  thaw) load "${1:-}"; box_signal CONT ;;
  down)
    if [ "${1:-}" = --all ]; then for one in $(names); do "$0" down "$one"; done; else load "${1:-}"; box_remove; fi ;;
  show)
    load "${1:-}"
    for key_name in name address port user memory_mb cpu_percent pids disk layers max_sessions sftp noisy python; do echo "$key_name=${!key_name}"; done
    echo "key=${key%.pub}"; echo "dir=$dir"; echo "ssh_config=$dir/ssh_config"
    echo "state=$(outer_alive && echo running || echo killed)"
    echo "pid1=$(cat "$dir/pid1" 2>/dev/null || true)"
    echo "cgroup_dirs=$(cgroup_dirs | tr '\n' ' ')" ;;
  ls) names ;;
  *) sed -n '2,/^set -/p' "$0" | sed '$d; s/^# \{0,1\}//' >&2; exit 2 ;;
esac
