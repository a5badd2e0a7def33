// SPDX-License-Identifier: BSD-3-Clause
#include "src/dump/dump_file.hpp"

#include "src/base/json.hpp"

namespace gyr {

std::string text_of(const DumpPart& part) {
  Json tensors = Json::array();
  for (const StoredTensor& t : part.tensors) tensors.push_back({t.path, t.hf_name, t.long_name, int(t.dtype), t.shape, t.meaning});
  return json_text({{"tensors", tensors}, {"file", text_of(part.file)}});
}

DumpPart dump_part(const std::string& text) {
  const Json json = json_in(text);
  DumpPart part;
  for (const auto& t : json.at("tensors")) part.tensors.push_back({t.at(0), t.at(1), t.at(2), DType(t.at(3).get<int>()), t.at(4), t.at(5)});
  part.file = manifest_file(json.at("file"), "another rank");
  return part;
}

void add(Manifest& manifest, DumpPart part) {
  std::vector<std::size_t> number;
  for (StoredTensor& t : part.tensors) {
    const auto same = std::find_if(manifest.tensors.begin(), manifest.tensors.end(), [&](const StoredTensor& known) { return known.path == t.path; });
    number.push_back(std::size_t(same - manifest.tensors.begin()));
    if (same == manifest.tensors.end()) manifest.tensors.push_back(std::move(t));
  }
  for (StoredBox& box : part.file.boxes) box.tensor = number[box.tensor];
  manifest.files.push_back(std::move(part.file));
}

void DumpFile::write(const StoredTensor& tensor, const Box& box, Index rows, const void* data) {
  if (!writer_) writer_.emplace(path_, header_, ShardOptions{});
  const auto [entry, fresh] = number_.try_emplace(tensor.path, tensors_.size());
  if (fresh) tensors_.push_back(tensor);
  writer_->write(tensor, entry->second, box, rows, data);
}

std::optional<DumpPart> DumpFile::finish() {
  if (!writer_) return {};
  return DumpPart{std::move(tensors_), writer_->finish()};
}

}  // namespace gyr
