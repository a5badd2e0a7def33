// SPDX-License-Identifier: BSD-3-Clause
#include "src/media/processor/processor.hpp"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>

#include "kernels/base/error.hpp"
#include "kernels/base/printable.hpp"
#include "src/huggingface/json.hpp"

namespace gyr::media {

namespace {

using json = nlohmann::json;

constexpr Index most_side = 16'384, most_native_pixels = 89'478'485;
constexpr std::size_t most_config_bytes = std::size_t(1) << 20;

// Reads keys of an object and remembers them, so that the remaining ones can be refused.
class KeyReader {
 public:
  KeyReader(const json& object, std::string origin) : object_(object), origin_(std::move(origin)) {
    require(object.is_object(), Exit::data, "{}: is not a JSON object", origin_);
  }

  // The value; null if the key is missing.
  const json& value(const std::string& key) {
    static const json none;
    known_.insert(key);
    const auto found = object_.find(key);
    return found == object_.end() ? none : *found;
  }
  void ignore(std::initializer_list<const char*> keys) { known_.insert(keys.begin(), keys.end()); }
  // A key that must have this value if it is given.
  void expect(const std::string& key, const json& only) {
    const json& x = value(key);
    demand(x.is_null() || x == only, key, fmt::format("is {}; only {} is supported", shown(x), only.dump()));
  }
  bool flag(const std::string& key, bool otherwise) {
    const json& x = value(key);
    demand(x.is_null() || x.is_boolean(), key, fmt::format("is {}, which is not true or false", shown(x)));
    return x.is_null() ? otherwise : x.get<bool>();
  }
  Index integer(const json& x, const std::string& key, Index least, Index most) const {
    demand(x.is_number_integer() && x >= least && x <= most, key, fmt::format("is {}; it must be an integer from {} to {}", shown(x), least, most));
    return x.get<Index>();
  }
  Index integer_or(const std::string& key, Index otherwise, Index least, Index most) {
    const json& x = value(key);
    return x.is_null() ? otherwise : integer(x, key, least, most);
  }
  // `key`.`part`, which must exist.
  Index part(const std::string& key, const char* part, Index least, Index most) {
    const json& x = value(key);
    demand(x.is_object() && x.contains(part), key, fmt::format("is {}; it must be an object with the key {}", shown(x), part));
    return integer(x[part], key + "." + part, least, most);
  }
  // True if `key` is an object with exactly these keys.
  bool has_parts(const std::string& key, const std::set<std::string>& parts) {
    const json& x = value(key);
    std::set<std::string> found;
    if (x.is_object())
      for (const auto& [name, part] : x.items()) found.insert(name);
    return found == parts;
  }
  void demand(bool condition, const std::string& key, const std::string& problem) const {
    require(condition, Exit::data, "{}: {}: {}", origin_, key, problem);
  }
  void refuse_others() const {
    for (const auto& [key, value] : object_.items())
      require(known_.contains(key), Exit::data, "{}: {}: this key is not known for this class; remove it if it has no effect", origin_,
              printable_line(key));
  }
  static std::string shown(const json& x) { return printable_line(x.dump(-1, ' ', false, json::error_handler_t::replace)); }
  const std::string& origin() const { return origin_; }

 private:
  const json& object_;
  const std::string origin_;
  std::set<std::string> known_;
};

struct ProcessorClass {
  const char* name;
  void (*read)(KeyReader&, Processor&);
};

void read_filter(KeyReader& r, Processor& p, Filter otherwise) { p.filter = Filter(r.integer_or("resample", Index(otherwise), 1, 5)); }

void read_channels(KeyReader& r, const char* key, std::array<double, 3>& channels, const std::array<double, 3>& otherwise) {
  const json& x = r.value(key);
  channels = otherwise;
  if (x.is_null()) return;
  r.demand(x.is_array() && x.size() == 3, key, fmt::format("is {}; it must be a list of three numbers", KeyReader::shown(x)));
  for (std::size_t c = 0; c < 3; ++c) {
    const bool valid = x[c].is_number() && std::isfinite(x[c].get<double>()) && (key == std::string("image_mean") || x[c] > 0);
    r.demand(valid, key, fmt::format("is {}; it must be a list of three finite numbers, those of image_std above 0", KeyReader::shown(x)));
    channels[c] = x[c].get<double>();
  }
}

constexpr std::array<double, 3> clip_mean{0.48145466, 0.4578275, 0.40821073}, clip_std{0.26862954, 0.26130258, 0.27577711}, half{0.5, 0.5, 0.5};

void read_normalisation(KeyReader& r, Processor& p, const std::array<double, 3>& mean, const std::array<double, 3>& std) {
  read_channels(r, "image_mean", p.mean, mean), read_channels(r, "image_std", p.std, std);
  for (const char* key : {"do_resize", "do_rescale", "do_normalize"}) r.expect(key, true);
  const json& factor = r.value("rescale_factor");
  r.demand(factor.is_null() || (factor.is_number() && std::fabs(factor.get<double>() * 255 - 1) < 1e-6), "rescale_factor",
           fmt::format("is {}; only 1/255 is supported", KeyReader::shown(factor)));
}

// Size and central crop of classes that make one picture of a fixed size.
void read_fixed(KeyReader& r, Processor& p, const json& size, Index crop) {
  const json& given = r.value("size").is_null() ? size : r.value("size");
  if (given.is_number()) {
    p.shortest = r.integer(given, "size", 1, most_side);
  } else if (given.is_object() && given.contains("shortest_edge") && given.size() == 1) {
    p.shortest = r.integer(given["shortest_edge"], "size.shortest_edge", 1, most_side);
  } else {
    r.demand(given.is_object() && given.contains("height") && given.contains("width") && given.size() == 2, "size",
             fmt::format("is {}; it must have the keys height and width, or shortest_edge", KeyReader::shown(given)));
    p.height = r.integer(given["height"], "size.height", 1, most_side), p.width = r.integer(given["width"], "size.width", 1, most_side);
  }
  const json& area = r.value("crop_size");
  if (!r.flag("do_center_crop", crop > 0)) {
    r.demand(p.height > 0, "do_center_crop", "is false, so that pictures would have different widths; give size.height and size.width");
    return;
  }
  p.crop_height = p.crop_width = crop;
  if (area.is_number()) p.crop_height = p.crop_width = r.integer(area, "crop_size", 1, most_side);
  else if (!area.is_null()) p.crop_height = r.part("crop_size", "height", 1, most_side), p.crop_width = r.part("crop_size", "width", 1, most_side);
  r.demand(p.crop_height > 0, "crop_size", "is missing although do_center_crop is true");
}

void read_clip(KeyReader& r, Processor& p) {
  read_filter(r, p, Filter::bicubic);
  read_normalisation(r, p, clip_mean, clip_std);
  read_fixed(r, p, {{"shortest_edge", 224}}, 224);
}

void read_siglip(KeyReader& r, Processor& p) {
  read_filter(r, p, Filter::bicubic);
  read_normalisation(r, p, half, half);
  read_fixed(r, p, {{"height", 224}, {"width", 224}}, 0);
}

void read_gemma(KeyReader& r, Processor& p) {
  read_filter(r, p, Filter::bilinear);
  read_normalisation(r, p, half, half);
  read_fixed(r, p, {{"height", 224}, {"width", 224}}, 0);
  r.expect("do_pan_and_scan", false);
  r.ignore({"image_seq_length", "pan_and_scan_min_crop_size", "pan_and_scan_max_num_crops", "pan_and_scan_min_ratio_to_activate"});
}

void read_tiles(KeyReader& r, Processor& p) {
  p.geometry = Processor::Geometry::tiles;
  read_filter(r, p, Filter::lanczos);
  read_normalisation(r, p, half, half);
  p.split = r.flag("do_image_splitting", true);
  p.longest = r.value("size").is_null() ? 4 * 364 : r.part("size", "longest_edge", 1, most_side);
  p.tile = r.value("max_image_size").is_null() ? 364 : r.part("max_image_size", "longest_edge", 1, most_side);
  r.ignore({"do_pad", "image_seq_len", "video_sampling", "return_row_col_info"});
}

void read_native(KeyReader& r, Processor& p) {
  p.geometry = Processor::Geometry::native;
  read_filter(r, p, Filter::bicubic);
  read_normalisation(r, p, clip_mean, clip_std);
  p.patch = r.integer_or("patch_size", 14, 1, 1024), p.merge = r.integer_or("merge_size", 2, 1, 64);
  p.least_pixels = 56 * 56, p.most_pixels = 28 * 28 * 1280;
  if (!r.value("size").is_null()) {
    r.demand(r.has_parts("size", {"shortest_edge", "longest_edge"}), "size",
             fmt::format("is {}; it must have the keys shortest_edge and longest_edge, which count pixels", KeyReader::shown(r.value("size"))));
    p.least_pixels = r.part("size", "shortest_edge", 1, most_native_pixels), p.most_pixels = r.part("size", "longest_edge", 1, most_native_pixels);
  }
  p.least_pixels = r.integer_or("min_pixels", p.least_pixels, 1, most_native_pixels);
  p.most_pixels = r.integer_or("max_pixels", p.most_pixels, 1, most_native_pixels);
  const Index cell = p.patch * p.merge;
  r.demand(
      p.least_pixels <= p.most_pixels && p.most_pixels >= cell * cell, "max_pixels",
      fmt::format("is {}; it must be at least min_pixels ({}) and (patch_size * merge_size)^2 ({})", p.most_pixels, p.least_pixels, cell * cell));
  r.ignore({"temporal_patch_size"});
}

constexpr ProcessorClass classes[] = {
    {"CLIPImageProcessor", read_clip},         {"SiglipImageProcessor", read_siglip}, {"Gemma3ImageProcessor", read_gemma},
    {"Idefics3ImageProcessor", read_tiles},    {"SmolVLMImageProcessor", read_tiles}, {"Qwen2VLImageProcessor", read_native},
    {"Qwen2_5_VLImageProcessor", read_native},
};

// Name of the class without the suffix of its implementation.
std::string class_in(KeyReader& r) {
  const json& type = r.value("image_processor_type");
  const json& given = type.is_null() ? r.value("feature_extractor_type") : type;
  r.demand(given.is_string(), "image_processor_type", "is missing or not a string; it names the class of the image processor");
  std::string name = given.get<std::string>();
  for (const std::string suffix : {"Fast", "Pil"})
    if (name.ends_with(suffix)) name.resize(name.size() - suffix.size());
  return name == "CLIPFeatureExtractor" ? "CLIPImageProcessor" : name;
}

}  // namespace

Processor parse_processor(const std::string& text, const std::string& origin) {
  const json config = parse_json(text, origin);
  KeyReader r(config, origin);
  Processor p;
  p.type = class_in(r);
  std::string names;
  for (const ProcessorClass& c : classes) names += std::string(names.empty() ? "" : ", ") + c.name;
  const auto* const found = std::find_if(std::begin(classes), std::end(classes), [&](const ProcessorClass& c) { return c.name == p.type; });
  r.demand(found != std::end(classes), "image_processor_type",
           fmt::format("is \"{}\", which is not supported; the supported classes are {}", printable_line(p.type), names));
  found->read(r, p);
  // Keys without effect on the pixels: every file is converted to RGB, and the other keys describe the layout in memory.
  r.ignore({"image_processor_type", "feature_extractor_type", "processor_class", "do_convert_rgb", "default_to_square", "data_format",
            "input_data_format", "return_tensors", "device", "disable_grouping", "_valid_processor_keys", "use_square_size"});
  for (const char* key : {"do_center_crop", "do_pad"}) r.value(key);
  r.refuse_others();
  return p;
}

Processor read_processor(const std::filesystem::path& path) {
  std::error_code error;
  const std::filesystem::path file = std::filesystem::is_directory(path, error) ? path / "preprocessor_config.json" : path;
  return parse_processor(read_text(file.string(), most_config_bytes), file.string());
}

std::string Processor::json() const {
  const nlohmann::json settings{{"image_processor_type", type},
                                {"geometry", geometry == Geometry::fixed   ? "fixed"
                                             : geometry == Geometry::tiles ? "tiles"
                                                                           : "native"},
                                {"resample", int(filter)},
                                {"height", height},
                                {"width", width},
                                {"shortest_edge", shortest},
                                {"crop_height", crop_height},
                                {"crop_width", crop_width},
                                {"longest_edge", longest},
                                {"tile", tile},
                                {"do_image_splitting", split},
                                {"patch_size", patch},
                                {"merge_size", merge},
                                {"min_pixels", least_pixels},
                                {"max_pixels", most_pixels},
                                {"image_mean", mean},
                                {"image_std", std}};
  return settings.dump();
}

}  // namespace gyr::media
