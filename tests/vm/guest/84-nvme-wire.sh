# limit: 480
# long: yes
# needs: nvme modprobe ip tc ublk-bench
# What goes over a link of limited rate: a host copy fills it, Copy commands do not; and what the server counts on its
# sockets, with the headers of each packet, is what the link has carried.
. "$(dirname "$0")/lib.sh"

timeout 460 "$(dirname "$0")/../../../bench/wire" 4 >"$work/wire" 2>&1 || { cat "$work/wire"; bail "the experiment ends"; }
cat "$work/wire"
# row SIZE RANGES ENGINE FIELD
row() { awk -v want="$1 $2 $3" -v field="$4" '$1 == "wire" && $2 " " $3 " " $4 == want { print $field }' "$work/wire"; }
for load in '8k 1' '1m 1' '2m 16'; do
	# shellcheck disable=SC2086
	set -- $load
	# Few long commands read and then write: each way of the link rests for about half of the time.
	fills=40
	[ "$1" != 8k ] || fills=70
	check "$load: a host copy fills the link" awk -v use="$(row "$1" "$2" host 6)" -v fills=$fills 'BEGIN { exit !(use > fills) }'
	check "$load: Copy leaves most of it free" awk -v use="$(row "$1" "$2" nvme 6)" 'BEGIN { exit !(use > 0 && use < 50) }'
	check "$load: a byte copied takes less than a tenth of the link" awk -v host="$(row "$1" "$2" host 6)" \
		-v host_rate="$(row "$1" "$2" host 5)" -v copy="$(row "$1" "$2" nvme 6)" -v copy_rate="$(row "$1" "$2" nvme 5)" \
		'BEGIN { exit !(copy * host_rate * 10 < host * copy_rate) }'
	check "$load: Copy is faster" awk -v host="$(row "$1" "$2" host 5)" -v copy="$(row "$1" "$2" nvme 5)" \
		'BEGIN { exit !(copy > host) }'
	for engine in host nvme; do
		# Ethernet 14, IPv4 20, TCP 20 and its timestamps 12 bytes a packet.
		check "$load, $engine: sockets and link agree within 5 %" awk -v payload="$(row "$1" "$2" $engine 9)" \
			-v link="$(row "$1" "$2" $engine 10)" -v packets="$(row "$1" "$2" $engine 11)" \
			'BEGIN { expected = payload + 66 * packets; exit !(link > 0.95 * expected && link < 1.05 * expected) }'
	done
done
