# SPDX-License-Identifier: BSD-3-Clause
# metrics.jsonl -> one line per step: step, loss, gradient norm, validation loss ("-" if there is none). If a step was
# repeated, the last values are used.
function number(key) {
  return match($0, "\"" key "\":[^,}]*") ? substr($0, RSTART + length(key) + 3, RLENGTH - length(key) - 3) : "-"
}
BEGIN { OFS = "\t" }
/"kind":"step"/ { step = number("step") + 0; loss[step] = number("loss"); norm[step] = number("grad_norm"); if (step > last) last = step }
/"kind":"validation"/ { validation[number("step") + 0] = number("loss") }
END { for (step = 1; step <= last; ++step) if (step in loss) print step, loss[step], norm[step], step in validation ? validation[step] : "-" }
