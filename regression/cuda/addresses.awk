# SPDX-License-Identifier: BSD-3-Clause
# Reads PTX and prints, for the hottest part of each kernel: kernel name, number of instructions, and how many of them are tensor-core instructions
# (mma, wgmma), memory accesses, and integer instructions. Integer instructions compute addresses, bounds and bit positions. The hottest part is the
# shortest loop with at least half of the tensor-core instructions; if there are none, with half of the global memory accesses; if no loop has that,
# the full kernel. The assembler merges some of these instructions; instructions that it adds are not seen here.
function class(line,  op) {
  op = line
  sub(/^[ \t{]*(@!?%p[0-9]+[ \t]+)?/, "", op)
  if (op !~ /^[a-z]/) return ""
  sub(/[ \t;].*/, "", op)
  if (op ~ /^(mma|wgmma\.mma_async)\./) return "product"
  if (op ~ /^(ld|st|cp\.async)\..*global/) return "global"
  if (op ~ /^(ld|st|ldmatrix|stmatrix|cp)\./) return op ~ /\.param/ ? "other" : "memory"
  if (op ~ /^(add|sub|mul|mad|div|rem|shl|shr|shf|and|or|xor|not|neg|min|max|abs|setp|selp|bfe|bfi|lop3|prmt|cvta|cvt)(\.|$)/)
    return op ~ /\.(f16|f16x2|bf16|bf16x2|f32|f64|pred)(\.|$)/ ? "other" : "whole"
  return "other"
}
function target_of(line) {
  if (line !~ /bra(\.uni)?[ \t]/) return ""
  sub(/.*bra(\.uni)?[ \t]+/, "", line)
  sub(/;.*/, "", line)
  return line
}
# Sets sum[kind] to the number of instructions of each kind from line a to line b.
function count(a, b,  i) {
  split("", sum)
  for (i = a; i <= b; ++i) ++sum[kind[i]]
}
function finish(  i, wanted, least, first, last) {
  if (name == "") return
  count(1, lines)
  wanted = sum["product"] > 0 ? "product" : "global"
  least = sum[wanted] / 2
  first = 1
  last = lines
  for (i = 1; i <= lines; ++i)
    if (target[i] in at && at[target[i]] <= i && i - at[target[i]] < last - first) {
      count(at[target[i]], i)
      if (sum[wanted] < least) continue
      first = at[target[i]]
      last = i
    }
  count(first, last)
  printf "%s %d %d %d %d\n", name, last - first + 1, sum["product"], sum["global"] + sum["memory"], sum["whole"]
  name = ""
}
/\.entry / {
  finish()
  name = $0
  sub(/.*\.entry +/, "", name)
  sub(/\(.*/, "", name)
  lines = 0
  split("", at)
  split("", kind)
  split("", target)
  next
}
name == "" { next }
/^\}/ { finish(); next }
/^\$L[A-Za-z0-9_]+:/ { at[substr($1, 1, index($1, ":") - 1)] = lines + 1; next }
class($0) != "" {
  kind[++lines] = class($0)
  target[lines] = target_of($0)
}
END { finish() }
