// SPDX-License-Identifier: BSD-3-Clause
#include "src/huggingface/safetensors_header.hpp"

#include <algorithm>
#include <array>
#include <cstring>
#include <limits>
#include <nlohmann/json.hpp>

#include "src/base/foreign_file.hpp"
#include "src/base/json_text.hpp"
#include "src/deck/yaml.hpp"

namespace gyr::safetensors {

static_assert(std::endian::native == std::endian::little, "elements are read in the file's byte order, little endian");

namespace {

constexpr Index longest_header = 100'000'000;  // maximum length of the header in bytes, a limit of the format
constexpr std::size_t most_tensors = 1'000'000, most_dimensions = 8;

struct TypeInfo {
  std::string_view name;
  Index size;
};
// In the order of the enum Type.
constexpr std::array<TypeInfo, 15> types{{{"BOOL", 1},
                                          {"F8_E5M2", 1},
                                          {"F8_E4M3", 1},
                                          {"U8", 1},
                                          {"I8", 1},
                                          {"I16", 2},
                                          {"U16", 2},
                                          {"I32", 4},
                                          {"U32", 4},
                                          {"I64", 8},
                                          {"U64", 8},
                                          {"F16", 2},
                                          {"BF16", 2},
                                          {"F32", 4},
                                          {"F64", 8}}};

// Builds the header while the JSON text is parsed, so that nothing outside of the format is ever stored.
class Builder : public nlohmann::json_sax<nlohmann::json> {
 public:
  explicit Builder(const std::string& origin) : origin_(origin) {}
  Header take() { return std::move(header_); }

  bool null() override { return unwanted("null"); }
  bool boolean(bool) override { return unwanted("true or false"); }
  bool number_integer(number_integer_t) override { return unwanted("a negative number"); }
  bool number_float(number_float_t, const string_t&) override { return unwanted("a number that is not a 64-bit integer"); }
  bool binary(binary_t&) override { return unwanted("binary data"); }
  bool number_unsigned(number_unsigned_t number) override {
    if (in_ != In::shape && in_ != In::offsets) return unwanted("a number");
    refuse_unless(number <= number_unsigned_t(std::numeric_limits<Index>::max()), "has a size or offset beyond 63 bits");
    std::vector<Index>& list = in_ == In::shape ? tensor_.shape : offsets_;
    refuse_unless(list.size() < (in_ == In::shape ? most_dimensions : 2), "has too many numbers in a list");
    list.push_back(Index(number));
    return true;
  }
  bool string(string_t& text) override {
    if (in_ == In::metadata) {
      require(header_.metadata.emplace(key_, text).second, Exit::data, "{}: __metadata__ has `{}` twice", origin_, shown(key_));
      return true;
    }
    if (in_ != In::tensor || key_ != "dtype") return unwanted("a string");
    const auto type = std::find_if(types.begin(), types.end(), [&](const TypeInfo& t) { return t.name == text; });
    refuse_unless(type != types.end(), fmt::format("has the unknown dtype \"{}\"", shown(text)));
    tensor_.type = Type(type - types.begin());
    return once(has_type_);
  }

  bool start_object(std::size_t) override {
    if (in_ == In::nothing) {
      in_ = In::file;
    } else if (in_ == In::file && key_ == "__metadata__") {
      require(!has_metadata_, Exit::data, "{}: __metadata__ occurs twice", origin_);
      has_metadata_ = true;
      in_ = In::metadata;
    } else if (in_ == In::file) {
      require(header_.tensors.size() < most_tensors, Exit::data, "{}: has more than {} tensors", origin_, most_tensors);
      tensor_ = Tensor();
      tensor_.name = key_;
      offsets_.clear();
      has_type_ = has_shape_ = has_offsets_ = false;
      in_ = In::tensor;
    } else {
      return unwanted("an object");
    }
    return true;
  }
  bool key(string_t& text) override {
    key_ = text;
    if (in_ == In::tensor)
      refuse_unless(key_ == "dtype" || key_ == "shape" || key_ == "data_offsets", fmt::format("has the unknown field `{}`", shown(key_)));
    return true;
  }
  bool end_object() override {
    if (in_ == In::tensor) {
      refuse_unless(has_type_ && has_shape_ && has_offsets_, "needs dtype, shape and data_offsets");
      finish_tensor();
    }
    in_ = in_ == In::file ? In::nothing : In::file;
    return true;
  }
  bool start_array(std::size_t) override {
    if (in_ != In::tensor || key_ == "dtype") return unwanted("a list");
    in_ = key_ == "shape" ? In::shape : In::offsets;
    return once(in_ == In::shape ? has_shape_ : has_offsets_);
  }
  bool end_array() override {
    in_ = In::tensor;
    return true;
  }
  bool parse_error(std::size_t at, const std::string&, const nlohmann::detail::exception&) override {
    fail(Exit::data, "{}: its header is not valid JSON at byte {}", origin_, Index(at) + length_bytes);
  }

 private:
  enum class In { nothing, file, metadata, tensor, shape, offsets };

  void refuse_unless(bool fine, std::string_view why) const { require(fine, Exit::data, "{}: tensor `{}` {}", origin_, shown(tensor_.name), why); }
  bool once(bool& seen) {
    refuse_unless(!seen, "has a field twice");
    return seen = true;
  }
  bool unwanted(std::string_view what) const {
    fail(Exit::data, "{}: {} at `{}` is not allowed in a safetensors header", origin_, what, shown(in_ == In::tensor ? tensor_.name : key_));
  }

  void finish_tensor() {
    refuse_unless(offsets_.size() == 2 && offsets_[0] <= offsets_[1], "has data_offsets that are not [begin, end]");
    Index bytes = size_of(tensor_.type);
    bool fits = true;
    for (const Index extent : tensor_.shape) fits = fits && !__builtin_mul_overflow(bytes, extent, &bytes);
    refuse_unless(fits, "has a shape whose size in bytes is beyond 63 bits");
    tensor_.begin = offsets_[0], tensor_.end = offsets_[1];
    refuse_unless(bytes == tensor_.end - tensor_.begin,
                  fmt::format("takes {} bytes by dtype and shape, but {} by data_offsets", bytes, tensor_.end - tensor_.begin));
    header_.tensors.push_back(std::move(tensor_));
  }

  const std::string& origin_;
  Header header_;
  In in_ = In::nothing;
  std::string key_;
  Tensor tensor_;
  std::vector<Index> offsets_;
  bool has_metadata_ = false, has_type_ = false, has_shape_ = false, has_offsets_ = false;
};

void check_names(const std::vector<Tensor>& tensors, const std::string& origin) {
  std::vector<std::string_view> names;
  names.reserve(tensors.size());
  for (const Tensor& t : tensors) names.push_back(t.name);
  std::sort(names.begin(), names.end());
  const auto twin = std::adjacent_find(names.begin(), names.end());
  require(twin == names.end(), Exit::data, "{}: tensor `{}` occurs twice", origin, twin == names.end() ? "" : shown(*twin));
}

void check_cover(const std::vector<Tensor>& tensors, Index data_bytes, const std::string& origin) {
  Index end = 0;
  for (const Tensor& t : tensors) {
    require(t.begin == end, Exit::data, "{}: data of tensor `{}` begins at {} where {} is expected: tensors {}", origin, shown(t.name), t.begin, end,
            t.begin < end ? "overlap" : "leave a hole");
    end = t.end;
  }
  require(end == data_bytes, Exit::data, "{}: the tensors take {} bytes, but the file has {} bytes of data{}", origin, end, data_bytes,
          end > data_bytes ? ": it was cut short; copy it again" : "");
}

}  // namespace

std::string_view name_of(Type type) { return types[std::size_t(type)].name; }
Index size_of(Type type) { return types[std::size_t(type)].size; }
bool is_weight_type(Type type) { return type >= Type::f16; }

Index header_length(std::string_view first, Index file_bytes, const std::string& origin) {
  require(file_bytes >= length_bytes && Index(first.size()) >= length_bytes, Exit::data, "{}: is not a safetensors file: it has {} bytes", origin,
          file_bytes);
  if (const auto foreign = foreign_file(first); !foreign.empty()) fail(Exit::data, "{}: {}", origin, foreign);
  std::uint64_t length = 0;
  std::memcpy(&length, first.data(), sizeof length);
  require(length <= std::uint64_t(longest_header), Exit::data, "{}: is not a safetensors file: its header would have {} bytes; the maximum is {}",
          origin, length, longest_header);
  require(Index(length) <= file_bytes - length_bytes, Exit::data, "{}: its header would have {} bytes, but the file has {}: it was cut short", origin,
          length, file_bytes);
  return Index(length);
}

Header parse_header(std::string_view json, Index file_bytes, const std::string& origin) {
  require(!json.empty() && json[0] == '{', Exit::data, "{}: is not a safetensors file: its header does not begin with '{{'", origin);
  const auto zero = zero_byte(json);
  require(!zero, Exit::data, "{}: its header is not valid JSON at byte {}", origin, Index(zero.value_or(0)) + length_bytes);
  Builder builder(origin);
  nlohmann::json::sax_parse(json, &builder);
  Header header = builder.take();
  header.data_begin = length_bytes + Index(json.size());
  check_names(header.tensors, origin);
  std::stable_sort(header.tensors.begin(), header.tensors.end(),
                   [](const Tensor& a, const Tensor& b) { return std::pair(a.begin, a.end) < std::pair(b.begin, b.end); });
  check_cover(header.tensors, file_bytes - header.data_begin, origin);
  return header;
}

Header read_header(std::string_view file, const std::string& origin) {
  const Index length = header_length(file.substr(0, length_bytes), Index(file.size()), origin);
  return parse_header(file.substr(length_bytes, std::size_t(length)), Index(file.size()), origin);
}

std::string write_header(Header& header) {
  nlohmann::ordered_json json;
  for (const auto& [key, value] : header.metadata) json["__metadata__"][key] = value;
  Index end = 0;
  for (Tensor& t : header.tensors) {
    t.begin = end;
    end += elements(t.shape) * size_of(t.type);
    t.end = end;
    json[t.name] = {{"dtype", name_of(t.type)}, {"shape", t.shape}, {"data_offsets", {t.begin, t.end}}};
  }
  std::string text = json.empty() ? "{}" : json.dump();
  text.append((8 - text.size() % 8) % 8, ' ');
  ensure(Index(text.size()) <= longest_header, "the safetensors header has {} bytes, more than the format allows", text.size());
  header.data_begin = length_bytes + Index(text.size());
  const std::uint64_t length = text.size();
  return std::string(reinterpret_cast<const char*>(&length), sizeof length) + text;
}

}  // namespace gyr::safetensors
