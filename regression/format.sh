#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# Every source is as clang-format writes it; `regression/format.sh -i` writes it so. The form is that of major version 14, and other versions
# differ in places. Exit codes: 0 all are, 1 some are not and are named, 77 there is no clang-format of that version.
set -eu
cd "$(dirname "$0")/.."
for tool in clang-format-14 clang-format none; do
  if "$tool" --version 2>/dev/null | grep -q 'version 14\.'; then break; fi
done
[ "$tool" != none ] || { echo "SKIPPED: there is no clang-format 14"; exit 77; }
find src modules kernels regression -name '*.[ch]pp' -print0 | xargs -0 "$tool" "${1:---dry-run}" --Werror
