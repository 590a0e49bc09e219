# first contact: what a POSIX shell can tell before any interpreter is known. Changes nothing.
#
#   sh contact.sh     standard input: one question a line: env NAME | path P | file P | dmi FIELD | mount P | python P
#
# Answers one line each: KIND<tab>NAME<tab>VALUE, only for what is there. Values are cut at 400 characters and
# have no line breaks. Python is asked only for its version.
tab=$(printf '\t')
say() { printf '%s\t%s\t%s\n' "$1" "$2" "$(printf '%s' "$3" | tr '\n\r\t\000' '    ' | cut -c1-400)"; }

say here home "${HOME:-}"
say here user "$(id -un 2>/dev/null || id -u)"
say here uid "$(id -u)"
say here hostname "$(hostname 2>/dev/null || cat /etc/hostname 2>/dev/null)"
say here system "$(uname -s) $(uname -m)"
say here wall_s "$(date +%s)"

python() {
  [ -x "$1" ] || return 0
  v=$("$1" -I -S -c 'import sys; print("%d.%d.%d" % sys.version_info[:3])' 2>/dev/null </dev/null) && say python "$1" "$v"
}

pid1=
if [ -r /proc/1/environ ]; then pid1=$(tr '\000' '\n' </proc/1/environ 2>/dev/null); fi

while IFS=' ' read -r kind name; do
  case $kind in
    env)
      value=$(printenv "$name" 2>/dev/null) || value=$(printf '%s\n' "$pid1" | sed -n "s/^$name=//p" | head -n 1)
      [ -n "$value" ] && say env "$name" "$value" ;;
    path) [ -e "$name" ] && say path "$name" 1 ;;
    file) [ -r "$name" ] && [ -f "$name" ] && say file "$name" "$(head -c 400 "$name" 2>/dev/null)" ;;
    dmi) [ -r "/sys/class/dmi/id/$name" ] && say dmi "$name" "$(cat "/sys/class/dmi/id/$name" 2>/dev/null)" ;;
    mount) [ -r /proc/mounts ] && line=$(awk -v m="$name" '$2 == m { print $1 " " $3; exit }' /proc/mounts 2>/dev/null) &&
      [ -n "$line" ] && say mount "$name" "$line" ;;
    python) python "$name" ;;
  esac
done

for name in python3 python python3.13 python3.12 python3.11 python3.10 python3.9 python3.8; do
  found=$(command -v "$name" 2>/dev/null) && python "$found"
done
for found in /opt/conda/bin/python "${HOME:-/root}/miniconda3/bin/python" "${HOME:-/root}/anaconda3/bin/python" \
  /root/miniconda3/bin/python /usr/local/bin/python3 /usr/bin/python3 /opt/python3*/bin/python3 /opt/*/bin/python3.*; do
  python "$found"
done
say end end 1
