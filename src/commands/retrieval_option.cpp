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
  c.add_flag("--cite", cite_, "Layers R: print the documents whose passages were neighbours of each chunk, and those of passages in the prompt");
}

void require_same_tokenizer(const std::filesystem::path& project, const std::filesystem::path& tokenizer) {
  const TokenizerMark made = retro::read_settings(project).tokenizer;
  std::error_code error;
  if (made.sum.empty() || !std::filesystem::is_regular_file(tokenizer, error)) return;
  require(
      same_tokenizer(made, mark_of(tokenizer)), Exit::data,
      "{}: was made with the tokenizer {}, and the model has another one, {}; name a project whose token files were built with the model's tokenizer",
      project.string(), made.file, tokenizer.string());
}

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
  for (const std::int64_t id : in_text(text.id)) lines += fmt::format("  [in the prompt] {}\n", search_->place(id));
  for (const CitedChunk& chunk : text.cited) {
    lines += fmt::format("  [{} to {}]", chunk.first, chunk.last);
    for (const std::int64_t id : chunk.ids) lines += fmt::format("{} {}", id == chunk.ids.front() ? "" : ";", search_->place(id));
    lines += "\n";
  }
  return lines;
}

void RetrievalOption::add_citations(const GeneratedText& text, Json& line) const {
  const auto passages_of = [&](const auto& ids) {
    Json passages = Json::array();
    for (const std::int64_t id : ids) passages.push_back({{"chunk", id}, {"place", search_->place(id)}});
    return passages;
  };
  Json chunks = Json::array();
  for (const CitedChunk& chunk : text.cited) chunks.push_back({{"first", chunk.first}, {"last", chunk.last}, {"passages", passages_of(chunk.ids)}});
  line["cited"] = std::move(chunks);
  if (in_context_ > 0) line["in_context"] = passages_of(in_text(text.id));
}

std::set<std::int64_t> RetrievalOption::in_text(Index request) const {
  const auto found = in_text_.find(request);
  return found == in_text_.end() ? std::set<std::int64_t>() : found->second;
}

}  // namespace gyr
