# From the lines of `bench/guest` to tables, and to lines of JSON in the file `jsonl`.

function sorted(list, out,   n, parts, i, j, t) {
	n = split(list, parts, " ")
	for (i = 1; i <= n; i++) out[i] = parts[i] + 0
	for (i = 2; i <= n; i++)
		for (j = i; j > 1 && out[j - 1] > out[j]; j--) { t = out[j]; out[j] = out[j - 1]; out[j - 1] = t }
	return n
}
function median(list,   v, n) { n = sorted(list, v); return n ? v[int((n + 1) / 2)] : 0 }
function spread(list, format,   v, n) {
	n = sorted(list, v)
	return n ? sprintf(format " (" format " - " format ")", v[int((n + 1) / 2)], v[1], v[n]) : "-"
}
function json(name, unit, list, aim, met,   v, n) {
	n = sorted(list, v)
	if (!n) return
	printf "{\"part\":\"guest\",\"name\":\"%s\",\"unit\":\"%s\",\"value\":{\"median\":%g,\"low\":%g,\"high\":%g,\"rounds\":%d}%s}\n",
		name, unit, v[int((n + 1) / 2)], v[1], v[n], n,
		aim == "" ? "" : sprintf(",\"aim\":%g,\"met\":%s", aim, met ? "true" : "false") >>jsonl
}
# The values of `over` divided by those of `under`, round by round.
function ratios(test, over, under,   list, r) {
	for (r = 0; r < rounds; r++)
		if ((test, over, r) in iops && iops[test, under, r] > 0)
			list = list " " iops[test, over, r] / iops[test, under, r]
	return list
}
# values TEST NAME: of all rounds.
function values(test, name,   list, r) {
	for (r = 0; r < rounds; r++) if ((test, name, r) in iops) list = list " " iops[test, name, r]
	return list
}

# A row: ours of a type beside the targets of this kind of the peers.
function row(test, load, type, kind, aim,   ours, peer, programs, p, name, list, met, ceiling) {
	ours = "ublk-" type
	split("rublk ublksrv", programs, " ")
	for (p = 1; p <= 2; p++) {
		name = programs[p] "-" kind
		if (values(test, name) != "" && (peer == "" || median(values(test, name)) > median(values(test, peer)))) peer = name
	}
	list = peer == "" ? "" : ratios(test, ours, peer)
	met = list != "" && median(list) >= aim
	ceiling = type == "ram" ? ratios(test, ours, "null_blk") : ""
	printf "| -t %s, %s | %s | %s | %s | %s | %s | >= %.2f | %s | %s |\n", type, load,
		spread(values(test, ours), "%.0f"), spread(values(test, "rublk-" kind), "%.0f"),
		spread(values(test, "ublksrv-" kind), "%.0f"),
		type == "ram" ? spread(values(test, "null_blk"), "%.0f") : "",
		list == "" ? "no peer" : spread(list, "%.2f") " " peer, aim, list == "" ? "" : met ? "met" : "missed",
		spread(ceiling, "%.2f")
	if (list != "") json("-t " type " " load " : " peer, "x", list, aim, met)
	if (ceiling != "") json("-t " type " " load " : null_blk", "x", ceiling, "")
}

$1 == "iops" {
	if ($2 >= rounds) rounds = $2 + 1
	iops[$3 " " $4, $5, $2] = $6
	if (!(($3, $4) in seen)) { seen[$3, $4]; tests[++count] = $3 " " $4 }
}
$1 == "beside" {
	if ($2 >= beside_rounds) beside_rounds = $2 + 1
	for (i = 1; i <= 5; i++) fg[$3, i] = fg[$3, i] " " $(i + 3)
}
$1 == "copied" { copied[$3] = copied[$3] " " $4 / 1048576 }

END {
	print "| load | ours, IOPS | rublk | ublksrv | null_blk | ours : faster peer | aim | | ours : null_blk |"
	print "|---|---|---|---|---|---|---|---|---|"
	# Types ram and file take their turns with the same disks of peers.
	for (t = 1; t <= count; t++) {
		split(tests[t], part, " ")
		if (part[1] == "nvme") over_nvme[++nvme_count] = part[2]
		else if (part[1] == "ram") row(tests[t], part[2], "ram", "loop", 1.25)
	}
	for (t = 1; t <= count; t++) {
		split(tests[t], part, " ")
		if (part[1] == "ram") row(tests[t], part[2], "file", "loop", 1.0)
	}
	for (t = 1; t <= count; t++) {
		split(tests[t], part, " ")
		if (part[1] == "null") row(tests[t], part[2], "null", "null", 1.0)
	}
	if (nvme_count) {
		print ""
		print "Over NVMe/TCP on loopback, by the kernel's host with one I/O queue; its peer is the kernel's target over brd."
		print ""
		print "| load | ours, IOPS | nvmet-tcp over brd | ours : nvmet-tcp | aim | |"
		print "|---|---|---|---|---|---|"
		for (t = 1; t <= nvme_count; t++) {
			test = "nvme " over_nvme[t]
			list = ratios(test, "ublk-nvme", "nvmet-brd")
			met = list != "" && median(list) >= 0.8
			printf "| %s | %s | %s | %s | >= 0.80 | %s |\n", over_nvme[t], spread(values(test, "ublk-nvme"), "%.0f"),
				spread(values(test, "nvmet-brd"), "%.0f"), list == "" ? "no peer" : spread(list, "%.2f"),
				list == "" ? "" : met ? "met" : "missed"
			if (list != "") json("NVMe/TCP " over_nvme[t] " : nvmet-tcp over brd", "x", list, 0.8, met)
		}
	}
	if (!beside_rounds) exit
	print ""
	print "Foreground: 4 KiB random reads and writes, 4 under way, beside copies on other bytes of the same disk."
	print ""
	print "| copies | MiB/s copied | foreground IOPS | read p50, us | read p99, us | write p50, us | write p99, us |"
	print "|---|---|---|---|---|---|---|"
	split("none host memcpy remap", modes, " ")
	split("IOPS,read p50,read p99,write p50,write p99", what, ",")
	for (m = 1; m <= 4; m++) {
		mode = modes[m]
		printf "| %s | %s", mode, spread(copied[mode], "%.1f")
		for (i = 1; i <= 5; i++) {
			printf " | %s", spread(fg[mode, i], "%.0f")
			json("foreground " what[i] " beside copies: " mode, i == 1 ? "IOPS" : "us", fg[mode, i], "")
		}
		print " |"
	}
}
