# Shared by tests/vm/setup, tests/vm/boot, tests/run and .ci/run. Sourced, never run.

# Everything that is fetched or built and is worth keeping lives here, outside the repository.
UBLK_CACHE=${UBLK_CACHE:-${XDG_CACHE_HOME:-~/.cache}/ublk-tests}
export UBLK_CACHE

# The kernels the guest tests run under, the one that matters most first.
UBLK_KERNELS=(6.12 7.x)

say() { printf '%s\n' "$*"; }
die() { printf '%s: %s\n' "${0##*/}" "$1" >&2; exit "${2:-1}"; }

# minutes SINCE: from then, a value of SECONDS, until now.
minutes() {
	local seconds=$((SECONDS - $1))
	printf '%d.%d' $((seconds / 60)) $((seconds % 60 / 6))
}

# retry TRIES COMMAND...: for downloads only; each try is bounded by the caller.
retry() {
	local tries=$1 n
	shift
	for ((n = 1; n <= tries; n++)); do
		"$@" && return 0
		[ "$n" = "$tries" ] || sleep $((n * 3))
	done
	return 1
}

# seal DIR: record the hash of every file below DIR in DIR.sha256. Byte code is left out: Python
# writes it while it runs.
seal() {
	(cd "$1" && find . -type f ! -name '*.pyc' -print0 | sort -z | xargs -0 sha256sum) >"$1.sha256.new" &&
		mv "$1.sha256.new" "$1.sha256"
}

# sealed DIR: is every recorded file below DIR unchanged?
sealed() {
	[ -s "$1.sha256" ] && (cd "$1" 2>/dev/null && sha256sum --quiet -c "$1.sha256") >/dev/null 2>&1
}

# missing_packages FILE...: the Debian packages named in the lists whose command or file is not here.
# A list has lines `PROBE PACKAGE`; PROBE is a command, or a path (globs allowed) when it holds a '/'.
missing_packages() {
	local probe package
	cat "$@" | while read -r probe package; do
		case $probe in
		'' | '#'*) ;;
		*/*) compgen -G "$probe" >/dev/null || printf '%s\n' "$package" ;;
		*) PATH=$PATH:/usr/sbin:/sbin command -v "$probe" >/dev/null || printf '%s\n' "$package" ;;
		esac
	done | sort -u
}

# install_packages FILE...: install what the lists name and the machine lacks. Quick when nothing is missing.
install_packages() {
	local missing log=$UBLK_CACHE/apt.log
	missing=$(missing_packages "$@" | tr '\n' ' ')
	[ -n "${missing// /}" ] || return 0
	command -v apt-get >/dev/null || die "needs the packages: $missing; apt-get is not here to install them" 3
	[ "$(id -u)" = 0 ] || die "needs packages; as root: apt-get install $missing" 3
	say "installing packages: $missing"
	mkdir -p "$UBLK_CACHE"
	# A machine's package lists may be old or absent, so they are fetched before the first install.
	retry 3 timeout 300 apt-get -q update >"$log" 2>&1 ||
		die "apt-get update failed, see $log" 3
	# shellcheck disable=SC2086
	DEBIAN_FRONTEND=noninteractive retry 2 timeout 900 apt-get -q -y --no-install-recommends \
		-o DPkg::Lock::Timeout=300 install $missing >>"$log" 2>&1 </dev/null ||
		die "apt-get install $missing failed, see $log" 3
}
