// SPDX-License-Identifier: BSD-3-Clause
// Chat formats of options and deck keys: a format string, a file that contains one, or the chat template of a model.
#pragma once

#include <ctime>
#include <filesystem>
#include <optional>
#include <string>

#include "src/data/chat.hpp"

namespace gyr {

// `text`: a format string, @FILE with one, @FILE.jinja, or @FOLDER of a model or checkpoint. `now`: the time that a chat template may ask
// for. Exit::usage for an invalid format string, Exit::missing if the file does not exist, Exit::data for a chat template that cannot be read.
Chat read_chat(const std::string& text, const Tokenizer& tokenizer, std::time_t now);
// Chat template of a model; nullopt if it has none.
std::optional<Chat> chat_of_model(const std::filesystem::path& model, const Tokenizer& tokenizer, std::time_t now);
// The same, with Exit::data if the model has none.
Chat needed_chat_of_model(const std::filesystem::path& model, const Tokenizer& tokenizer, std::time_t now);

}  // namespace gyr
