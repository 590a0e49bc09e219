# The first process of a box, before it becomes sshd. box.sh puts the box's settings above this text and starts it in new
# mount, pid, host name, IPC and cgroup namespaces. It builds /proc, /sys and /dev, changes the root, and becomes sshd.
set -eEuo pipefail
trap 'echo "box-init: line $LINENO: \`$BASH_COMMAND\` failed"' ERR
hostname "$name"
mount --make-rprivate /

mount -t proc proc "$m/proc"
mount -t sysfs -o ro sysfs "$m/sys"
if [ -n "$v1" ]; then
  mount -t tmpfs -o mode=755 cgroup "$m/sys/fs/cgroup"
  for controllers in $v1; do
    [ ! -d "$m/sys/fs/cgroup/$controllers" ] || continue
    mkdir "$m/sys/fs/cgroup/$controllers"
    mount -t cgroup -o "ro,$controllers" cgroup "$m/sys/fs/cgroup/$controllers"
    for one in ${controllers//,/ }; do [ "$one" = "$controllers" ] || ln -s "$controllers" "$m/sys/fs/cgroup/$one"; done
  done
else
  mount -t cgroup2 -o ro cgroup2 "$m/sys/fs/cgroup"
fi

mount -t tmpfs -o mode=755,size=1m dev "$m/dev"
for node in null zero full random urandom tty; do
  touch "$m/dev/$node"
  mount --bind "/dev/$node" "$m/dev/$node"
done
mkdir "$m/dev/pts" "$m/dev/shm"
mount -t devpts -o newinstance,ptmxmode=0666,mode=620 devpts "$m/dev/pts"
mount -t tmpfs -o mode=1777,size=64m shm "$m/dev/shm" # 64 MB is what a container gets by default
ln -s pts/ptmx "$m/dev/ptmx"
ln -s /proc/self/fd "$m/dev/fd"
for stream in 0:stdin 1:stdout 2:stderr; do ln -s "/proc/self/fd/${stream%:*}" "$m/dev/${stream#*:}"; done

for i in "${!volumes[@]}"; do mount --bind "$dir/volume$i" "$m${volumes[i]%%=*}"; done
if [ -n "$python" ]; then
  mount --bind "$python_prefix" "$m/opt/python$python"
  mount -o remount,bind,ro "$m/opt/python$python"
fi

rm -rf "$m"/run/sshd/* "$m"/tmp/.X* 2>/dev/null || true
cd "$m"
# A root that is itself no mount point (a plain chroot) cannot be pivoted away from; the box then lives in a chroot.
if pivot_root . oldroot; then
  umount -l /oldroot
  rmdir /oldroot
  enter=()
else
  echo "box-init: no pivot_root here, using chroot"
  rmdir oldroot
  enter=(chroot .)
fi

options=(-o "Port=$port" -o "ListenAddress=$address" -o UsePAM=no -o PidFile=none -o MaxStartups=100
  -o "MaxSessions=$max_sessions" -o PasswordAuthentication=no -o KbdInteractiveAuthentication=no
  -o HostKey=/etc/ssh/ssh_host_ed25519_key)
[ "$user" = root ] || options+=(-o PermitRootLogin=no)
[ "$noisy" = no ] || options+=(-o Banner=/etc/issue.net -o PrintMotd=yes)
config=/etc/ssh/sshd_config
if [ "$sftp" = no ]; then
  sed '/^Subsystem/d' "${enter:+.}/etc/ssh/sshd_config" >"${enter:+.}/etc/ssh/sshd_config_no_sftp"
  config=/etc/ssh/sshd_config_no_sftp
fi
command=(/usr/sbin/sshd -D -e -f "$config" "${options[@]}")
[ ${#environment[@]} = 0 ] || command=(/bin/bash -c '"$@" & wait' start "${command[@]}")
exec "${enter[@]}" /usr/bin/env -i PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin HOME=/root \
  "${environment[@]}" "${command[@]}"
