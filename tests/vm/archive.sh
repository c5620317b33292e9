# Packages of other suites than the machine's own, by its own archive. Sourced after common.sh by tests/vm/setup and
# kernel/build, never run.

codename=$(. /etc/os-release && printf '%s' "${VERSION_CODENAME:-}")
apt_dir=$UBLK_CACHE/apt

# The archive that the host installs Debian packages from, or nothing on other distributions.
debian_archive() {
	apt-get update --print-uris 2>/dev/null |
		sed -n "s|^'\(.*\)/dists/$codename/InRelease' .*|\1|p" | head -n 1
}

# The keyring that the machine's own sources name for that archive.
archive_keyring() {
	local named
	named=$(awk -v RS= -v uri="$1" 'index($0, uri) && match($0, /Signed-By:[ \t]*\/[^ \t\n]+/) {
		value = substr($0, RSTART, RLENGTH); sub(/Signed-By:[ \t]*/, "", value); print value; exit }' \
		/etc/apt/sources.list.d/*.sources 2>/dev/null)
	[ -n "$named" ] || named=/usr/share/keyrings/debian-archive-keyring.gpg
	[ ! -r "$named" ] || printf '%s' "$named"
}

# apt with the suite $suite alone, and lists of its own: the machine's own configuration stays as it is.
suite_apt() {
	local command=$1
	shift
	timeout 600 "$command" -o Dir::Etc::sourcelist="$apt_dir/$suite.list" -o Dir::Etc::sourceparts=/dev/null \
		-o Dir::State::lists="$apt_dir/lists-$suite" -o Dir::Cache="$apt_dir/cache" \
		-o Dir::State::status=/dev/null -o APT::Sandbox::User=root "$@"
}

# use_suite SUITE: make suite_apt work on it.
use_suite() {
	local archive keyring
	suite=$1
	archive=$(debian_archive)
	[ -n "$archive" ] || { say "the apt sources of this system name no Debian archive"; return 1; }
	keyring=$(archive_keyring "$archive")
	mkdir -p "$apt_dir/lists-$suite/partial" "$apt_dir/cache/archives/partial"
	(umask 077 && printf 'deb %s%s %s main\n' "${keyring:+[signed-by=$keyring] }" "$archive" "$suite" \
		>"$apt_dir/$suite.list")
	retry 3 suite_apt apt-get -q -o APT::Update::Error-Mode=any update >"$apt_dir/$suite.log" 2>&1 ||
		{ say "the package list of $suite cannot be fetched, see $apt_dir/$suite.log"; return 1; }
}

# newest PREFIX PATTERN: the package of $suite with the highest version whose name begins and, as a whole, matches so.
newest() {
	suite_apt apt-cache pkgnames "$1" | grep -E -x "$2" | sort -V | tail -n 1
}

# unpack DIR PACKAGE...: download from $suite and unpack, into a new DIR.
unpack() {
	local dir=$1 deb
	shift
	rm -rf "$dir" "$apt_dir/debs"
	mkdir -p "$dir" "$apt_dir/debs"
	(cd "$apt_dir/debs" && retry 3 suite_apt apt-get -q download "$@") >"$apt_dir/download.log" 2>&1 ||
		{ say "download failed, see $apt_dir/download.log: $*"; return 1; }
	for deb in "$apt_dir"/debs/*.deb; do
		dpkg -x "$deb" "$dir" || { say "cannot unpack $deb"; return 1; }
	done
	rm -rf "$apt_dir/debs"
}
