// SPDX-License-Identifier: BSD-3-Clause
#include "src/retro/queries.hpp"

#include <algorithm>
#include <numeric>
#include <set>

#include "kernels/base/error.hpp"
#include "src/base/json.hpp"
#include "src/base/output_file.hpp"
#include "src/retro/settings_json.hpp"

namespace gyr::retro {

namespace {

namespace fs = std::filesystem;

constexpr std::string_view queries_format = "gyrfalcon retrieval queries 1";

QuerySettings query_settings_in(const Json& json) {
  constexpr std::int64_t most = std::int64_t(1) << 60;
  require_format(json, queries_format);
  QuerySettings s;
  s.project = sum_in(json, "project"), s.index = sum_in(json, "index");
  s.chunk = count_in(json, "chunk", 1, most_chunk), s.block = count_in(json, "block", 1, most_block);
  s.corpora = marks_in(json.at("corpora"));
  for (const Json& weight : json.at("weights")) s.weights.push_back(weight.get<double>());
  s.split = json.at("split").get<std::string>(), s.order = json.at("order").get<std::string>();
  require(split_fractions(s.split).has_value(), Exit::data, "'split' is not valid");
  require(s.order == "shuffled" || s.order == "megatron", Exit::data, "'order' is neither shuffled nor megatron");
  const std::string samples = json.value("samples_of", "train");
  require(samples == "train" || samples == "validation", Exit::data, "'samples_of' is neither train nor validation");
  s.validation = samples == "validation";
  s.seed = json.at("seed").get<std::uint64_t>();
  s.seq_length = count_in(json, "seq_length", 1, std::int64_t(1) << 30), s.samples = count_in(json, "samples", 0, most);
  s.candidates = count_in(json, "candidates", 1, most_candidates), s.saved = count_in(json, "saved", 1, s.candidates);
  s.overlap = json.contains("overlap") ? count_in(json, "overlap", 1, most_chunk) : 0;
  const std::string retriever = json.value("retriever", "bm25");
  require(retriever == "bm25" || retriever == "flat", Exit::data, "'retriever' is neither bm25 nor flat");
  s.vectors = retriever == "flat";
  const std::string documents = json.value("documents", "joined");
  require(documents == "joined" || documents == "separate", Exit::data, "'documents' is neither joined nor separate");
  s.separate = documents == "separate";
  return s;
}

// Number of a corpus in the project: that of the same files, or of files with the same content; -1 if there is none.
std::int64_t number_in_project(const CorpusMark& corpus, const ProjectSettings& project) {
  const auto same = [&](const CorpusMark& other) {
    return corpus.prefix == other.prefix ||
           (!corpus.content.empty() && corpus.content == other.content && corpus.index_sum == other.index_sum && corpus.bytes == other.bytes);
  };
  const auto at = std::find_if(project.corpora.begin(), project.corpora.end(), same);
  return at == project.corpora.end() ? -1 : at - project.corpora.begin();
}

void require_same_tokenizer(const fs::path& prefix, const ProjectSettings& project) {
  const auto fingerprint = fingerprint_of(prefix);
  if (!fingerprint || fingerprint->tokenizer.sum.empty() || project.tokenizer.sum.empty()) return;
  require(fingerprint->tokenizer.sum == project.tokenizer.sum, Exit::data,
          "{}: was made with the tokenizer {} (XXH3 {}), but the project with {} (XXH3 {}); use token files of the same tokenizer", prefix.string(),
          fingerprint->tokenizer.file, fingerprint->tokenizer.sum, project.tokenizer.file, project.tokenizer.sum);
}

}  // namespace

NamedValues QuerySettings::values() const {
  NamedValues values{{"project", project},
                     {"index", index},
                     {"chunk", std::to_string(chunk)},
                     {"block", std::to_string(block)},
                     {"data.split", split},
                     {"data.order", order},
                     {"data.seed", std::to_string(seed)},
                     {"train.seq_length", std::to_string(seq_length)},
                     {"samples", std::to_string(samples)},
                     {"candidates", std::to_string(candidates)},
                     {"saved", std::to_string(saved)},
                     {"number of corpora", std::to_string(corpora.size())}};
  if (validation) values.emplace_back("samples of", "validation");
  if (overlap > 0) values.emplace_back("overlap", std::to_string(overlap));
  if (vectors) values.emplace_back("retriever", "flat");
  if (separate) values.emplace_back("data.documents", "separate");
  for (std::size_t c = 0; c < corpora.size(); ++c) {
    for (auto& value : values_of(corpora[c], fmt::format("corpus {}:", c))) values.push_back(std::move(value));
    if (!weights.empty()) values.emplace_back(fmt::format("corpus {}: weight", c), fmt::format("{}", weights[c]));
  }
  return values;
}

DatasetOptions QuerySettings::dataset() const {
  DatasetOptions o;
  for (std::size_t c = 0; c < corpora.size(); ++c)
    o.corpora.push_back({corpora[c].prefix, weights.empty() ? std::nullopt : std::optional(weights[c])});
  o.which = validation ? Split::validation : Split::train;
  o.split = split, o.seq_length = seq_length, o.seed = seed, o.order = parse_sample_order(order), o.samples = samples;
  return o;
}

namespace {
std::string folder_name(const QuerySettings& s) { return (s.validation ? "validation-" : "train-") + s.hash(); }
}  // namespace

fs::path neighbours_folder(const fs::path& project, const QuerySettings& s) { return query_folder(project) / folder_name(s); }

void write_query_settings(const fs::path& folder, const QuerySettings& s) {
  Json json{{"format", queries_format},      {"project", s.project}, {"index", s.index},           {"chunk", s.chunk}, {"block", s.block},
            {"corpora", json_of(s.corpora)}, {"weights", s.weights}, {"split", s.split},           {"order", s.order}, {"seed", s.seed},
            {"seq_length", s.seq_length},    {"samples", s.samples}, {"candidates", s.candidates}, {"saved", s.saved}};
  if (s.validation) json["samples_of"] = "validation";
  if (s.overlap > 0) json["overlap"] = s.overlap;
  if (s.vectors) json["retriever"] = "flat";
  if (s.separate) json["documents"] = "separate";
  OutputFile file(folder / "config.json");
  file.append(json_text(json, 2) + "\n");
  file.commit();
}

QuerySettings read_query_settings(const fs::path& folder) {
  QuerySettings settings;
  read_config(folder / "config.json", "remove the folder and run `gyrfalcon retro query` again", [&](const Json& json) {
    settings = query_settings_in(json);
    require(settings.weights.empty() || settings.weights.size() == settings.corpora.size(), Exit::data, "'weights' has {} elements for {} corpora",
            settings.weights.size(), settings.corpora.size());
    require(folder.filename() == folder_name(settings), Exit::data, "its settings have the hash {}, which is not that of its folder",
            settings.hash());
  });
  return settings;
}

QuerySettings at_places_of(const ProjectSettings& project, QuerySettings s, const fs::path& config) {
  for (CorpusMark& corpus : s.corpora) {
    std::error_code error;
    if (fs::exists(index_path(corpus.prefix), error)) continue;
    const auto same = std::find_if(project.corpora.begin(), project.corpora.end(),
                                   [&](const CorpusMark& other) { return values_of(corpus, "") == values_of(other, ""); });
    require(same != project.corpora.end(), Exit::missing,
            "{}: names the token files {}, but {} does not exist; restore it, or run `gyrfalcon retro query` with a deck that has its new place",
            config.string(), corpus.prefix.string(), index_path(corpus.prefix).string());
    corpus.prefix = same->prefix;
  }
  return s;
}

QuerySamples::QuerySamples(const QuerySettings& settings, const ProjectSettings& project, const fs::path& config)
    : settings_(settings), project_(project), size_(0) {
  dataset_ = std::make_unique<Dataset>(settings.dataset());
  for (std::size_t c = 0; c < settings.corpora.size(); ++c) {
    require_unchanged(settings.corpora[c], dataset_->file(std::int64_t(c)), config);
    require_same_tokenizer(settings.corpora[c].prefix, project);
    in_project_.push_back(number_in_project(settings.corpora[c], project));
    size_ += dataset_->per_epoch(std::int64_t(c));
    ends_.push_back(size_);
  }
  if (settings.samples > 0) size_ = settings.samples;
}

std::int64_t QuerySamples::foreign_corpora() const { return std::count(in_project_.begin(), in_project_.end(), -1); }

std::pair<std::int64_t, std::vector<Extract>> QuerySamples::extracts(std::int64_t number) const {
  if (settings_.samples > 0) return dataset_->extracts(number);
  const auto corpus = std::upper_bound(ends_.begin(), ends_.end(), number) - ends_.begin();
  return {corpus, dataset_->window(corpus, number - (corpus > 0 ? ends_[std::size_t(corpus - 1)] : 0))};
}

QuerySamples::Sample QuerySamples::sample(std::int64_t number) const {
  const auto [corpus, parts] = extracts(number);
  std::vector<std::int32_t> tokens;
  std::vector<std::int64_t> ends;  // of the documents within the sample
  Sample sample;
  for (const Extract& part : parts) {
    const std::size_t before = tokens.size();
    tokens.resize(before + std::size_t(part.count));
    dataset_->file(corpus).read(part.sequence, part.offset, std::span(tokens).subspan(before));
    ends.push_back(std::int64_t(tokens.size()));
    if (const std::int64_t c = in_project_[std::size_t(corpus)]; c >= 0) sample.documents.push_back({std::uint32_t(c), std::uint32_t(part.sequence)});
  }
  std::sort(sample.documents.begin(), sample.documents.end());
  // All tokens but the last one are read; the last one is only predicted.
  tokens.resize(std::max(tokens.size(), std::size_t(settings_.seq_length)));
  const auto read = settings_.seq_length, all = std::int64_t(tokens.size());
  const auto part = [&](std::int64_t first, std::int64_t last) { return std::vector(tokens.begin() + first, tokens.begin() + last); };
  for (std::int64_t first = 0; first < read; first += settings_.chunk) {
    const std::int64_t last = std::min(first + settings_.chunk, read);
    const auto end = std::lower_bound(ends.begin(), ends.end(), last);  // of the document of the chunk's last token
    const std::int64_t begin = settings_.separate && end != ends.begin() ? *(end - 1) : 0,
                       most = settings_.separate && end != ends.end() ? *end : all;
    sample.chunks.push_back(part(std::max(first, begin), last));
    sample.continuations.push_back(part(last, std::min(last + settings_.chunk, most)));
  }
  return sample;
}

std::vector<Candidate> filtered(const std::vector<Candidate>& candidates, const std::vector<Place>& documents, std::int64_t saved,
                                const std::function<bool(std::int64_t id)>& is_copy) {
  std::vector<Candidate> kept;
  for (const Candidate& c : candidates) {
    if (std::int64_t(kept.size()) == saved) break;
    if (!std::binary_search(documents.begin(), documents.end(), Place{c.corpus, c.document}) && !(is_copy && is_copy(c.id))) kept.push_back(c);
  }
  return kept;
}

bool share_a_run(std::span<const std::int32_t> a, std::span<const std::int32_t> b, std::int64_t n) {
  const auto length = std::ptrdiff_t(n);
  for (auto run = a.begin(); a.end() - run >= length; ++run)
    if (std::search(b.begin(), b.end(), run, run + length) != b.end()) return true;
  return false;
}

}  // namespace gyr::retro
