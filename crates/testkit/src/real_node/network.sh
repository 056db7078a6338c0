# Owns one network of real nodes. Takes a free number N, removes what killed owners left, makes the bridge tw<N> with the address
# 10.201.<N>.1, and prints N. When its standard input ends, which its owner's end does too, it kills every process in the cgroups
# tidewaiter-<N> and removes these and the bridge. It holds the lock of N until then.
set -eu
exec 2>&1
trap '' HUP INT TERM
locks=$1

cgroups() { find /sys/fs/cgroup/*/"tidewaiter-$1" -depth -type d 2>/dev/null || true; }

# A frozen process takes no signal, so it is thawed first. A killed one leaves its cgroup a moment later.
remove() {
    tries=0
    while groups=$(cgroups "$1") && [ -n "$groups" ] && [ "$tries" -lt 400 ]; do
        for group in $groups; do
            [ ! -e "$group/freezer.state" ] || echo THAWED >"$group/freezer.state" || true
            for pid in $(cat "$group/cgroup.procs"); do kill -s KILL "$pid" || true; done
            rmdir "$group" || true
        done 2>/dev/null
        tries=$((tries + 1))
        sleep 0.02
    done
    for interface in /sys/class/net/"tw$1" /sys/class/net/"tw$1"-*; do
        [ ! -e "$interface" ] || ip link delete "${interface##*/}" || true
    done
}

mkdir -p "$locks"
for lock in "$locks"/*; do
    [ -e "$lock" ] || continue
    (flock --nonblock 9 && remove "${lock##*/}") 9>"$lock" || true
done
number=0
exec 9>"$locks/$number"
while ! flock --nonblock 9; do
    number=$((number + 1))
    [ "$number" -lt 256 ] || { echo "all 256 networks of real nodes are in use"; exit 1; }
    exec 9>"$locks/$number"
done
remove "$number"
ip link add "tw$number" type bridge
ip address add "10.201.$number.1/24" dev "tw$number"
ip link set "tw$number" up
for hierarchy in /sys/fs/cgroup/*/; do
    mkdir "$hierarchy/tidewaiter-$number"
done
for setting in cpus mems; do
    cat "/sys/fs/cgroup/cpuset/cpuset.$setting" >"/sys/fs/cgroup/cpuset/tidewaiter-$number/cpuset.$setting"
done
echo "$number"
exec >/dev/null 2>&1
while read -r _; do :; done
remove "$number"
