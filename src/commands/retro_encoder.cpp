// SPDX-License-Identifier: BSD-3-Clause
#include "src/commands/retro_encoder.hpp"

#include <algorithm>

#include "src/checkpoint/checksum.hpp"
#include "src/commands/notes.hpp"
#include "src/evaluation/text_vectors.hpp"
#include "src/pretrained/pretrained.hpp"
#include "src/pretrained/weights.hpp"
#include "src/retro/summary.hpp"

namespace gyr {

namespace {

// Tokenizers of a project whose encoder has another one.
struct Translation {
  Tokenizer text, encoder;
};

std::optional<Translation> translation_of(const retro::ProjectSettings& project, const std::string& encoder) {
  if (encoder.empty() || project.tokenizer.sum.empty() || mark_of(encoder).sum == project.tokenizer.sum) return {};
  std::optional<Tokenizer> text = retro::tokenizer_of(project, "");
  require(text.has_value(), Exit::missing, "{}: the tokenizer of the project does not exist, and the encoder has another one; restore the file",
          project.tokenizer.file);
  return Translation{std::move(*text), Tokenizer::load(encoder)};
}

}  // namespace

struct RetroEncoder::Parts {
  Parts(const std::string& m, const retro::ProjectSettings& p, Runtime& runtime)
      : model(chosen_model(m, runtime, print_note)), run(inference_run(model, notes_of(runtime))), project(p), sum(hex(checksum_of_model(model))),
        translation(translation_of(p, run.data.tokenizer)),
        grid(grid_layout(runtime.ranks(), 1, 1, {{0, run.model.layers()}}), runtime.world(), wait_policy_of(runtime.world())),
        vectors(
            run.model, grid,
            [&](Stage& stage) {
              stage.fill([&](ParameterList weights, const Arrived& arrived) { load_weights(model, grid, stage.config(), weights, arrived); });
            },
            most_tokens()) {}

  Index most_tokens() const {
    return run.model.positions > 0 ? std::min(run.model.positions, Index(retro::most_encoder_tokens)) : Index(retro::most_encoder_tokens);
  }
  std::vector<float> encode(std::span<const std::int32_t> ids) {
    std::vector<Token> tokens;
    std::copy_if(ids.begin(), ids.end(), std::back_inserter(tokens), [&](std::int32_t id) { return !project.is_special(id); });
    if (translation) tokens = translation->encoder.encode(translation->text.decode(tokens));
    tokens.resize(std::min(tokens.size(), std::size_t(most_tokens())));
    for (const Token token : tokens)
      require(token < run.model.vocab_size, Exit::data,
              "a text has the token {}, but model.vocab_size of {} is {}; use an encoder with the tokenizer of the project", token, model,
              run.model.vocab_size);
    return tokens.empty() ? std::vector<float>() : vectors(tokens);
  }

  std::string model;
  RunConfig run;
  retro::ProjectSettings project;
  std::string sum;
  std::optional<Translation> translation;
  Grid grid;
  TextVectors vectors;
};

RetroEncoder::RetroEncoder(const std::string& model, const retro::ProjectSettings& project, Runtime& runtime)
    : parts_(std::make_unique<Parts>(model, project, runtime)) {}
RetroEncoder::~RetroEncoder() = default;

retro::VectorSettings RetroEncoder::settings(const retro::ProjectSettings& project) const {
  std::error_code error;
  return {project.hash(), std::filesystem::absolute(parts_->model, error).lexically_normal(), parts_->sum, parts_->vectors.width()};
}

retro::EncodeText RetroEncoder::encode() {
  return [this](std::span<const std::int32_t> ids) { return parts_->encode(ids); };
}

}  // namespace gyr
