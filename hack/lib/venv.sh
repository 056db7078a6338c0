# shellcheck shell=bash
# A Python virtual environment in the cache, of a program whose pins lie in hack/<name>-requirements.txt.
#
# A script sets `name`, sources cache.sh and this file, and calls make_venv.

# make_venv HERE: makes the environment unless it is there; its folder is then in `folder`.
make_venv() {
	local pins=$1/$name-requirements.txt root
	root=$(cache_root)
	folder=$root/$name-$(sed -n "s/^$name==//p" "$pins")
	venv_finished "$pins" && return
	need python3 "install Python 3.11 or newer with its venv module (Debian: apt install python3-venv)"
	python3 -c 'import ensurepip, venv' 2>/dev/null || die "python3 has no venv module: install it (Debian: apt install python3-venv)"
	cache_open "$root"
	venv_finished "$pins" && return
	cache_stage
	run_showing "virtual environment (1 of 3)" python3 -m venv --prompt "$name" "$stage"
	run_showing "packages (2 of 3)" "$stage/bin/python" -m pip install --quiet --disable-pip-version-check --no-deps --requirement "$pins"
	run_showing "whether they fit together (3 of 3)" "$stage/bin/python" -m pip --disable-pip-version-check check
	# A virtual environment's scripts name the folder that they were made in.
	grep --recursive --files-with-matches --binary-files=without-match --fixed-strings "$stage" "$stage/bin" "$stage/pyvenv.cfg" |
		xargs --no-run-if-empty --delimiter='\n' sed --in-place "s|$stage|$folder|g"
	cp "$pins" "$stage/requirements.txt"
	cache_publish "$folder"
}

# The folder holds a copy of the pins that it was made from: other pins, other folder content. Python itself may have gone since.
venv_finished() { cmp -s "$1" "$folder/requirements.txt" && "$folder/bin/python" -c '' 2>/dev/null; }
