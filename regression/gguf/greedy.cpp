// SPDX-License-Identifier: BSD-3-Clause
// greedy MODEL.gguf COUNT ID...: the ids that llama.cpp goes on with, the likeliest each time. Built by ../gguf.sh against llama.cpp.
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <vector>

#include "llama.h"

int main(int argc, char** argv) {
  if (argc < 4) return 64;
  llama_log_set(
      [](ggml_log_level level, const char* text, void*) {
        if (level >= GGML_LOG_LEVEL_ERROR) std::fputs(text, stderr);
      },
      nullptr);
  llama_model* model = llama_model_load_from_file(argv[1], llama_model_default_params());
  if (!model) return 65;
  const int count = std::atoi(argv[2]), vocabulary = llama_vocab_n_tokens(llama_model_get_vocab(model));
  std::vector<llama_token> tokens;
  for (int i = 3; i < argc; ++i) tokens.push_back(std::atoi(argv[i]));
  llama_context_params params = llama_context_default_params();
  params.n_ctx = 512, params.n_threads = params.n_threads_batch = 1;
  params.type_k = params.type_v = GGML_TYPE_F32;  // as the other side keeps keys and values
  params.flash_attn_type = LLAMA_FLASH_ATTN_TYPE_DISABLED;
  llama_context* context = llama_init_from_model(model, params);
  if (!context) return 65;
  for (int i = 0; i < count; ++i) {
    if (llama_decode(context, llama_batch_get_one(tokens.data(), int(tokens.size()))) != 0) return 70;
    const float* logits = llama_get_logits_ith(context, -1);
    tokens = {llama_token(std::max_element(logits, logits + vocabulary) - logits)};
    std::printf("%d%s", tokens[0], i + 1 < count ? " " : "\n");
  }
  llama_free(context);
  llama_model_free(model);
}
