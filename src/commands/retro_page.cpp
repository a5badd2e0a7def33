// SPDX-License-Identifier: BSD-3-Clause
#include "src/commands/retro_page.hpp"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <numeric>

#include "modules/model/layer.hpp"
#include "src/base/input_file.hpp"
#include "src/base/json.hpp"
#include "src/base/precision.hpp"
#include "src/base/quantity.hpp"
#include "src/commands/notes.hpp"
#include "src/commands/retrieval_option.hpp"
#include "src/evaluation/scorer.hpp"
#include "src/page/page_file.hpp"
#include "src/pretrained/pretrained.hpp"
#include "src/pretrained/weights.hpp"
#include "src/retro/passage_search.hpp"
#include "src/retro/queries.hpp"
#include "src/retro/summary.hpp"
#include "src/samples/neighbours_page.hpp"

namespace gyr {

namespace {

constexpr std::size_t most_text_bytes = std::size_t(1) << 26;
constexpr std::int64_t candidates = 200;  // of each chunk, of which copies are left out

// The model that scores the text.
struct PageModel {
  std::string path;
  RunConfig run;
};

std::optional<PageModel> model_of(const RetroPageOptions& o, const std::string& project, const retro::ProjectSettings& settings, Runtime& runtime) {
  if (o.model.empty()) return {};
  const std::string path = chosen_model(o.model, runtime, print_note);
  PageModel model{path, inference_run(path, notes_of(runtime))};
  require(reads_neighbours(model.run.model), Exit::usage,
          "--model {}: it has no layers R and reads no neighbours; name a model that has, or leave it out", path);
  require_same_tokenizer(project, model.run.data.tokenizer);
  require(model.run.model.retrieval.chunk == settings.chunk, Exit::config,
          "--model {}: it reads chunks of {} tokens, but those of {} have {}; name a project of the model", path, model.run.model.retrieval.chunk,
          project, settings.chunk);
  return model;
}

// The first tokens of the text.
std::vector<Token> tokens_of(const RetroPageOptions& o, const Tokenizer& tokenizer, std::size_t& left_out) {
  std::vector<Token> tokens = tokenizer.encode(text_of_file(o.text, most_text_bytes));
  require(!tokens.empty(), Exit::data, "{}: encodes to no token; name a file with text", o.text);
  left_out = tokens.size() - std::min(tokens.size(), std::size_t(o.tokens));
  tokens.resize(tokens.size() - left_out);
  return tokens;
}

std::vector<ShownChunk> cut(std::size_t tokens, std::size_t chunk) {
  std::vector<ShownChunk> chunks;
  for (std::size_t first = 0; first < tokens; first += chunk) chunks.push_back({first, std::min(first + chunk, tokens), {}});
  return chunks;
}

// Finds the neighbours of all chunks, on every rank. Collective.
void find_neighbours(const RetroPageOptions& o, Index most, retro::ChunkSearch& search, ShownText& text, const Runtime& runtime) {
  const retro::Database& database = search.database();
  const auto part = [&](std::size_t first, std::size_t last) {
    return std::vector(text.tokens.begin() + std::ptrdiff_t(first), text.tokens.begin() + std::ptrdiff_t(std::min(last, text.tokens.size())));
  };
  std::vector<std::vector<Token>> queries;
  for (const ShownChunk& c : text.chunks) queries.push_back(part(c.first, c.last));
  const auto found = search.nearest(queries, o.overlap > 0 ? std::max(candidates, most) : most, 0);
  const Json all = Json::parse(runtime.shared_text([&] {
    Json chunks = Json::array();
    for (std::size_t c = 0; c < found.size(); ++c) {
      const std::vector<Token> after = part(text.chunks[c].last, text.chunks[c].last + std::size_t(database.settings().chunk));
      const auto is_copy = [&](std::int64_t id) { return o.overlap > 0 && retro::share_a_run(after, database.passage(id), o.overlap); };
      Json& of_chunk = chunks.emplace_back(Json::array());
      for (const retro::Candidate& n : retro::filtered(found[c], {}, most, is_copy)) of_chunk.push_back({n.id, n.score});
    }
    return json_text(chunks);
  }));
  for (std::size_t c = 0; c < text.chunks.size(); ++c)
    for (const Json& n : all[c]) {
      const std::int64_t id = n[0].get<std::int64_t>();
      const retro::ChunkRow row = database.rows(id, 1)[0];
      text.chunks[c].neighbours.push_back(
          {id, n[1].get<double>(), retro::place_text(database.settings(), row), database.passage(id), std::size_t(row.last - row.first)});
    }
}

// Windows of the text as passages: first all with their neighbours, then all without any. The last one is padded to full chunks.
class TextWindows {
 public:
  TextWindows(ShownText& text, const ModelConfig& model, Index window)
      : text_(text), retrieval_(model.retrieval), scored_(Index(text.tokens.size()) - 1),
        length_(std::min(window, (scored_ + retrieval_.chunk - 1) / retrieval_.chunk * retrieval_.chunk)),
        windows_((scored_ + length_ - 1) / length_) {
    text.with.assign(text.tokens.size(), NAN), text.without = text.with;
    passages_.lengths.assign(std::size_t(2 * windows_), length_);
    passages_.source_length = retrieval_.source_length(length_);
    passages_.make = [this](Index i) { return passage(i % windows_, i < windows_); };
    passages_.on_scores = [this](Index i, std::span<const RowScore> rows) {
      std::vector<double>& losses = i < windows_ ? text_.with : text_.without;
      const Index first = i % windows_ * length_;
      for (Index t = 0; t < length_ && first + t < scored_; ++t) losses[std::size_t(first + t + 1)] = rows[std::size_t(t)].loss;
    };
  }
  const Passages& passages() const { return passages_; }

 private:
  Passage passage(Index window, bool with) const {
    const Index first = window * length_, m = retrieval_.chunk, r = retrieval_.neighbour_length();
    Passage p;
    for (Index t = first; t < first + length_; ++t) {
      p.tokens.push_back(t < scored_ ? text_.tokens[std::size_t(t)] : 0);
      p.labels.push_back(t < scored_ ? text_.tokens[std::size_t(t + 1)] : ignored_label);
    }
    for (Index c = first / m; c < (first + length_) / m; ++c)
      for (Index n = 0; n < retrieval_.neighbours; ++n) {
        const std::vector<Token> tokens = with ? neighbour(c, n) : std::vector<Token>();
        p.neighbour_lengths.push_back(std::int32_t(tokens.size()));
        p.neighbours.insert(p.neighbours.end(), tokens.begin(), tokens.end());
        p.neighbours.resize(p.neighbour_lengths.size() * std::size_t(r), 0);
      }
    return p;
  }
  // Tokens of neighbour n of chunk c; none if it is missing, or if the chunk is not full, so that no row sees its neighbours.
  std::vector<Token> neighbour(Index c, Index n) const {
    if (c >= Index(text_.chunks.size())) return {};
    const ShownChunk& chunk = text_.chunks[std::size_t(c)];
    const bool full = Index(chunk.last - chunk.first) == retrieval_.chunk;
    return full && n < Index(chunk.neighbours.size()) ? chunk.neighbours[std::size_t(n)].tokens : std::vector<Token>();
  }

  ShownText& text_;
  RetrievalConfig retrieval_;
  Index scored_, length_, windows_;  // tokens that a next one is predicted for; tokens of a window; number of windows
  Passages passages_;
};

// Sets the losses of the text. Collective.
void score(const PageModel& model, ShownText& text, Runtime& runtime) {
  require(text.tokens.size() > 1, Exit::data, "--model: the text has one token, and none is predicted; name a longer text");
  const ModelConfig& config = model.run.model;
  const auto require_known = [&](std::span<const Token> tokens) {
    for (const Token token : tokens)
      require(token >= 0 && token < config.vocab_size, Exit::data,
              "--model {}: model.vocab_size is {}, and the token {} is read; name the model's project", model.path, config.vocab_size, token);
  };
  require_known(text.tokens);
  for (const ShownChunk& c : text.chunks)
    for (const ShownNeighbour& n : c.neighbours) require_known(n.tokens);
  text.model = model.path, text.window = std::size_t(model.run.train.seq_length), text.read = std::size_t(config.retrieval.neighbours);
  Grid grid(grid_layout(runtime.ranks(), 1, 1, {{0, config.layers()}}), runtime.world(), wait_policy_of(runtime.world()));
  const TextWindows windows(text, config, model.run.train.seq_length);
  score_passages(
      config, precision_of(model.run.train.precision), grid,
      [&](Stage& stage) {
        stage.fill([&](ParameterList weights, const Arrived& arrived) { load_weights(model.path, grid, stage.config(), weights, arrived); });
      },
      windows.passages(), {});
}

void print_summary(const RetroPageOptions& o, const ShownText& text) {
  const auto found = std::accumulate(text.chunks.begin(), text.chunks.end(), std::size_t(0),
                                     [](std::size_t n, const ShownChunk& c) { return n + c.neighbours.size(); });
  std::printf("wrote %s (%s, %s)\n", printable(o.page).c_str(), counted(Index(text.chunks.size()), "chunk").c_str(),
              counted(Index(found), "neighbour").c_str());
  if (!text.model.empty())
    std::printf("loss %.6f with neighbours, %.6f without, of %zu tokens\n", mean_loss(text.with), mean_loss(text.without), text.tokens.size() - 1);
  if (text.left_out > 0)
    print_note(
        fmt::format("the page shows the first {} of {} tokens; --tokens sets another limit", text.tokens.size(), text.tokens.size() + text.left_out));
}

}  // namespace

void RetroPageOptions::add(Command& c) {
  c.add_option("--text", text, "File of the text, which is cut into chunks from its first token on")->required();
  c.add_option("--html", page, "Page to write: one file that needs no network")->required();
  c.add_option(
      "--model", model,
      "Checkpoint, folder of a run, or Hugging Face folder with layers R: shades each token by its loss with neighbours, without any, and by the "
      "difference");
  c.add_option("-k,--neighbors", neighbours, "Neighbours of each chunk; at least as many as --model reads")->between(1, 100)->show_default();
  c.add_option("--overlap", overlap,
               "Leave out neighbours that have a run of this number of tokens in common with the chunk's own continuation, as a text of the database "
               "has; 0: keep them")
      ->between(0, double(retro::most_chunk))
      ->show_default();
  c.add_option("--tokens", tokens, "Maximum number of tokens of the text; the rest is left out")->between(1, 1'000'000)->show_default();
  c.add_option("--tokenizer", tokenizer, "tokenizer.json of the project; default: the one of the project");
}

void write_retro_page(const RetroPageOptions& o, const std::string& project, retro::ChunkSearch& search, Runtime& runtime) {
  const retro::ProjectSettings& settings = search.database().settings();
  check_page_file(o.page);
  const std::optional<PageModel> model = model_of(o, project, settings, runtime);
  const std::optional<Tokenizer> tokenizer = retro::tokenizer_of(settings, o.tokenizer);
  require(tokenizer.has_value(), Exit::missing, "{}: its tokenizer is not known or does not exist; name it with --tokenizer FILE", project);
  ShownText text{.name = std::filesystem::path(o.text).filename().string(),
                 .project = project,
                 .model = {},
                 .tokens = {},
                 .chunks = {},
                 .special = {},
                 .with = {},
                 .without = {}};
  text.tokens = tokens_of(o, *tokenizer, text.left_out);
  text.chunks = cut(text.tokens.size(), std::size_t(settings.chunk));
  text.special.insert(settings.special.begin(), settings.special.end());
  find_neighbours(o, std::max(o.neighbours, model ? model->run.model.retrieval.neighbours : 1), search, text, runtime);
  if (model) score(*model, text, runtime);
  runtime.shared_text([&] {
    write_page_file(o.page, neighbours_page(text, &*tokenizer));
    print_summary(o, text);
    return std::string();
  });
}

}  // namespace gyr
