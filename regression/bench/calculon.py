#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Step times that Calculon (Isaev et al. 2023) predicts for the published A100 steps of `make planner`, and its predictions per second.
   regression/bench/calculon.py CALCULON    a clone of github.com/calculon-ai/calculon; needs numpy and pandas
The machine description is Calculon's own systems/a100_80g.json, which its authors fitted to the steps of Korthikanti et al. 2022."""
import csv
import logging
import pathlib
import statistics
import sys
import time

if len(sys.argv) != 2:
    sys.exit(__doc__)
clone = pathlib.Path(sys.argv[1])
sys.path.insert(0, str(clone))
import calculon  # noqa: E402
from calculon.llm import Llm  # noqa: E402

steps = pathlib.Path(__file__).resolve().parent.parent / "planner" / "published_steps.csv"
a100 = ("sc21", "korthikanti-full", "korthikanti-selective")


def model_of(step):
    hidden, heads = int(step["hidden"]), int(step["heads"])
    return Llm.Application({"hidden": hidden, "feedforward": 4 * hidden, "seq_size": 2048, "attn_heads": heads, "attn_size": hidden // heads,
                            "num_blocks": int(step["layers"])})


def run_of(step):
    selective = step["source"].endswith("selective")
    return Llm.Execution.from_json({
        "num_procs": int(step["devices"]), "tensor_par": int(step["tensor"]), "pipeline_par": int(step["pipeline"]), "data_par": int(step["data"]),
        "tensor_par_net": 0, "pipeline_par_net": 1, "data_par_net": 1, "batch_size": int(step["global_batch"]),
        "microbatch_size": int(step["micro_batch"]), "pipeline_interleaving": int(step["virtual_stages"]), "datatype": "float16",
        "fused_activation": True, "attention_type": "multihead", "activation_recompute": "attn_only" if selective else "full",
        "tensor_par_comm_type": "rs_ag" if selective else "ar", "seq_par_ag_redo": selective, "tensor_par_overlap": "none", "data_par_overlap": False,
        "optimizer_sharding": False, "weight_offload": False, "activations_offload": False, "optimizer_offload": False, "training": True})


machine = calculon.System(calculon.io.read_json_file(str(clone / "systems" / "a100_80g.json")))
errors = {source: [] for source in a100}
spent = 0.0
print(f"{'step':38} {'published s':>11} {'predicted s':>11} {'error %':>8}")
with open(steps, encoding="utf-8") as rows:
    for step in csv.DictReader(line for line in rows if not line.startswith("#")):
        if step["source"] not in a100:
            continue
        begin = time.perf_counter()
        predicted = Llm(model_of(step), logging.getLogger())
        predicted.compile(machine, run_of(step))
        predicted.run(machine)
        spent += time.perf_counter() - begin
        error = predicted.get_total_time() / float(step["seconds"]) - 1
        errors[step["source"]].append(abs(error))
        name = f"{step['source']} {step['params_b']}B on {step['devices']}"
        print(f"{name:38} {step['seconds']:>11} {predicted.get_total_time():11.4g} {100 * error:+8.1f}")
for source, all_of in errors.items():
    print(f"{source}: mean error {100 * statistics.mean(all_of):.2f} %, worst {100 * max(all_of):.2f} %")
print(f"{sum(map(len, errors.values())) / spent:.0f} predictions per second")
