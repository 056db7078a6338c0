# The machine below a real node: `outer` joins the node's cgroups and makes its namespaces, `inner` mounts its file system on its disk and
# becomes systemd. When the node's first process ends, all that is in its namespaces ends: processes, mounts and the network.
set -eu
stage=$1 folder=$2 tree=$3 programs=$4 name=$5 group=$6

if [ "$stage" = outer ]; then
    for hierarchy in /sys/fs/cgroup/*/; do
        mkdir -p "$hierarchy$group"
    done
    for setting in cpus mems; do
        cat "/sys/fs/cgroup/cpuset/cpuset.$setting" >"/sys/fs/cgroup/cpuset/$group/cpuset.$setting"
    done
    for hierarchy in /sys/fs/cgroup/*/; do
        echo $$ >"$hierarchy$group/cgroup.procs"
    done
    shift
    exec unshare --mount --net --uts --ipc --cgroup --pid --fork --kill-child --propagation private \
        /bin/sh "$folder/node.sh" inner "$@"
fi

hostname "$name"
cd "$folder"
mkdir -p disk root
mount -o loop disk.img disk
mkdir -p disk/upper disk/work disk/kubelet disk/containerd
mount -t overlay -o "lowerdir=$folder/files:$tree,upperdir=$folder/disk/upper,workdir=$folder/disk/work" overlay root
cd root
mount -t proc proc proc
mount -t sysfs sysfs sys
mount --rbind /dev dev
mount -t tmpfs tmpfs run
mount -t tmpfs tmpfs tmp
mount --bind "$programs" opt/node
mount --bind "$folder/disk/kubelet" var/lib/kubelet
mount --bind "$folder/disk/containerd" var/lib/containerd
mount -t tmpfs tmpfs sys/fs/cgroup
for hierarchy in blkio cpu cpuacct cpuset devices freezer memory pids; do
    mkdir "sys/fs/cgroup/$hierarchy"
    mount -t cgroup -o "$hierarchy" cgroup "sys/fs/cgroup/$hierarchy"
done
mkdir sys/fs/cgroup/systemd
mount -t cgroup -o none,name=systemd cgroup sys/fs/cgroup/systemd

# kubelet and systemd set these for the whole machine: they get files instead. Each boot has an id of its own.
for setting in fs/file-max fs/nr_open kernel/panic kernel/panic_on_oops kernel/keys/root_maxbytes kernel/keys/root_maxkeys \
    vm/overcommit_memory vm/panic_on_oom; do
    mkdir -p "run/settings/${setting%/*}"
    cat "proc/sys/$setting" >"run/settings/$setting"
    mount --bind "run/settings/$setting" "proc/sys/$setting"
done
cp "$folder/boot-id" run/settings/boot-id
mount --bind run/settings/boot-id proc/sys/kernel/random/boot_id

# The other end of the cable comes from outside.
while [ ! -e sys/class/net/eth0 ]; do
    sleep 0.02
done
ip link set lo up
ip -batch "$folder/network"

mkdir -p .old
pivot_root . .old
cd /
umount -l /.old
rmdir /.old
mount --make-rshared /
exec env -i container=tidewaiter PATH=/usr/sbin:/usr/bin:/sbin:/bin /lib/systemd/systemd --log-target=journal
