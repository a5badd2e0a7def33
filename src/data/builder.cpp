// SPDX-License-Identifier: BSD-3-Clause
// Tokenizes text files into a corpus. Each rank encodes its blocks into its own part file. Once the lengths of all
// parts are known, each rank copies its part into the token file of rank 0 and writes its slice of the index. A loss
// mask and labels are further pairs of files, written in the same way, and so are the fields of prompts.
#include "src/data/builder.hpp"

#include <algorithm>
#include <limits>
#include <numeric>
#include <string>
#include <utility>

#include "kernels/base/error.hpp"
#include "kernels/ops/cross_entropy.hpp"
#include "src/base/output_file.hpp"
#include "src/base/parted_file.hpp"
#include "src/checkpoint/checksum.hpp"
#include "src/data/build_outputs.hpp"
#include "src/data/class_labels.hpp"
#include "src/data/loss_mask.hpp"
#include "src/data/prompts.hpp"
#include "src/data/text_references.hpp"
#include "src/data/token_writer.hpp"

namespace gyr {
namespace {

constexpr std::int64_t max_length = std::numeric_limits<std::int32_t>::max();

// Totals of the text that this rank has encoded.
struct Part {
  std::vector<std::int32_t> lengths;  // tokens of each sequence that begins on this rank
  std::int64_t lead = 0;              // tokens before this rank's first sequence: the end of a document that began on an earlier rank
  std::int64_t tokens = 0, skipped_lines = 0, bytes = 0;

  void add(bool begins, std::int64_t count) {
    if (begins) lengths.push_back(0);
    tokens += count;
    if (lengths.empty()) {
      lead += count;
    } else {
      lengths.back() = checked(lengths.back() + count);
    }
  }
  static std::int32_t checked(std::int64_t length) {
    require(length <= max_length, Exit::data,
            "a document has more than {} tokens, the limit of the token file format; split the document, or choose a separator (--separator)",
            max_length);
    return std::int32_t(length);
  }
};

// Position of this rank's part in the corpus.
struct Place {
  std::int64_t first_token = 0, first_sequence = 0;  // number of tokens and of sequences of all earlier ranks
  std::int64_t tokens = 0, sequences = 0;            // number of tokens and of sequences of all ranks
  std::int64_t tail = 0;                             // tokens of this rank's last sequence that later ranks encode
};

Place place_of(const Part& part, const BuildTeam& team) {
  const auto tokens = team.all_gather(part.tokens);
  const auto sequences = team.all_gather(std::int64_t(part.lengths.size()));
  const auto leads = team.all_gather(part.lead);
  Place place;
  for (int r = 0; r < team.size; ++r) {
    const auto i = std::size_t(r);
    if (r < team.rank) {
      place.first_token += tokens[i];
      place.first_sequence += sequences[i];
    }
    place.tokens += tokens[i];
    place.sequences += sequences[i];
  }
  for (auto r = std::size_t(team.rank) + 1; r < std::size_t(team.size); ++r) {
    place.tail += leads[r];
    if (sequences[r] > 0) break;
  }
  return place;
}

// One pair of token and index file in progress. This rank writes one part of it.
class Output {
 public:
  Output(const std::filesystem::path& prefix, TokenType type, int rank)
      : prefix_(prefix), type_(type), rank_(rank), tokens_(tokens_path(prefix), rank) {}

  void append(std::span<const std::int32_t> ids) {
    bytes_.clear();
    append_tokens(bytes_, ids, type_);
    tokens_.append(bytes_);
  }
  void flush() { tokens_.flush(); }
  // Rank 0 only, before any rank calls assemble().
  void create_index() { index_.emplace(index_path(prefix_)); }

  void assemble(const Part& part, const Place& place) {
    tokens_.assemble(place.first_token * bytes_of(type_));
    auto index = OutputFile::join(index_path(prefix_));
    write_index(index, part, place);
    index.sync();
  }

  void sync() {
    tokens_.file().sync();
    index_->sync();
  }
  void commit() { commit_pair(prefix_, tokens_.file(), *index_); }

 private:
  // Writes this rank's slice of the three index arrays (lengths, pointers, documents). Rank 0 adds the header and the
  // final entry.
  void write_index(const OutputFile& index, const Part& part, const Place& place) const {
    const auto write = [&](std::int64_t offset, const auto& values) {
      index.write_at(offset, {reinterpret_cast<const char*>(values.data()), values.size() * sizeof values[0]});
    };
    const std::int64_t N = place.sequences, s = place.first_sequence;
    const std::int64_t documents_at = index_header_bytes + 12 * N;
    std::vector<std::int64_t> pointers, documents;
    std::int64_t pointer = (place.first_token + part.lead) * bytes_of(type_);
    for (const std::int32_t length : part.lengths) {
      pointers.push_back(pointer);
      pointer += length * bytes_of(type_);
      documents.push_back(s + std::int64_t(documents.size()));
    }
    write(index_header_bytes + 4 * s, part.lengths);
    write(index_header_bytes + 4 * N + 8 * s, pointers);
    write(documents_at + 8 * s, documents);
    if (rank_ == 0) {
      index.write_at(0, index_header(type_, N, N));
      write(documents_at + 8 * N, std::vector{N});
    }
  }

  std::filesystem::path prefix_;
  TokenType type_;
  int rank_;
  PartedFile tokens_;
  std::optional<OutputFile> index_;
  std::string bytes_;
};

class Builder {
 public:
  // `tokenizer`: null if all documents are token ids
  Builder(const Tokenizer* tokenizer, const BuildOptions& options, const BuildTeam& team) : tokenizer_(tokenizer), options_(options), team_(team) {}

  BuildReport run(const std::function<void(std::int64_t, std::int64_t)>& progress) {
    team_.collective_check([&] { prepare(); });
    require_same_inputs();
    team_.collective_check([&] { encode(progress); });
    const Place place = place_of(part_, team_);
    team_.collective_check([&] {
      require(
          place.sequences > 0, Exit::data, "{} no document; the input is empty, or --documents does not match it",
          options_.inputs.size() == 1 ? options_.inputs.front().string() + " holds" : fmt::format("the {} input files hold", options_.inputs.size()));
      if (team_.rank == 0) each_output([](Output& output) { output.create_index(); });
    });
    const std::int64_t first_field = bytes_of_earlier_fields();
    team_.collective_check([&] {
      if (fields_) fields_->assemble(first_field);
      if (!part_.lengths.empty()) part_.lengths.back() = Part::checked(part_.lengths.back() + place.tail);
      each_output([&](Output& output) { output.assemble(part_, place); });
    });
    const std::uint64_t content = sum_of_content();
    team_.collective_check([&] {
      if (team_.rank == 0) commit(place, content);
    });
    return {sum(part_.bytes), place.sequences, place.tokens, sum(learned_), sum(labelled_), sum(part_.skipped_lines)};
  }

 private:
  std::int64_t sum(std::int64_t mine) const {
    const auto all = team_.all_gather(mine);
    return std::accumulate(all.begin(), all.end(), std::int64_t(0));
  }

  // Size of the fields that earlier ranks have written.
  std::int64_t bytes_of_earlier_fields() const {
    const auto all = team_.all_gather(fields_ ? fields_->appended() : 0);
    return std::accumulate(all.begin(), all.begin() + team_.rank, std::int64_t(0));
  }

  // Checksum of the content of all ranks, the same for any number of ranks.
  std::uint64_t sum_of_content() const {
    const auto gathered = [&](std::uint64_t mine) {
      std::vector<std::uint64_t> all;
      const auto high = team_.all_gather(std::int64_t(mine >> 32)), low = team_.all_gather(std::int64_t(mine & 0xffffffffu));
      for (std::size_t r = 0; r < high.size(); ++r) all.push_back(std::uint64_t(high[r]) << 32 | std::uint64_t(low[r]));
      return all;
    };
    const auto sums = gathered(content_.sum()), powers = gathered(content_.power());
    SequenceSum total;
    for (std::size_t r = 0; r < sums.size(); ++r) total.append(SequenceSum::of(sums[r], powers[r]));
    return total.sum();
  }

  std::optional<OutputFile> fingerprint(const Place& place, std::uint64_t content) const {
    if (!options_.tokenizer) return {};
    Fingerprint f{*options_.tokenizer, place.sequences, place.tokens, fmt::format("{:016x}", content), {}, options_.given_options, options_.program};
    std::error_code error;
    for (const auto& path : options_.inputs) {
      const auto bytes = std::filesystem::file_size(path, error);
      f.sources.emplace_back(path.string(), error ? 0 : std::int64_t(bytes));
    }
    OutputFile file(fingerprint_path(options_.prefix));
    file.append(text_of(f));
    file.sync();
    return file;
  }

  template <class Action>
  void each_output(Action&& action) {
    action(*tokens_);
    if (mask_) action(*mask_);
    if (labels_) action(*labels_);
  }

  void prepare() {
    require(!options_.inputs.empty(), Exit::config, "no input file is given");
    require_prefix_for(options_.inputs, options_.prefix);
    const auto description = fingerprint_path(options_.prefix);
    require(!std::filesystem::exists(description) || is_fingerprint(description), Exit::usage,
            "{}: exists and is not a fingerprint of token files, so it is not replaced; choose another PREFIX", description.string());
    for (const auto& path : outputs_of(options_.prefix)) {
      require(!std::filesystem::is_directory(path), Exit::io, "{}: is a folder; choose another prefix", path.string());
      require(options_.overwrite || !std::filesystem::exists(path), Exit::usage, "{}: exists; choose another PREFIX, or --overwrite", path.string());
    }
    const std::int64_t vocab_size = tokenizer_ ? tokenizer_->size() : max_length;
    require(!options_.eod || (*options_.eod >= 0 && *options_.eod < vocab_size), Exit::config, "end-of-document id {} is not in the vocabulary of {}",
            options_.eod.value_or(0), vocab_size);
    std::int64_t blocks = 0;
    first_block_.assign(1, 0);
    for (const auto& path : options_.inputs) {
      blocks += DocumentFile(path, options_.format).blocks();
      first_block_.push_back(blocks);
    }
    tokens_.emplace(options_.prefix, token_type_for(vocab_size), team_.rank);
    if (options_.format.prompts) fields_.emplace(fields_path(options_.prefix), team_.rank);
    if (options_.format.conversation || options_.format.pairs || !options_.format.source_key.empty())
      mask_.emplace(mask_prefix(options_.prefix), TokenType::u8, team_.rank);
    if (options_.format.labelled)
      labels_.emplace(labels_prefix(options_.prefix), token_type_for(std::int64_t(options_.format.labelled->classes.size()) + 1), team_.rank);
  }

  // Another node may see a different folder, and files may change while file name patterns are expanded.
  void require_same_inputs() const {
    std::string names = std::to_string(first_block_.back());
    for (const auto& path : options_.inputs) names += '\n' + path.string();
    const auto name_hashes =
        team_.all_gather(std::int64_t(std::hash<std::string>()(names) >> 12));  // 52 bits, because a double holds that many exactly
    require(std::adjacent_find(name_hashes.begin(), name_hashes.end(), std::not_equal_to<>()) == name_hashes.end(), Exit::data,
            "ranks see different input files, or files of different sizes; wait until they are written, or give files that all nodes see");
  }

  // The blocks of all files form one list. Each rank encodes a contiguous range of it; the sizes of the ranges differ
  // by at most one block.
  void encode(const std::function<void(std::int64_t, std::int64_t)>& progress) {
    const std::int64_t blocks = first_block_.back();
    const std::int64_t first = blocks * team_.rank / team_.size, last = blocks * (team_.rank + 1) / team_.size;
    for (std::size_t f = 0; f < options_.inputs.size(); ++f) {
      const std::int64_t from = std::max(first, first_block_[f]), to = std::min(last, first_block_[f + 1]);
      if (from >= to) continue;
      DocumentFile file(options_.inputs[f], options_.format);
      const auto report_progress = [&](double blocks) {
        if (progress) progress(std::int64_t(blocks * DocumentFile::block_bytes), (last - first) * DocumentFile::block_bytes);
      };
      // A rank visits its blocks of a file in strides, so that it can report progress. The first visit of a compressed
      // file reads all of it.
      constexpr std::int64_t stride = 16;
      for (std::int64_t block = from; block < to; block += stride) {
        const std::int64_t end = std::min(block + stride, to);
        part_.skipped_lines += file.visit(block - first_block_[f], end - first_block_[f], [&](const Fragment& fragment) {
          add(fragment);
          if (file.compressed()) report_progress(double(from - first) + std::min(double(to - from), file.blocks_read()));
        });
        report_progress(double(end - first));
      }
      if (from == first_block_[f]) part_.bytes += file.bytes();
    }
    each_output([](Output& output) { output.flush(); });
    if (fields_) fields_->flush();
  }

  // Tags: the first token of each word has the word's class. Text classification: the first token of the text has the
  // class of the text.
  void encode(const LabelledText& example) {
    for (std::size_t w = 0; w < example.words.size(); ++w) {
      if (w == 0) tokenizer_->encode(example.words[w], ids_);
      else tokenizer_->encode(" " + example.words[w], ids_, Tokenizer::Specials::as_text, TextPosition::after_text);
      if (classes_.size() < ids_.size()) classes_.push_back(1 + std::max(example.classes[w], -1));
      classes_.resize(ids_.size(), 0);
    }
    const bool full = !options_.format.labelled->of_words;
    if (full) classes_.assign(ids_.size(), 0);
    for (const Template& t : tokenizer_->vocabulary().templates) {
      ids_.insert(ids_.begin(), t.before.begin(), t.before.end()), ids_.insert(ids_.end(), t.after.begin(), t.after.end());
      classes_.insert(classes_.begin(), t.before.size(), 0), classes_.resize(ids_.size(), 0);
    }
    if (full && !classes_.empty()) classes_[0] = 1 + example.classes[0];
  }

  // Appends the special tokens that the tokenizer's post-processor puts before a document (`before`) or after it
  // (`after`).
  void add_template(std::vector<std::int32_t> Template::*side) {
    const auto& templates = tokenizer_->vocabulary().templates;
    const auto add = [&](const Template& t) { ids_.insert(ids_.end(), (t.*side).begin(), (t.*side).end()); };
    if (side == &Template::before) std::for_each(templates.rbegin(), templates.rend(), add);
    else std::for_each(templates.begin(), templates.end(), add);
  }

  // Adds the tokens of a fragment, except those of labelled examples and prompts.
  void encode(const Fragment& fragment) {
    if (options_.complete && fragment.begins) add_template(&Template::before);
    TextPosition position = fragment.begins ? TextPosition::begin : TextPosition::after_text;
    tokenizer_->encode(fragment.text, ids_, Tokenizer::Specials::as_text, position);
    if (options_.complete && fragment.ends) add_template(&Template::after);
    marks_.resize(ids_.size(), fragment.learned);
    for (const Utterance& utterance : fragment.utterances) {
      gyr::encode(utterance, *tokenizer_, ids_, position);
      marks_.resize(ids_.size(), utterance.learned);
    }
  }

  // Adds the tokens of a prompt, and its fields.
  void add(const PromptLine& prompt) {
    ids_ = prompt.tokens;
    const std::string line = prompt.fields + "\n";
    fields_->append(line);
    content_.add(checksum(line.data(), std::int64_t(line.size())));
  }

  void add(const Fragment& fragment) {
    ids_.clear();
    marks_.clear();
    classes_.clear();
    if (fragment.prompt) add(*fragment.prompt);
    else encode(fragment);
    if (fragment.labelled) encode(*fragment.labelled);
    marks_.resize(ids_.size(), fragment.learned);
    if (fragment.ends && options_.eod) {
      ids_.push_back(*options_.eod);
      marks_.push_back(marks_.empty() ? fragment.learned : marks_.back());
    }
    part_.add(fragment.begins, std::int64_t(ids_.size()));
    learned_ += std::count(marks_.begin(), marks_.end(), 1);
    tokens_->append(ids_);
    if (mask_) mask_->append(marks_);
    if (labels_) {
      classes_.resize(ids_.size(), 0);
      labelled_ += std::count_if(classes_.begin(), classes_.end(), [](std::int32_t c) { return c > 0; });
      labels_->append(classes_);
    }
    const auto add_values = [&](const std::vector<std::int32_t>& values) {
      content_.add(checksum(values.data(), std::int64_t(values.size() * sizeof values[0])));
    };
    add_values(ids_);
    if (mask_) add_values(marks_);
    if (labels_) add_values(classes_);
    content_.add(fragment.begins);
  }

  // All new bytes are on disk before any old file is removed. The mask, the labels and the fields are replaced while the
  // corpus has no index, so that a mask is never combined with tokens of another build.
  void commit(const Place& place, std::uint64_t content) {
    each_output([](Output& output) { output.sync(); });
    if (fields_) fields_->file().sync();
    auto described = fingerprint(place, content);
    remove_file(index_path(options_.prefix));
    commit_companion(mask_, mask_prefix(options_.prefix));
    commit_companion(labels_, labels_prefix(options_.prefix));
    if (fields_) fields_->file().commit();
    else remove_file(fields_path(options_.prefix));
    remove_file(names_path(options_.prefix)), remove_file(references_path(options_.prefix));
    if (labels_) {
      OutputFile names(names_path(options_.prefix));
      for (const std::string& name : options_.format.labelled->classes) names.append(name + "\n");
      names.commit();
    }
    if (described) described->commit();
    else if (is_fingerprint(fingerprint_path(options_.prefix))) remove_file(fingerprint_path(options_.prefix));
    tokens_->commit();
  }

  static void commit_companion(std::optional<Output>& output, const std::filesystem::path& prefix) {
    if (output) return output->commit();
    remove_file(index_path(prefix));
    remove_file(tokens_path(prefix));
  }

  const Tokenizer* tokenizer_;
  const BuildOptions& options_;
  const BuildTeam& team_;
  std::vector<std::int64_t> first_block_;  // [file]: first block of the file; the last element is the total number of blocks
  Part part_;
  std::int64_t learned_ = 0, labelled_ = 0;
  SequenceSum content_;  // of this rank's fragments
  std::optional<Output> tokens_, mask_, labels_;
  std::optional<PartedFile> fields_;
  // of the current fragment: token ids, 1 for target tokens, and classes (1 + class, or 0 for no class)
  std::vector<std::int32_t> ids_, marks_, classes_;
};

}  // namespace

BuildReport build_corpus(const Tokenizer& tokenizer, const BuildOptions& options, const BuildTeam& team,
                         const std::function<void(std::int64_t, std::int64_t)>& progress) {
  return Builder(&tokenizer, options, team).run(progress);
}

BuildReport build_prompts(const BuildOptions& options, const BuildTeam& team, const std::function<void(std::int64_t, std::int64_t)>& progress) {
  ensure(options.format.prompts != nullptr, "prompts have a format");
  return Builder(options.format.prompts->tokenizer, options, team).run(progress);
}

}  // namespace gyr
