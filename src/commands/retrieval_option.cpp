// SPDX-License-Identifier: BSD-3-Clause
#include "src/commands/retrieval_option.hpp"

#include <algorithm>

#include "modules/model/layer.hpp"
#include "src/data/fingerprint.hpp"
#include "src/retro/vectors/vector_index.hpp"

namespace gyr {

void RetrievalOption::add(Command& c) {
  c.add_option(
      "--retrieval", project_,
      "Layers R: PROJECT that is searched for the neighbours of each chunk of prompt and text; off: all neighbours are missing; default: that "
      "of the checkpoint's deck");
  c.add_option(
       "--align", align_,
       "Layers R: end: the first chunk is shortened so that the last one ends with the prompt; begin: all chunks are full, from the first token")
      ->one_of({"end", "begin"})
      ->show_default();
  c.add_option("--in-context", in_context_,
               "Layers R: passages that are put before each prompt, with an empty line after them (RETRO++): 0 or 1, the best one. It is cut at its "
               "end so that prompt and text fit into train.seq_length, and is left out of the neighbours")
      ->between(0, 1)
      ->show_default();
  c.add_flag("--cite", cite_, "Layers R: print the documents whose passages were neighbours of each chunk");
}

namespace {

// The project is searched with token ids of the model, and its token ids are read by the model.
void require_same_tokenizer(const std::filesystem::path& project, const std::filesystem::path& tokenizer) {
  const TokenizerMark made = retro::read_settings(project).tokenizer;
  std::error_code error;
  if (made.sum.empty() || !std::filesystem::is_regular_file(tokenizer, error)) return;
  require(
      same_tokenizer(made, mark_of(tokenizer)), Exit::data,
      "{}: was made with the tokenizer {}, and the model has another one, {}; name a project whose token files were built with the model's tokenizer",
      project.string(), made.file, tokenizer.string());
}

}  // namespace

void RetrievalOption::open(const RunConfig& run, const std::filesystem::path& tokenizer, int data_ranks, Note note) {
  if (!reads_neighbours(run.model)) {
    require(project_.empty() && align_ == "end" && in_context_ == 0 && !cite_, Exit::usage,
            "--retrieval, --align, --in-context, --cite: the model has no layers R and retrieves nothing; leave them out");
    return;
  }
  model_ = run.model.retrieval, note_ = std::move(note);
  require(!cite_ || data_ranks == 1, Exit::usage, "--cite: the ranks of --data {} do not exchange the documents of their texts; leave out --data",
          data_ranks);
  if (project_ == "off") {
    require(in_context_ == 0 && !cite_, Exit::usage, "--in-context, --cite: --retrieval off finds no passages; leave them out, or name a PROJECT");
    return;
  }
  const std::string project = project_.empty() ? run.retro.project : project_;
  require(!project.empty(), Exit::usage,
          "the checkpoint's deck names no retrieval project, and the model has layers R: give --retrieval PROJECT, or --retrieval off");
  require(!retro::has_vectors(project), Exit::config,
          "{}: its index has vectors of an encoder, and generation searches BM25 indexes only; name a project with such an index", project);
  require_same_tokenizer(project, tokenizer);
  search_ = std::make_unique<retro::PassageSearch>(project, model_.chunk, run.model.vocab_size);
}

std::string RetrievalOption::in_context(Index id, const std::string& prompt, const Tokenizer& tokenizer, const Encode& encode, Index most) {
  if (in_context_ == 0) return prompt;
  const std::vector<std::int64_t> best = search_->best(tokenizer.encode(prompt), 1, {});
  if (best.empty()) return prompt;
  const std::vector<Token> passage = search_->tokens(best.front());
  for (Index kept = Index(passage.size()); kept > 0;) {
    const std::string text = tokenizer.decode(std::span(passage).first(std::size_t(kept))) + "\n\n" + prompt;
    const Index excess = Index(encode(text).size()) - most;
    if (excess <= 0) {
      in_text_[id] = {best.front()};
      return text;
    }
    kept -= excess;
  }
  if (note_)
    note_(fmt::format("--in-context: no passage fits before prompt {}: train.seq_length and --tokens leave {} tokens for both", id + 1,
                      std::max<Index>(most, 0)));
  return prompt;
}

FoundNeighbours RetrievalOption::neighbours_of(Index request, std::span<const Token> chunk) {
  FoundNeighbours found;
  found.ids = search_->best(chunk, model_.neighbours, in_text_[request]);
  for (const std::int64_t id : found.ids) {
    const std::vector<Token> tokens = search_->tokens(id);
    found.lengths.push_back(Index(tokens.size()));
    found.tokens.insert(found.tokens.end(), tokens.begin(), tokens.end());
    found.tokens.resize(found.lengths.size() * std::size_t(model_.neighbour_length()), 0);
  }
  return found;
}

RetrievalOptions RetrievalOption::options() {
  RetrievalOptions options;
  if (search_) options.search = [this](Index request, std::span<const Token> chunk) { return neighbours_of(request, chunk); };
  options.align = align_ == "end" ? ChunkAlignment::end : ChunkAlignment::begin;
  return options;
}

std::string RetrievalOption::citations(const GeneratedText& text) const {
  std::string lines;
  for (const CitedChunk& chunk : text.cited) {
    lines += fmt::format("  [{} to {}]", chunk.first, chunk.last);
    for (const std::int64_t id : chunk.ids) lines += fmt::format("{} {}", id == chunk.ids.front() ? "" : ";", search_->place(id));
    lines += "\n";
  }
  return lines;
}

Json RetrievalOption::citations_json(const GeneratedText& text) const {
  Json chunks = Json::array();
  for (const CitedChunk& chunk : text.cited) {
    Json passages = Json::array();
    for (const std::int64_t id : chunk.ids) passages.push_back({{"chunk", id}, {"place", search_->place(id)}});
    chunks.push_back({{"first", chunk.first}, {"last", chunk.last}, {"passages", passages}});
  }
  return chunks;
}

}  // namespace gyr
