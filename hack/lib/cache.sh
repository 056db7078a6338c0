# shellcheck shell=bash
# What the scripts in hack/ share: a cache outside the repository that holds finished folders only.
#
# A folder is made under another name in the same cache and renamed when it is whole, so a killed run leaves nothing that looks
# finished. One lock lets one run work at a time; the next one finds the result. What killed runs left is removed by the next.
#
# A script sets `name` (for its messages), sources this file and calls, in this order: cache_open, cache_stage, cache_publish.

say() { printf '%s: %s\n' "$name" "$*" >&2; }

die() {
	say "$@"
	exit 1
}

# need COMMAND HOW: ends the script with one line when the command is not installed.
need() { command -v "$1" >/dev/null 2>&1 || die "$1 is not installed: $2"; }

# Where finished folders lie. The tests look in the same place.
cache_root() {
	if [[ -n ${TIDEWAITER_CACHE:-} ]]; then
		printf '%s\n' "$TIDEWAITER_CACHE"
	elif [[ -n ${XDG_CACHE_HOME:-} ]]; then
		printf '%s\n' "$XDG_CACHE_HOME/tidewaiter"
	else
		printf '%s\n' "${HOME:?is not set: set TIDEWAITER_CACHE to a folder for the test assets}/.cache/tidewaiter"
	fi
}

# cache_open FOLDER: makes FOLDER and holds its lock until the script ends.
cache_open() {
	cache_folder=$1
	need flock "it is part of util-linux (Debian: apt install util-linux)"
	mkdir -p "$cache_folder"
	exec 9>"$cache_folder/.lock"
	if ! flock --nonblock 9; then
		say "another run is at work in $cache_folder: waiting for it"
		flock 9
	fi
}

# cache_stage: removes what killed runs left and sets `stage`, a new empty folder that is removed again unless it is published.
cache_stage() {
	rm -rf "$cache_folder"/.stage-*
	stage=$(mktemp -d "$cache_folder/.stage-XXXXXX")
	chmod 755 "$stage"
	trap cache_cleanup EXIT
	trap 'exit 130' INT
	trap 'exit 143' TERM HUP
}

cache_cleanup() {
	if [[ -n ${job:-} ]]; then
		kill "$job" 2>/dev/null || true
		wait "$job" 2>/dev/null || true
	fi
	rm -rf "$stage"
}

# cache_publish FOLDER: the stage becomes FOLDER, at once and whole.
cache_publish() {
	local old="$cache_folder/.stage-replaced"
	sync --file-system "$stage"
	if [[ -e $1 ]]; then
		mv --no-target-directory "$1" "$old"
	fi
	mv --no-target-directory "$stage" "$1"
	rm -rf "$old"
}

# run_showing WHAT COMMAND...: runs a long command, its output in $stage/.log; shows on stderr that it goes on, and how it failed.
run_showing() {
	local what=$1 started=$SECONDS shown=$SECONDS status=0
	shift
	"$@" >"$stage/.log" 2>&1 9>&- &
	job=$!
	[[ -t 2 ]] || say "$what ..."
	while kill -0 "$job" 2>/dev/null; do
		if [[ -t 2 ]]; then
			printf '\r%s: %s ... %d s ' "$name" "$what" $((SECONDS - started)) >&2
		elif ((SECONDS - shown >= 30)); then
			shown=$SECONDS
			say "$what ... $((SECONDS - started)) s"
		fi
		sleep 0.5
	done
	wait "$job" || status=$?
	job=
	[[ ! -t 2 ]] || printf '\r\033[K' >&2
	if ((status != 0)); then
		tail -n 40 "$stage/.log" >&2
		die "$what failed after $((SECONDS - started)) s (exit code $status); its last lines are above"
	fi
	rm -f "$stage/.log"
	say "$what done in $((SECONDS - started)) s"
}
