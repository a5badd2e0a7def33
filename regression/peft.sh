#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# regression/peft.sh GYRFALCON PYTHON [DRAWS [SEED]]: compares LoRA adapters with PEFT on drawn folders. Each folder that
# import-hf accepts must give the logits of PEFT after merging, and again after export as a PEFT folder. PYTHON needs
# torch, transformers and peft from PyPI, otherwise the exit code is 77.
set -euo pipefail
usage="usage: regression/peft.sh GYRFALCON PYTHON [DRAWS [SEED]]"
gyrfalcon=$(realpath "${1:?$usage}") python=${2:?$usage}
"$python" -c 'import peft, torch, transformers' 2> /dev/null || { echo "SKIPPED: $python has no peft, torch and transformers"; exit 77; }
export OMP_NUM_THREADS=1 PYTHONDONTWRITEBYTECODE=1
exec "$python" "$(dirname "$0")/golden/peft_folders.py" compare "$gyrfalcon" "${@:3}"
