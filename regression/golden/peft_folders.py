#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""What PEFT computes with LoRA folders of the small models in families/ and huggingface/.

Needs torch, transformers and peft from PyPI; their versions are recorded in the files.
    ./peft_folders.py keys [SEED]      writes peft_keys.json: drawn adapter folders, and what PEFT makes of each
    ./peft_folders.py classes          writes peft_classes.json: for each model, how PEFT loads an adapter of each linear layer
    ./peft_folders.py compare GYRFALCON [DRAWS [SEED]]      draws folders and compares the program with PEFT (regression/peft.sh)

peft_keys.json:
    defaults        adapter_config.json of an adapter without options
    folders         drawn folders that PEFT wrote: model, changes of the defaults, shapes of the tensors in the file
    cases           a folder, and changes of its adapter_config.json after it was written. With PEFT's result:
                    error   PEFT does not load the folder
                    scales  LoRA layer whose tensors are used: alpha / r
                    plain   the logits are those of the model with W + scale B A, and with the base weights for which the file has a tensor
                            of the same name replaced by it. Otherwise PEFT computes something else
peft_classes.json, for each model:
    task_types      the task types with which PEFT loads adapters of the class
    linear          names of all linear layers in memory
    layers          linear layer: "module" if target_modules loads its adapter, "parameter" if only target_parameters does, or "none"
    saved           tensors that the task type requires in the file in addition
"""
import contextlib
import json
import os
import pathlib
import random
import re
import shutil
import subprocess
import sys
import tempfile
import warnings

os.environ.update(HF_HUB_OFFLINE="1", TRANSFORMERS_VERBOSITY="error")
import peft
import torch
import transformers
from peft.tuners.lora import LoraLayer
from safetensors.torch import load_file, save_file
from transformers.pytorch_utils import Conv1D

here = pathlib.Path(__file__).parent
transformers.logging.disable_progress_bar()
warnings.simplefilter("ignore")
versions = dict(peft=peft.__version__, transformers=transformers.__version__, torch=torch.__version__)
prefix = "base_model.model."
tolerance = 1e-4  # relative to the largest logit; adapters change logits by more than 0.01


def folder_of(name):
    return here / ("families" if (here / "families" / name).exists() else "huggingface") / name


def load(folder):
    with contextlib.redirect_stderr(None):
        name = json.loads((folder / "config.json").read_text())["architectures"][0]
        return getattr(transformers, name).from_pretrained(folder, dtype=torch.float32).eval()


def linear_layers(model):
    return {name: layer for name, layer in model.named_modules() if isinstance(layer, (torch.nn.Linear, Conv1D))}


def logits(model):
    base = model.get_base_model() if hasattr(model, "get_base_model") else model
    draw = torch.Generator().manual_seed(3)
    inputs = dict(input_ids=torch.randint(3, base.config.vocab_size, (2, 12), generator=draw))
    if base.config.is_encoder_decoder:
        inputs["decoder_input_ids"] = torch.randint(3, base.config.vocab_size, (2, 7), generator=draw)
    with torch.no_grad():
        out = model(**inputs)
    return torch.cat([x.flatten() for x in (out.get("prediction_logits"), out.get("seq_relationship_logits"), out.get("logits")) if x is not None])


def differ(a, b):
    return float((a - b).abs().max() / b.abs().max()) > tolerance


def merged(name, tensors, scales):
    """The base model with replaced weights and with W + scale B A."""
    model = load(folder_of(name))
    weights = {key.replace("backbone.", "model.") if "nemotron" in name else key: weight for key, weight in model.named_parameters(remove_duplicate=False)}
    for key, value in tensors.items():
        key = key.removeprefix(prefix).replace(".base_layer.", ".")
        if key in weights and ".lora_" not in key:
            weights[key].data.copy_(value)
    for layer, scale in scales.items():
        delta = scale * tensors[f"{prefix}{layer}.lora_B.weight"] @ tensors[f"{prefix}{layer}.lora_A.weight"]
        weight = weights[layer + ".weight"]
        weight.data += delta if isinstance(model.get_submodule(layer), torch.nn.Linear) else delta.T
    return logits(model)


def used_scales(model, tensors):
    """Layers whose adapters come from the file."""
    scales = {}
    for name, layer in model.named_modules():
        name = name.removeprefix(prefix)
        stored = tensors.get(f"{prefix}{name}.lora_A.weight")
        if isinstance(layer, LoraLayer) and "default" in layer.lora_A and stored is not None:
            if layer.lora_A["default"].weight.shape == stored.shape and torch.equal(layer.lora_A["default"].weight, stored):
                scales[name] = layer.scaling["default"]
    return scales


def result(name, folder):
    tensors = load_file(folder / "adapter_model.safetensors")
    try:
        model = peft.PeftModel.from_pretrained(load(folder_of(name)), folder).eval()
        found = logits(model)
    except Exception as error:  # of any kind: PEFT does not check its settings in one place
        return dict(error=f"{type(error).__name__}: {error}".split("\n")[0][:100])
    scales = used_scales(model, tensors)
    parameters = dict(load(folder_of(name)).named_parameters(remove_duplicate=False))
    known = all(layer + ".weight" in parameters for layer in scales)  # layer_replication makes others, and stacked experts are no layers
    return dict(scales=scales, plain=known and not differ(found, merged(name, tensors, scales)))


# ---- keys ----

models = ["llama", "llama_biases", "qwen3_biases", "bert_texts", "bert_tokens", "bert", "t5_gated", "gpt2", "nemotron_h_biases", "qwen3_moe", "mixtral",
          "gemma2", "modernbert_texts", "bamba", "falcon_biases", "ssm_biases", "deepseek_v3", "mamba2_biases"]
initializations = [True, False, "gaussian", "eva", "orthogonal", "mica", "pissa", "pissa_niter_2", "olora", "lora_ga"]


def drawn_names(rng, names, model):
    """Some of the layers by last part, by suffix or by full name."""
    chosen = rng.sample(names, min(len(names), rng.choice([1, 1, 2, 2, 3, 4])))
    return sorted({rng.choice([n.rsplit(".", 1)[1], n.rsplit(".", 1)[1], n.split(".", rng.randrange(n.count(".")))[-1], n]) for n in chosen if "." in n})


def drawn_config(rng, name, model):
    usable = [n for n in linear_layers(model) if "." in n and not (model.config.model_type in ("mamba2", "nemotron_h", "falcon_h1") and n.endswith("out_proj"))]
    names = [n for n in usable if not re.search(r"c_attn|Wqkv|Wi$|query_key_value|\.dense$", n) or rng.random() < 0.1]
    of_experts = [n for n in names if re.search(r"\.(gate|up|down)_proj$", n)] if hasattr(model.config, "num_experts_per_tok") else []
    names = [n for n in names if n not in of_experts] or names  # PEFT finds these by target_parameters only
    modules = [n for n, layer in model.named_modules() if n and not list(layer.children()) and list(layer.parameters())]
    with_chance = lambda p, value: value if rng.random() < p else None
    c = dict(r=rng.choice([1, 2, 4]), lora_alpha=rng.choice([1, 2, 3, 8, 0.5, 7.25]), target_modules=drawn_names(rng, names, model))
    if of_experts and rng.random() < 0.5:
        c["target_modules"] = []
    elif not c["target_modules"] or rng.random() < 0.05:
        c["target_modules"] = rng.choice(["all-linear", ".*(_proj|query|\\.q|c_fc)"])
    options = dict(
        exclude_modules=with_chance(0.2, rng.choice([drawn_names(rng, names, model), ".*0.*"])),
        layers_to_transform=with_chance(0.2, rng.choice([0, [0], [1], [0, 1]])),
        use_rslora=with_chance(0.3, True), bias=with_chance(0.2, rng.choice(["all", "lora_only"])),
        modules_to_save=with_chance(0.25, rng.sample(modules, min(len(modules), rng.choice([1, 2])))),
        init_lora_weights=with_chance(0.4, rng.choice(initializations)), lora_dropout=with_chance(0.2, 0.25), use_dora=with_chance(0.06, True),
        rank_pattern=with_chance(0.06, {rng.choice(names).rsplit(".", 1)[1]: 3}), alpha_pattern=with_chance(0.06, {rng.choice(names).rsplit(".", 1)[1]: 5}),
        lora_bias=with_chance(0.06, True), fan_in_fan_out=with_chance(0.1, True), layer_replication=with_chance(0.03, [[0, 1], [0, 2]]),
        trainable_token_indices=with_chance(0.04, [1, 3]), ensure_weight_tying=with_chance(0.06, True), use_qalora=with_chance(0.03, True),
        alora_invocation_tokens=with_chance(0.04, [5]), target_parameters=with_chance(0.7 if of_experts else 0.05, [
            n + ".weight" for n in rng.sample(of_experts or usable, min(2, len(of_experts or usable)))]),
        velora_config=with_chance(0.03, peft.tuners.lora.config.VeloraConfig()), kasa_config=with_chance(0.04, peft.tuners.lora.config.KasaConfig()),
        task_type=with_chance(0.7, {"Causa": "CAUSAL_LM", "LMHea": "CAUSAL_LM", "Condi": "SEQ_2_SEQ_LM", "Seque": "SEQ_CLS", "Token": "TOKEN_CLS"}.get(
            re.sub(".*(For|LMH)", r"\1", type(model).__name__).removeprefix("For")[:5])))
    if options["target_parameters"]:
        options["lora_dropout"] = None  # PEFT supports no dropout there
    if options["layers_to_transform"] is not None:
        options["layers_pattern"] = with_chance(0.4, rng.choice(["layers", ["layers"], "layer", ["h", "block"]]))
    return c | {key: value for key, value in options.items() if value is not None}


def drawn_folder(rng, name, to, config=None):
    model = load(folder_of(name))
    torch.manual_seed(rng.randrange(2**31))
    adapted = peft.get_peft_model(model, peft.LoraConfig(**(config or drawn_config(rng, name, model))))
    for weight in adapted.parameters():
        if weight.requires_grad:
            torch.nn.init.normal_(weight, std=0.3)
    adapted.save_pretrained(to)


# Values that an adapter_config.json may have, whether PEFT writes them or not.
values = {
    "task_type": [None, "CAUSAL_LM", "SEQ_CLS", "FEATURE_EXTRACTION"], "auto_mapping": [{"base_model_class": "X", "parent_library": "transformers"}],
    "peft_version": ["0.1.0", None], "base_model_name_or_path": [None, "x/y"], "revision": ["main"], "inference_mode": [False, True],
    "r": [0, -1, 3, 4.0, "4", True, None, 2**63], "lora_alpha": [3, 6.0, 6.5, 0, -2, None, "6", True], "lora_dropout": [0.5, None],
    "target_modules": [None, [], ["q_proj"], ["v_proj", "q"], "all-linear", ".*proj", ["_proj"], ["query", 3], {}],
    "exclude_modules": [[], ["q_proj"], "q_proj", ".*q_proj", ["layers.0.self_attn.q_proj"], "", 3], "fan_in_fan_out": [True, False, None],
    "bias": ["all", "lora_only", "none", None, "x"], "use_rslora": [True, False, None, 1, "no"],
    "modules_to_save": [[], ["lm_head"], ["norm"], ["classifier", "score"], ["zzz"], "norm", [3]],
    "init_lora_weights": [True, False, None, "gaussian", "Gaussian", "eva", "olora", "OLoRA", "pissa", "PISSA", "pissa_niter_4", "corda", "loftq",
                          "orthogonal", "mica", "lora_ga", "x", 0, 1, "", {}],
    "layers_to_transform": [0, [0], [0, 1], [], [7], -1, "0", [0.5]], "layers_pattern": [None, [], "layers", ["layers"], "", 3],
    "rank_pattern": [{}, None, {"q_proj": 2}, {"zzz": 2}], "alpha_pattern": [{}, None, {"q_proj": 2}, {"zzz": 2}],
    "megatron_config": [None, {}, {"a": 1}], "megatron_core": ["megatron.core", None], "trainable_token_indices": [None, [], [1, 2]],
    "loftq_config": [{}, None, {"loftq_bits": 4, "loftq_iter": 1}], "eva_config": [None, {"rho": 2.0}], "corda_config": [None, {"cache_file": None}],
    "lora_ga_config": [None, {"direction": "ArB2r"}], "use_dora": [True, None], "velora_config": [None, {}, {"num_groups": 2}],
    "alora_invocation_tokens": [None, [], [5]], "use_qalora": [True, None], "qalora_group_size": [4, 16, None], "monteclora_config": [None, {}],
    "layer_replication": [None, [], [[0, 1], [0, 2]]], "lora_bias": [True, None], "target_parameters": [None, [], ["mlp.up_proj.weight"], ["zzz"], "x"],
    "use_bdlora": [None, {}, True], "arrow_config": [None, {}], "kasa_config": [None, {}, {"svd_rank": 1}], "ensure_weight_tying": [True, False],
    "runtime_config": [None, {}], "peft_type": ["LORA", "lora", "IA3", 3, None, {}], "other_key": [None, False],
}


def write_keys(seed):
    rng, folders, cases = random.Random(seed), [], []
    with tempfile.TemporaryDirectory() as work:
        plain = pathlib.Path(work) / "plain"
        peft.get_peft_model(load(folder_of("llama")), peft.LoraConfig(target_modules=["q_proj"])).save_pretrained(plain)
        defaults = json.loads((plain / "adapter_config.json").read_text())
        refused = 0
        while len(folders) < 90:
            name, to = rng.choice(models), pathlib.Path(work) / str(len(folders))
            config = None
            if not folders:  # an adapter without options, for the changes of one key
                name, config = "llama", dict(r=4, lora_alpha=6, target_modules=["q_proj", "v_proj", "down_proj"])
            shutil.rmtree(to, ignore_errors=True)
            try:
                drawn_folder(rng, name, to, config)
            except Exception:  # PEFT refuses the drawn combination
                refused += 1
                continue
            config = json.loads((to / "adapter_config.json").read_text())
            config["base_model_name_or_path"] = None
            (to / "adapter_config.json").write_text(json.dumps(config))
            changes = {key: value for key, value in config.items() if key not in defaults or value != defaults[key]}
            shapes = {key: list(tensor.shape) for key, tensor in load_file(to / "adapter_model.safetensors").items()}
            folders.append(dict(model=name, config=changes, tensors=shapes))
            cases.append(dict(folder=len(folders) - 1, changes={}, **result(name, to)))
        changed = pathlib.Path(work) / "changed"
        tried = [(0, {key: value}) for key in values for value in values[key]]
        tried += [(rng.randrange(len(folders)), {key: rng.choice(values[key]) for key in rng.sample(sorted(values), rng.choice([1, 1, 2, 3]))})
                  for _ in range(150)]
        for number, changes in tried:
            shutil.rmtree(changed, ignore_errors=True)
            shutil.copytree(pathlib.Path(work) / str(number), changed)
            config = json.loads((changed / "adapter_config.json").read_text()) | changes
            (changed / "adapter_config.json").write_text(json.dumps(config))
            cases.append(dict(folder=number, changes=changes, **result(folders[number]["model"], changed)))
        text = json.dumps(dict(versions=versions, seed=seed, defaults=defaults | {"base_model_name_or_path": None}))[:-1]
        rows = lambda items: "[\n" + ",\n".join(json.dumps(item) for item in items) + "\n]"
        (here / "peft_keys.json").write_text(f'{text},\n"folders": {rows(folders)},\n"cases": {rows(cases)}}}\n')
        print(f"{len(folders)} folders ({refused} draws refused by PEFT), {len(cases)} cases: {sum('error' in c for c in cases)} errors, "
              f"{sum(c.get('plain', False) for c in cases)} plain")


# ---- classes ----

def write_adapter(to, model, layers, scale_of_values=0.3, **config):
    tensors, draw = {}, torch.Generator().manual_seed(1)
    for name in layers:
        inputs, outputs = model.get_submodule(name).weight.shape if isinstance(model.get_submodule(name), Conv1D) else reversed(
            model.get_submodule(name).weight.shape)
        tensors[f"{prefix}{name}.lora_A.weight"] = torch.randn(2, inputs, generator=draw) * scale_of_values
        tensors[f"{prefix}{name}.lora_B.weight"] = torch.randn(outputs, 2, generator=draw) * scale_of_values
    for name in config.pop("saved", []):
        tensors[prefix + name] = model.state_dict()[name].clone()
    to.mkdir(exist_ok=True)
    save_file(tensors, to / "adapter_model.safetensors")
    (to / "adapter_config.json").write_text(json.dumps(dict(peft_type="LORA", r=2, lora_alpha=3, bias="none", inference_mode=True, **config)))


def loads(name, folder, layers):
    found = result(name, folder)
    return found.get("plain", False) and sorted(found["scales"]) == sorted(layers)


def class_of(name, to):
    model = load(folder_of(name))
    linear = linear_layers(model)
    kinds = {}
    for layer in linear:
        for kind, targets in dict(module=dict(target_modules=[layer]), parameter=dict(target_modules=[], target_parameters=[layer + ".weight"])).items():
            write_adapter(to, model, [layer], **targets)
            if loads(name, to, [layer]):
                kinds[layer] = kind
                break
        kinds.setdefault(layer, "none")
    some = next(layer for layer, kind in kinds.items() if kind == "module")
    task_types, saved = [], {}
    for task in [None, "CAUSAL_LM", "SEQ_2_SEQ_LM", "SEQ_CLS", "TOKEN_CLS"]:
        for extra in [], [key for key in model.state_dict() if key.startswith(("classifier.", "score."))]:
            write_adapter(to, model, [some], target_modules=[some], task_type=task, saved=extra)
            if loads(name, to, [some]):
                task_types.append(task)
                saved[task or "null"] = extra
                break
    return dict(model=type(model).__name__, task_types=task_types, linear=list(linear), layers=kinds, saved=saved)


def write_classes():
    found = {}
    with tempfile.TemporaryDirectory() as work:
        for folder in sorted((here / "families").iterdir()) + [here / "huggingface" / "ssm_biases"]:
            if "padded" in folder.name or "_mtp" in folder.name or "blocks" in folder.name:
                continue
            found[folder.name] = class_of(folder.name, pathlib.Path(work) / "adapter")
            kinds = list(found[folder.name]["layers"].values())
            print(folder.name, found[folder.name]["task_types"], {kind: kinds.count(kind) for kind in ("module", "parameter", "none")}, flush=True)
    rows = ",\n".join(f"{json.dumps(name)}: {json.dumps(entry)}" for name, entry in found.items())
    (here / "peft_classes.json").write_text(f'{{"versions": {json.dumps(versions)}, "classes": {{\n{rows}\n}}}}\n')


# ---- comparison with the program ----

class Comparison:
    def __init__(self, program, work):
        self.program, self.work, self.counts, self.worst = program, work, dict.fromkeys(
            ["PEFT refuses", "refused", "imported", "exported again", "export refused"], 0), 0.0

    def run(self, *words):
        done = subprocess.run([self.program, *map(str, words)], capture_output=True, text=True)
        assert done.returncode in (0, 65, 78), done.stdout + done.stderr
        return done.returncode == 0, done.stderr.strip().split("\n")[-1]

    def expect_equal(self, a, b, what):
        error = float((a - b).abs().max() / b.abs().max())
        self.worst = max(self.worst, error)
        assert error < tolerance, f"{what}: logits differ by {error:.1e} of the largest"

    def exported_again(self, name, folder, found):
        again = self.work / "again"
        done, error = self.run("export-hf", self.work / "checkpoint", again, "--adapters", "--overwrite", "--like", folder_of(name))
        self.counts["exported again" if done else "export refused"] += 1
        if not done:
            return
        with warnings.catch_warnings(record=True) as raised:
            warnings.simplefilter("always")
            model = peft.PeftModel.from_pretrained(load(folder_of(name)), again).eval()
        assert not [w for w in raised if "missing adapter keys" in str(w.message)], f"{folder}: PEFT misses tensors of the exported folder"
        self.expect_equal(logits(model), found, f"{folder}, exported again")
        theirs, ours = load_file(folder / "adapter_model.safetensors"), load_file(again / "adapter_model.safetensors")
        assert all(torch.equal(theirs[key], ours[key]) for key in theirs), f"{folder}: tensors are not exported again with the same bits"

    def compare(self, name, folder):
        try:
            found = logits(peft.PeftModel.from_pretrained(load(folder_of(name)), folder).eval())
        except Exception:
            found = None
        done, error = self.run("import-hf", folder_of(name), self.work / "checkpoint", "--adapters", folder, "--overwrite")
        if found is None:
            self.counts["PEFT refuses"] += 1
            return
        self.counts["imported" if done else "refused"] += 1
        if not done:
            return
        done, error = self.run("export-hf", self.work / "checkpoint", self.work / "merged", "--overwrite", "--like", folder_of(name))
        assert done, error
        self.expect_equal(logits(load(self.work / "merged")), found, str(folder))
        self.exported_again(name, folder, found)


def compare(program, draws, seed):
    rng = random.Random(seed)
    with tempfile.TemporaryDirectory() as work:
        work = pathlib.Path(work)
        comparison, folder = Comparison(program, work), work / "peft"
        for _ in range(draws):
            name = rng.choice(models)
            shutil.rmtree(folder, ignore_errors=True)
            try:
                drawn_folder(rng, name, folder)
            except Exception:
                continue
            config = json.loads((folder / "adapter_config.json").read_text())
            if rng.random() < 0.3:
                config |= {key: rng.choice(values[key]) for key in rng.sample(sorted(values), rng.choice([1, 1, 2]))}
                (folder / "adapter_config.json").write_text(json.dumps(config))
            try:
                comparison.compare(name, folder)
            except AssertionError as error:
                sys.exit(f"{error}\nseed {seed}, {name}: {json.dumps(config)}")
        print(f"seed {seed}: {comparison.counts}; logits differ by at most {comparison.worst:.1e} of the largest")
        assert comparison.counts["imported"] >= draws // 8, "too few folders are imported"


if __name__ == "__main__":
    if sys.argv[1:2] == ["keys"]:
        write_keys(int((sys.argv[2:] or ["1"])[0]))
    elif sys.argv[1:] == ["classes"]:
        write_classes()
    elif sys.argv[1:2] == ["compare"] and len(sys.argv) > 2:
        compare(sys.argv[2], int((sys.argv[3:] or ["60"])[0]), int((sys.argv[4:] or ["1"])[0]))
    else:
        sys.exit(__doc__)
