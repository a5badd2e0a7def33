// SPDX-License-Identifier: BSD-3-Clause
#include "src/data/class_labels.hpp"

#include "kernels/base/printable.hpp"
#include "kernels/ops/cross_entropy.hpp"
#include "src/base/mapped_file.hpp"

namespace gyr {

namespace {

const std::filesystem::path& there(const std::filesystem::path& prefix, const TokenFile& tokens) {
  for (const auto& path : {tokens_path(prefix), index_path(prefix)})
    require(std::filesystem::exists(path), Exit::missing,
            "{}: does not exist, but the model is a classifier and needs class labels for {}. Build them with `gyrfalcon data build --classes NAMES` "
            "or `--tags NAMES`",
            path.string(), tokens.prefix().string());
  return prefix;
}

std::vector<std::string> lines_of(const std::filesystem::path& file) {
  std::vector<std::string> lines;
  const MappedFile mapped(file);
  std::string_view text = mapped.text();
  while (!text.empty()) {
    const auto end = std::min(text.find('\n'), text.size());
    lines.emplace_back(text.substr(0, end));
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return lines;
}

std::string listed(const std::vector<std::string>& names) {
  constexpr std::size_t most = 8;
  std::string text;
  for (std::size_t i = 0; i < std::min(most, names.size()); ++i) text += (i > 0 ? ", " : "") + printable(names[i]);
  return names.size() > most ? fmt::format("{} and {} more", text, names.size() - most) : text;
}

}  // namespace

std::filesystem::path labels_prefix(const std::filesystem::path& prefix) { return std::filesystem::path(prefix) += "_labels"; }
std::filesystem::path names_path(const std::filesystem::path& prefix) { return labels_prefix(prefix) += ".txt"; }

ClassLabels::ClassLabels(const TokenFile& tokens, const std::vector<std::string>& classes)
    : labels_(there(labels_prefix(tokens.prefix()), tokens)), classes_(std::int64_t(classes.size())) {
  require_same_sequences(labels_, tokens, "labels");
  const std::filesystem::path file = names_path(tokens.prefix());
  const std::vector<std::string> names = lines_of(file);
  require(names == classes, Exit::data,
          "{}: the classes are {}, but the model's are {}; build the data with the model's classes, or list the data's classes in the deck's labels",
          file.string(), listed(names), listed(classes));
}

void ClassLabels::read(std::int64_t sequence, std::int64_t offset, std::span<std::int32_t> out) const {
  labels_.read(sequence, offset, out, classes_ + 1);
  for (std::int32_t& label : out) label = label == 0 ? ignored_label : label - 1;
}

}  // namespace gyr
