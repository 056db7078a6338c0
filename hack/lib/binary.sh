# shellcheck shell=bash
# The architecture of a binary, and how it is run here.
#
# A script sets `name` and sources cache.sh and this file.

# machine_of BINARY: its architecture as the kernel names it.
machine_of() {
	case $(LC_ALL=C readelf --file-header "$1" | sed --quiet 's/^ *Machine: *//p') in
	*X86-64) printf 'x86_64\n' ;;
	AArch64) printf 'aarch64\n' ;;
	*) die "$1 is no program for x86-64 or aarch64" ;;
	esac
}

# architecture_of BINARY: its architecture as Debian and Go name it.
architecture_of() {
	local machine
	machine=$(machine_of "$1") || return
	case $machine in
	x86_64) printf 'amd64\n' ;;
	aarch64) printf 'arm64\n' ;;
	esac
}

# sysroot_of BINARY: the folder with the libraries of its architecture; empty for those of this machine.
sysroot_of() {
	local machine
	machine=$(machine_of "$1") || return
	case $machine in
	"$(uname -m)") ;;
	aarch64) "$(dirname "${BASH_SOURCE[0]}")/../aarch64/sysroot" | tail --lines=1 ;;
	*) die "$1 is for $machine: build on $machine" ;;
	esac
}

# run_binary BINARY ARGUMENT...: runs it, in qemu if it is for another machine.
run_binary() {
	local sysroot
	sysroot=$(sysroot_of "$1") || return
	if [[ -z $sysroot ]]; then
		"$@"
	else
		need qemu-aarch64-static "run hack/aarch64/tools"
		qemu-aarch64-static -L "$sysroot" "$@"
	fi
}

# libraries_of BINARY: the paths of the libraries that it is linked to, one a line.
libraries_of() {
	local sysroot
	sysroot=$(sysroot_of "$1") || return
	if [[ -z $sysroot ]]; then
		ldd "$1"
	else
		qemu-aarch64-static -L "$sysroot" -E LD_TRACE_LOADED_OBJECTS=1 "$1"
	fi | sed --quiet --regexp-extended 's|^[^/]*(/[^ ]+) \(0x[0-9a-f]+\)$|\1|p' | sort
}
