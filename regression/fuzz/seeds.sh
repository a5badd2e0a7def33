#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# seeds.sh FOLDER: writes small seed inputs for the fuzzers, FOLDER/NAME for fuzz_NAME.
#   cmake -S . -B build-fuzz -G Ninja -DGYR_FUZZ=ON -DCMAKE_C_COMPILER=clang -DCMAKE_CXX_COMPILER=clang++
#   cmake --build build-fuzz --target fuzzers && regression/fuzz/seeds.sh seeds
#   build-fuzz/regression/fuzz_safetensors -dict=regression/fuzz/safetensors.dict -max_total_time=600 seeds/safetensors
set -eu
out=${1:?usage: seeds.sh FOLDER}
mkdir -p "$out/safetensors" "$out/config_json" "$out/jinja"
cp "$(dirname "$0")"/../golden/chat_templates/*.jinja "$out/jinja"

# safetensors NAME JSON BYTES: writes a file with this header (below 256 bytes) and BYTES zero bytes of data.
safetensors() {
  {
    # shellcheck disable=SC2059  # the format string is the number
    printf "\\$(printf %03o "${#2}")\000\000\000\000\000\000\000"
    printf %s "$2"
    head -c "$3" /dev/zero
  } > "$out/safetensors/$1"
}
safetensors empty '{}' 0
safetensors one '{"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}}' 8
safetensors padded '{"__metadata__":{"format":"pt"},"w":{"dtype":"BF16","shape":[2,3],"data_offsets":[0,12]}}      ' 12
safetensors scalar_and_none '{"s":{"dtype":"F64","shape":[],"data_offsets":[0,8]},"n":{"dtype":"I8","shape":[4,0],"data_offsets":[8,8]}}' 8
safetensors two '{"b":{"dtype":"U8","shape":[4],"data_offsets":[4,8]},"a":{"dtype":"F16","shape":[2],"data_offsets":[0,4]}}' 8
# Second form of input: two bytes with the data size, then the JSON of the header.
printf '\010\000{"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}}' > "$out/safetensors/bare"

printf '{"model_type":"falcon_h1","rope_theta":1e11}' > "$out/config_json/least"
cat > "$out/config_json/early" <<'JSON'
{"architectures":["FalconH1ForCausalLM"],"model_type":"falcon_h1","vocab_size":64,"hidden_size":32,"intermediate_size":48,
"num_hidden_layers":2,"num_attention_heads":4,"num_key_value_heads":2,"head_dim":8,"rope_theta":100000000000.0,"rope_scaling":null,
"mamba_d_ssm":48,"mamba_n_heads":6,"mamba_d_head":8,"mamba_d_state":8,"mamba_expand":2,"mamba_chunk_size":8,"mamba_use_mlp":true,
"time_step_limit":[0.0,Infinity],"ssm_multipliers":[1,1,0.5,1,1],"mlp_multipliers":[1.0,0.5],"torch_dtype":"bfloat16",
"pad_token_id":0,"bos_token_id":1,"eos_token_id":[11,28],"attention_dropout":0.0,"max_position_embeddings":16384}
JSON
cat > "$out/config_json/late" <<'JSON'
{"dtype":"float32","model_type":"falcon_h1","hidden_size":64,"num_attention_heads":4,"num_key_value_heads":null,"mamba_d_ssm":null,
"mamba_n_heads":8,"mamba_d_head":"auto","mamba_n_groups":2,"mamba_rms_norm":true,"mamba_norm_before_gate":false,"num_hidden_layers":1,
"rope_parameters":{"rope_theta":10000.0,"rope_type":"default"},"time_step_limit":[0.001,{"__float__":"Infinity"}],"layer_types":["hybrid"],
"tie_word_embeddings":true,"eos_token_id":null,"pad_token_id":null,"attention_bias":true,"projectors_bias":true,"mamba_proj_bias":true}
JSON
