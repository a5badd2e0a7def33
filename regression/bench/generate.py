# SPDX-License-Identifier: BSD-3-Clause
# Runs llama.cpp's own converter on a model folder whose tokenizer it does not know, by skipping the vocabulary: only weights matter for timing. See generate.sh.
#   TREE MODEL FILE TYPE    writes the model folder MODEL as the GGUF file FILE, in f32, bf16 or q8_0, with the converter in the llama.cpp sources TREE
import pathlib
import runpy
import sys

tree, model, file, kind = sys.argv[1:]
sys.path.insert(0, tree)
sys.path.insert(0, str(pathlib.Path(tree) / "gguf-py"))
from conversion.falcon_h1 import FalconH1Model  # noqa: E402

FalconH1Model.set_vocab = FalconH1Model._set_vocab_none
sys.argv = ["convert_hf_to_gguf.py", model, "--outfile", file, "--outtype", kind]
runpy.run_path(str(pathlib.Path(tree) / "convert_hf_to_gguf.py"), run_name="__main__")
