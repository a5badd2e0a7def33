// SPDX-License-Identifier: BSD-3-Clause
#include "src/checkpoint/manifest.hpp"

#include <algorithm>
#include <map>

#include "src/base/json.hpp"
#include "src/checkpoint/checksum.hpp"
#include "src/checkpoint/numbers.hpp"

namespace gyr {

namespace {

constexpr std::string_view before_sum = "{\"xxh3\": \"", before_manifest = "\",\n\"manifest\": ", after_manifest = "}\n";

Json json_of(const StoredBox& b) {
  Json extents = Json::array();
  for (const hdf5::Extent& e : b.extents) extents.push_back({e.offset, e.bytes});
  return {{"tensor", b.tensor},
          {"dataset", b.dataset},
          {"first", b.box.first},
          {"count", b.box.count},
          {"extents", extents},
          {"numbers_xxh3", hex(b.values_checksum)},
          {"stored_xxh3", hex(b.stored_sum)}};
}

Json json_of(const ManifestFile& f) {
  Json boxes = Json::array();
  for (const StoredBox& b : f.boxes) boxes.push_back(json_of(b));
  Json j{{"name", f.name}, {"bytes", f.bytes}, {"xxh3", hex(f.sum)}, {"boxes", boxes}};
  if (!f.root.empty()) j["root"] = f.root;
  return j;
}

StoredBox box_of(const Json& j, const std::string& origin) {
  StoredBox b;
  b.tensor = j.at("tensor");
  b.dataset = j.at("dataset");
  b.box = {j.at("first").get<Shape>(), j.at("count").get<Shape>()};
  for (const Json& e : j.at("extents")) b.extents.push_back({e.at(0), e.at(1)});
  b.values_checksum = sum_of_hex(j.at("numbers_xxh3"), origin);
  b.stored_sum = sum_of_hex(j.at("stored_xxh3"), origin);
  return b;
}

ManifestFile file_of(const Json& j, const std::string& origin) {
  ManifestFile f{j.at("name"), j.at("bytes"), sum_of_hex(j.at("xxh3"), origin), {}};
  require(!f.name.empty() && f.name.find('/') == std::string::npos && f.name[0] != '.' && f.bytes >= 0, Exit::data,
          "{}: names a file '{}', which is not in the same folder", origin, printable(f.name));
  for (const Json& b : j.at("boxes")) f.boxes.push_back(box_of(b, origin));
  f.root = j.value("root", "");
  return f;
}

StoredTensor tensor_of(const Json& j, const std::string& origin) {
  StoredTensor t{j.at("path"), j.at("hf_name"), j.at("long_name"), DType::f32, j.at("shape").get<Shape>(), j.at("dtype_semantic")};
  const std::string dtype = j.at("dtype");
  bool known = false;
  for (const DType type : {DType::f64, DType::f32, DType::bf16, DType::i32, DType::i64, DType::u8})
    if (name_of(type) == dtype) t.dtype = type, known = true;
  require(known, Exit::data, "{}: {} has elements of an unknown type '{}'", origin, printable(t.path), printable(dtype));
  Index count = 8;
  bool fits = !t.shape.empty() && t.path.starts_with('/');
  for (const Index extent : t.shape) fits = fits && extent > 0 && !__builtin_mul_overflow(count, extent, &count);
  require(fits, Exit::data, "{}: {} has an impossible shape", origin, printable(t.path));
  return t;
}

// Boxes inside a tensor cover it exactly once if they are disjoint and their sizes add up to the tensor's.
void check_cover(const StoredTensor& t, const std::vector<const Box*>& boxes, const std::string& origin) {
  Index covered = 0;
  for (std::size_t i = 0; i < boxes.size(); ++i) {
    require(fits_within(*boxes[i], t.shape) && elements(boxes[i]->count) > 0, Exit::data, "{}: a box of {} lies outside of the tensor", origin,
            printable(t.path));
    covered += elements(boxes[i]->count);
    for (std::size_t j = 0; j < i; ++j) require(!common(*boxes[i], *boxes[j]), Exit::data, "{}: two boxes of {} overlap", origin, printable(t.path));
  }
  require(covered == elements(t.shape), Exit::data, "{}: {} of the {} elements of {} are in no file", origin, elements(t.shape) - covered,
          elements(t.shape), printable(t.path));
}

void check_boxes(const Manifest& m, const std::string& origin) {
  std::vector<std::vector<const Box*>> boxes(m.tensors.size());
  for (const ManifestFile& f : m.files)
    for (const StoredBox& b : f.boxes) {
      require(b.tensor < m.tensors.size(), Exit::data, "{}: {} contains a tensor that is not listed", origin, f.name);
      boxes[b.tensor].push_back(&b.box);
    }
  for (std::size_t t = 0; t < boxes.size(); ++t) check_cover(m.tensors[t], boxes[t], origin);
}

Json json_of(const Manifest& m) {
  const CheckpointHeader& h = m.header;
  Json tensors = Json::array(), files = Json::array();
  for (const StoredTensor& t : m.tensors)
    tensors.push_back({{"path", t.path},
                       {"hf_name", t.hf_name},
                       {"long_name", t.long_name},
                       {"dtype", name_of(t.dtype)},
                       {"dtype_semantic", t.meaning},
                       {"shape", t.shape}});
  for (const ManifestFile& f : m.files) files.push_back(json_of(f));
  Json j{{"format", checkpoint_format},
         {"format_version", checkpoint_version},
         {"writer", h.writer},
         {"created_utc", h.created},
         {"run", h.run},
         {"step", h.step},
         {"samples_seen", h.samples},
         {"tokens_seen", h.tokens},
         {"seed", h.seed},
         {"precision", h.precision},
         {"world", h.world},
         {"layout", h.layout},
         {"deck_xxh3", hex(checksum(h.deck.data(), Index(h.deck.size())))},
         {"deck", h.deck},
         {"provenance", h.provenance},
         {"tensors", tensors},
         {"files", files}};
  if (!h.companions.empty()) j["companions"] = h.companions;
  if (m.index) j["index"] = json_of(*m.index);
  return j;
}

CheckpointHeader header_of(const Json& j) {
  CheckpointHeader h;
  h.version = j.at("format_version");
  h.writer = j.at("writer"), h.created = j.at("created_utc");
  h.step = j.at("step"), h.samples = j.at("samples_seen"), h.tokens = j.at("tokens_seen"), h.seed = j.at("seed");
  h.precision = j.at("precision"), h.world = j.at("world"), h.layout = j.at("layout");
  h.deck = j.at("deck"), h.provenance = j.at("provenance"), h.run = j.value("run", "");
  if (j.contains("companions")) h.companions = j.at("companions").get<std::map<std::string, std::string>>();
  return h;
}

// JSON text of the manifest, after checking the text around it and its checksum.
std::string_view body_of(std::string_view text, const std::string& origin) {
  constexpr std::size_t digits = 16, frame = before_sum.size() + digits + before_manifest.size();
  const bool framed = text.size() > frame + after_manifest.size() && text.starts_with(before_sum) &&
                      text.substr(before_sum.size() + digits).starts_with(before_manifest) && text.ends_with(after_manifest);
  require(framed, Exit::data, "{}: is not a complete manifest", origin);
  const std::string_view body = text.substr(frame, text.size() - frame - after_manifest.size());
  const bool right = hex(checksum(body.data(), Index(body.size()))) == text.substr(before_sum.size(), digits);
  require(right, Exit::data, "{}: does not match its checksum: it is damaged", origin);
  return body;
}

// Missing or mistyped JSON fields are reported as damage, too (Exit::data).
template <class Read>
auto reading(const std::string& text, const std::string& origin, Read&& read) {
  try {
    return read(Json::parse(text));
  } catch (const Json::exception& error) {
    fail(Exit::data, "{}: {}", origin, printable(error.what()));
  }
}

}  // namespace

StoredTensor stored_tensor(Content content, const std::string& weight_name, DType dtype, const Shape& shape) {
  return {path_of(content, weight_name), weight_name, fmt::format("{} of {}", name_of(content), weight_name), dtype, shape,
          std::string(name_of(dtype))};
}

Index Manifest::bytes() const {
  Index sum = 0;
  for (const StoredTensor& t : tensors) sum += elements(t.shape) * size_of(t.dtype);
  return sum;
}

std::string text_of(const ManifestFile& f) { return json_text(json_of(f)); }

ManifestFile manifest_file(const std::string& json, const std::string& origin) {
  return reading(json, origin, [&](const Json& j) { return file_of(j, origin); });
}

std::string text_of(const Manifest& m) {
  const std::string body = json_text(json_of(m), 1);
  std::string text(before_sum);
  text += hex(checksum(body.data(), Index(body.size())));
  return text.append(before_manifest).append(body).append(after_manifest);
}

Manifest manifest_of(const std::string& text, const std::string& origin) {
  return reading(std::string(body_of(text, origin)), origin, [&](const Json& j) {
    require(j.at("format") == checkpoint_format, Exit::data, "{}: is not the manifest of a gyrfalcon checkpoint", origin);
    const std::string version = j.at("format_version");
    require(version.substr(0, version.find('.')) == "2", Exit::data,
            "{}: has format version {}, and this program reads 1.x and 2.x; use a newer gyrfalcon", origin, printable(version));
    Manifest m;
    m.header = header_of(j);
    for (const Json& t : j.at("tensors")) m.tensors.push_back(tensor_of(t, origin));
    for (const Json& f : j.at("files")) m.files.push_back(file_of(f, origin));
    if (j.contains("index")) m.index = file_of(j.at("index"), origin);
    check_header(m.header, origin);
    check_boxes(m, origin);
    return m;
  });
}

}  // namespace gyr
