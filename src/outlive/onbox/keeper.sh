# keeper: stands beside one attempt and outlives whatever else of ours dies.
#
#   sh keeper.sh work  RUN_DIR ATTEMPT PYTHON PYZ   starts the work, records its end, guards the supervisor
#   sh keeper.sh guard RUN_DIR ATTEMPT PYTHON PYZ   only guards: for a work whose own keeper was killed
#
# Standard input: one line of JSON, the payload (secrets of the work). It stays in a variable that is
# never exported, and goes on through pipes only. POSIX sh, no tool but sleep, mv and printf.
set -u
umask 077
mode=$1 dir=$2 n=$3 python=$4 pyz=$5
a=$dir/attempts/$n
IFS= read -r payload || payload='{}'
exec </dev/null 2>>"$a/keeper.err"
trap '' HUP INT TERM

start_of() {  # sets `ticks` to the start of a pid, or to nothing when it is gone or a zombie; starts no process
  ticks=
  if [ -r /proc/self/stat ]; then
    { IFS= read -r stat </proc/"$1"/stat; } 2>/dev/null || return 0
    set -- ${stat##*) }
    [ "$1" = Z ] || ticks=${20}
  else
    ! kill -0 "$1" 2>/dev/null || ticks=0
  fi
}

supervised() {
  { read -r spid sticks <"$dir/supervisor"; } 2>/dev/null || return 1
  start_of "$spid"
  [ -n "$ticks" ] && { [ "$ticks" = "$sticks" ] || [ "$ticks" = 0 ]; }
}

beat() {  # in place, so that a full disk takes it too
  up=0
  { read -r up _ </proc/uptime; } 2>/dev/null
  { printf '%-20s\n' "$up" 1<>"$a/beat"; } 2>/dev/null || :
}

newest() {  # true while no later attempt has taken over from this one
  [ ! -e "$dir/attempts/$((n + 1))" ]
}

guard() {
  missing=0
  while [ -d "$dir" ] && [ ! -e "$dir/done" ] && newest; do
    beat
    if supervised; then missing=0; else missing=$((missing + 1)); fi
    if [ "$missing" -ge 2 ]; then
      printf '%s\n' "$payload" | "$python" -I -S -X utf8 "$pyz" supervise "$dir" >/dev/null 2>>"$dir/supervisor.err"
      missing=0
    fi
    sleep 2
  done
}

record_exit() {  # into a file whose blocks exist already, so that a full disk cannot swallow the status
  up=0
  { read -r up _ </proc/uptime; } 2>/dev/null
  printf '%-200s\n' "{\"status\":$1,\"by\":\"keeper\",\"uptime_s\":$up}" 1<>"$a/exit.new" && mv -f "$a/exit.new" "$a/exit"
}

if [ "$mode" = work ]; then
  printf '%s\n' "$payload" | "$python" -I -S -X utf8 "$pyz" launch "$dir" "$n" >>"$dir/log" 2>&1 &
  work=$!
  guard 3>&- &
  while :; do
    wait "$work"
    status=$?
    # a trapped signal ends `wait` early, with the child still there
    kill -0 "$work" 2>/dev/null || break
    start_of "$work"
    [ -n "$ticks" ] || break
  done
  # a disk that takes no writes may take some again; until then nobody but us knows the status
  until record_exit "$status"; do [ -d "$a" ] && newest || break; sleep 2; done
  wait
else
  guard
fi
