// SPDX-License-Identifier: BSD-3-Clause
#include "src/pretrained/chat_source.hpp"

#include "kernels/base/error.hpp"
#include "src/base/input_file.hpp"
#include "src/huggingface/companions.hpp"
#include "src/pretrained/pretrained.hpp"

namespace gyr {

namespace fs = std::filesystem;

namespace {

constexpr std::int64_t most_bytes = std::int64_t(1) << 20;

// Chat template in a file. A tokenizer_config.json in its folder names the special tokens.
Chat chat_of_file(const fs::path& file, const std::string& text, const Tokenizer& tokenizer, std::time_t now) {
  const jinja::Template source(text, file.string());
  const fs::path folder = file.has_parent_path() ? file.parent_path() : ".";
  const Companions companions = companions_in(folder, {});
  for (const char* name : {"bos_token", "eos_token", "pad_token", "unk_token"})
    require(companions.contains(tokenizer_config_name) || !source.reads(name), Exit::data,
            "{}: the chat template writes {}, but there is no {} in its folder that defines this token; give --template @FOLDER of the model",
            file.string(), name, tokenizer_config_name);
  return JinjaChat(source, special_tokens_in(companions, folder.string()), now, tokenizer);
}

}  // namespace

Chat read_chat(const std::string& format, const Tokenizer& tokenizer, std::time_t now) {
  if (!format.starts_with('@')) return ChatTemplate(format, tokenizer);
  const fs::path file = format.substr(1);
  std::error_code error;
  if (fs::is_directory(file, error)) return needed_chat_of_model(file, tokenizer, now);
  std::string text = text_of_file(file, most_bytes);
  if (file.extension() == ".jinja") return chat_of_file(file, text, tokenizer, now);
  if (text.ends_with('\n')) text.pop_back();
  if (text.ends_with('\r')) text.pop_back();
  return ChatTemplate(text, tokenizer);
}

std::optional<Chat> chat_of_model(const fs::path& model, const Tokenizer& tokenizer, std::time_t now) {
  const auto jinja = chat_template_in(companions_of(model), model.string());
  if (!jinja) return {};
  return JinjaChat(jinja::Template(jinja->text, jinja->origin), jinja->tokens, now, tokenizer);
}

Chat needed_chat_of_model(const fs::path& model, const Tokenizer& tokenizer, std::time_t now) {
  std::optional<Chat> chat = chat_of_model(model, tokenizer, now);
  require(chat.has_value(), Exit::data, "{}: has no chat template; write one with --template", model.string());
  return *std::move(chat);
}

}  // namespace gyr
