# shellcheck shell=bash
# Debian's packages, unpacked and not installed, with the libraries that this machine lacks.
#
# A script sets `name`, sources cache.sh and this file, and calls unpack_packages in its stage.

# The libraries that these packages need, all the way down, and this machine has not. libc6 is everywhere, and must be the machine's
# own; LLVM only makes long queries and software rendering faster.
missing_libraries() {
	local direct
	mapfile -t direct < <(apt-cache depends "$@" | sed --quiet 's/^ *Depends: \(z\?lib.*\)/\1/p' | grep --invert-match '^libllvm')
	apt-cache depends --recurse --no-recommends --no-suggests --no-conflicts --no-breaks --no-replaces --no-enhances "${direct[@]}" |
		grep --extended-regexp '^z?lib[a-z0-9.+-]+$' | grep --extended-regexp --invert-match '^libc6$' | sort --unique |
		while read -r library; do
			[[ $(dpkg-query --show --showformat='${db:Status-Status}' "$library" 2>/dev/null) == installed ]] || printf '%s\n' "$library"
		done
}

# unpack_packages PACKAGE...: unpacks them into all, and moves the libraries into lib.
unpack_packages() {
	cd "$stage" || return
	local packages package
	# Without lists of packages, which only root may fetch, there is nothing to download.
	apt-get download "$@" || { apt-get update && apt-get download "$@"; }
	mapfile -t packages < <(missing_libraries "$@")
	if ((${#packages[@]})); then
		apt-get download "${packages[@]}"
	fi
	mkdir --parents all/lib all/usr/lib lib
	for package in *.deb; do
		dpkg-deb --extract "$package" all
	done
	# Libraries lie in more than one folder; programs find their own files by where they are.
	find all/lib all/usr/lib -maxdepth 2 -name '*.so*' -exec mv --target-directory=lib {} ';'
	rm ./*.deb
}
