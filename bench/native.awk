# From the lines of `bench/native` to a table, and to lines of JSON in the file `jsonl`.

function sort(list, out,   n, parts, i, j, t) {
	n = split(list, parts, " ")
	for (i = 1; i <= n; i++) out[i] = parts[i] + 0
	for (i = 2; i <= n; i++)
		for (j = i; j > 1 && out[j - 1] > out[j]; j--) { t = out[j]; out[j] = out[j - 1]; out[j - 1] = t }
	return n
}
function spread(list, format,   v, n) {
	n = sort(list, v)
	return sprintf(format " (" format " - " format ")", v[int((n + 1) / 2)], v[1], v[n])
}
# The cost by a door divided by that of the ioctl, round by round.
function ratios(door, count,   list, r) {
	for (r = 0; r < rounds; r++) list = list " " cost[door, count, r] / cost["native", count, r]
	return list
}
function json(name, unit, list,   v, n) {
	n = sort(list, v)
	printf "{\"part\":\"native\",\"name\":\"%s\",\"unit\":\"%s\",\"value\":{\"median\":%g,\"low\":%g,\"high\":%g,\"rounds\":%d}}\n",
		name, unit, v[int((n + 1) / 2)], v[1], v[n], n >>jsonl
}

$1 == "cost" {
	if ($2 >= rounds) rounds = $2 + 1
	cost[$3, $4, $2] = $5
	all[$3, $4] = all[$3, $4] " " $5
}

END {
	split("native native-async api host", doors, " ")
	split("1 8 64", counts, " ")
	print "| sources of 4 KiB | ioctl, us | io_uring, us | control API, us | read + write, us | io_uring : ioctl | API : ioctl | read + write : ioctl |"
	print "|---|---|---|---|---|---|---|---|"
	for (c = 1; c <= 3; c++) {
		printf "| %s", counts[c]
		for (d = 1; d <= 4; d++) {
			printf " | %s", spread(all[doors[d], counts[c]], "%.0f")
			json("copy of " counts[c] " sources: " doors[d], "us", all[doors[d], counts[c]])
		}
		for (d = 2; d <= 4; d++) {
			printf " | %s", spread(ratios(doors[d], counts[c]), "%.2f")
			json("copy of " counts[c] " sources: " doors[d] " : native", "x", ratios(doors[d], counts[c]))
		}
		print " |"
	}
}
