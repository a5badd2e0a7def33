# SPDX-License-Identifier: BSD-3-Clause
# compare.awk TOLERANCES REFERENCE CURVE -> DEVIATION QUANTITY STEP TOLERANCE VERDICT HERE THERE
# Prints the value with the largest deviation from its reference, relative to its tolerance. The curves are written by
# curve.awk; # begins a comment. bits=1: all values must be bitwise equal.
# VERDICT: held, beyond, or missing (a step or value that only one curve has).
function finite(x) { return x ~ /^-?[0-9]/ }
function size(x) { return x < 0 ? -x : x }
function judge(step, quantity, here, there,  room, off, verdict, share) {
  if (here == there) { off = 0; share = 0; verdict = "held" }
  else if (!finite(here) || !finite(there)) { off = "-"; share = 1e300; verdict = "missing" }
  else {
    off = size(here - there)
    room = bits ? 0 : absolute[quantity] + relative[quantity] * size(there)
    verdict = off <= room && !bits ? "held" : "beyond"
    share = room > 0 ? off / room : 1e299
    if (there + 0 != 0) off /= size(there)
  }
  if (share <= worst) return
  worst = share
  found = (off == "-" || off == 0 ? off : sprintf("%.1e", off)) " " quantity " " step " " (bits ? 0 : relative[quantity]) " " verdict " " here " " there
}
BEGIN { worst = -1; split("- loss grad_norm validation", name, " ") }
FNR == 1 { ++file }
/^#/ || NF == 0 { next }
file == 1 { absolute[$1] = $2; relative[$1] = $3; next }
file == 2 { for (i = 2; i <= 4; ++i) reference[$1, i] = $i; if ($1 + 0 > last) last = $1 + 0; next }
{ for (i = 2; i <= 4; ++i) curve[$1, i] = $i; if ($1 + 0 > last) last = $1 + 0 }
END {
  for (step = 1; step <= last; ++step)
    for (i = 2; i <= 4; ++i)
      judge(step, name[i], (step, i) in curve ? curve[step, i] : "none", (step, i) in reference ? reference[step, i] : "none")
  print found == "" ? "- loss 0 0 missing none none" : found
}
