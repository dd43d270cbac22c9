#!/bin/sh
# The lock that people paste into shell scripts, as a client of locktop load --exec:
#
#	redis-cli SET "$key" "$(hostname)-$$" NX PX 30000
#	redis-cli DEL "$key"
#
# DEL without a comparison is the common form of the release. It deletes any lock: after
# the TTL, that of the next holder. Needs redis-cli and GNU date; keys without escapes.
owner=$(hostname)-$$
cli() { redis-cli --no-auth-warning -u "$url" "$@" 2>&1; }
now() { date +%s%3N; } # ms

# text and number print a field of the request in $line.
text() { rest=${line#*\"$1\":\"}; printf %s "${rest%%\"*}"; }
number() { rest=${line#*\"$1\":}; printf %s "${rest%%[,\}]*}"; }
error() { printf '{"id":%s,"ok":false,"error":"%s"}\n' "$id" "$(printf %s "$1" | tr -d '"\\\n')"; }

lock() {
	key=$(text key) ttl=$(number ttl_ms) give_up=$(($(now) + $(number wait_ms)))
	while asked=$(now); reply=$(cli SET "$key" "$owner" NX PX "$ttl"); [ -z "$reply" ]; do
		if [ "$asked" -ge "$give_up" ]; then
			echo "{\"id\":$id,\"ok\":false,\"held\":true}"
			return
		fi
		sleep 0.05
	done
	if [ "$reply" != OK ]; then
		error "$reply"
		return
	fi
	held=$key
	echo "{\"id\":$id,\"ok\":true,\"token\":\"$$-$id:$key\",\"valid_ms\":$((ttl - $(now) + asked))}"
}

unlock() {
	token=$(text token) held=
	reply=$(cli DEL "${token#*:}")
	case $reply in
	1) echo "{\"id\":$id,\"ok\":true}" ;;
	0) echo "{\"id\":$id,\"ok\":false,\"lost\":true}" ;;
	*) error "$reply" ;;
	esac
}

while read -r line; do
	id=$(number id)
	case $(text op) in
	hello)
		url=${line#*\"urls\":[\"} url=${url%%\"*}
		version=$(redis-cli --version) || exit # its message is on stderr; that of Valkey says valkey-cli
		echo "{\"ok\":true,\"name\":\"redis-cli ${version#*cli } SET NX, DEL\",\"kinds\":[\"mutex\"]}"
		;;
	lock) lock ;;
	unlock) unlock ;;
	bye) break ;;
	*) error "the recipe cannot extend a lock" ;;
	esac
done
[ -z "$held" ] || cli DEL "$held" >/dev/null
