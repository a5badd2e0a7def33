#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# Checks that all sources are formatted by clang-format 14 (other versions differ in places); `regression/format.sh -i` formats
# them. Exit codes: 0 all are formatted, 1 some are not and are listed, 77 clang-format 14 is not installed.
set -eu
cd "$(dirname "$0")/.."
for tool in clang-format-14 clang-format none; do
  if "$tool" --version 2>/dev/null | grep -q 'version 14\.'; then break; fi
done
[ "$tool" != none ] || { echo "SKIPPED: clang-format 14 is not installed"; exit 77; }
find src modules kernels regression -name '*.[ch]pp' -print0 | xargs -0 "$tool" "${1:---dry-run}" --Werror
