// SPDX-License-Identifier: BSD-3-Clause
// Options of generation for models with layers R: the project that is searched, the begin of the chunks, cited documents, and a
// passage in the text of the prompt (RETRO++; Wang et al., "Shall we pretrain autoregressive language models with
// retrieval?", 2023).
#pragma once

#include <map>
#include <memory>
#include <set>

#include "src/base/json.hpp"
#include "src/base/note.hpp"
#include "src/commands/command.hpp"
#include "src/config/run_config.hpp"
#include "src/engine/generate/generator.hpp"
#include "src/retro/passage_search.hpp"
#include "src/tokenizer/tokenizer.hpp"

namespace gyr {

// Exit::data if the project was made with another tokenizer than that of the model: it is searched with token ids of the model, and
// the model reads its token ids.
void require_same_tokenizer(const std::filesystem::path& project, const std::filesystem::path& tokenizer);

class RetrievalOption {
 public:
  void add(Command&);
  bool cites() const { return cite_; }

  // Opens the project. Exit::usage if the model has no layers R, or if the option or the deck name no project. Exit::data if the
  // project has another tokenizer. Errors of PassageSearch.
  void open(const RunConfig&, const std::filesystem::path& tokenizer, int data_ranks, Note note);
  // Closes the project while MPI and HDF5 still run; this object lives longer.
  void close() { search_.reset(); }

  // The prompt after the best passage for it and an empty line (--in-context 1). The passage loses its last tokens until
  // at most `most` tokens are encoded. Other chunks than this one become neighbours of request `id`.
  using Encode = std::function<std::vector<Token>(const std::string&)>;
  std::string in_context(Index id, const std::string& prompt, const Tokenizer&, const Encode&, Index most);

  RetrievalOptions options();
  // Places of the passages in the prompt, and chunks of the text with the places of their neighbours: a line each, or as members
  // `in_context` and `cited` of a JSON object.
  std::string citations(const GeneratedText&) const;
  void add_citations(const GeneratedText&, Json& line) const;

 private:
  FoundNeighbours neighbours_of(Index request, std::span<const Token> chunk);
  std::set<std::int64_t> in_text(Index request) const;  // chunks in the text of the prompt

  std::string project_, align_ = "end";
  Index in_context_ = 0;
  bool cite_ = false;
  RetrievalConfig model_;
  Note note_;                                        // receives remarks on prompts; empty on all ranks but the first
  std::unique_ptr<retro::PassageSearch> search_;     // null: off, or a model without layers R
  std::map<Index, std::set<std::int64_t>> in_text_;  // [request]: chunks in the text of its prompt
};

}  // namespace gyr
