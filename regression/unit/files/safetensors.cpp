// SPDX-License-Identifier: BSD-3-Clause
// safetensors files are read back bit for bit, also parts of a tensor. An invalid header is refused before any data is
// read.
#include "src/huggingface/safetensors.hpp"

#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>

#include <numeric>
#include <random>

#include "regression/support/folder.hpp"
#include "regression/support/testing.hpp"
#include "src/huggingface/half.hpp"

namespace gyr::testing::safetensors_suite {
namespace {

namespace fs = std::filesystem;
using safetensors::Reader;
using safetensors::Tensor;
using safetensors::Type;
using safetensors::Writer;

// Contents of a file with this JSON header and `data` bytes of data.
std::string file_of(const std::string& json, std::size_t data) {
  const std::uint64_t length = json.size();
  return std::string(reinterpret_cast<const char*>(&length), 8) + json + std::string(data, 'x');
}
std::string entry(const std::string& name, const std::string& type, const std::string& shape, const std::string& offsets) {
  return fmt::format(R"("{}":{{"dtype":"{}","shape":{},"data_offsets":{}}})", name, type, shape, offsets);
}

void expect_refused(const std::string& file, const std::string& why) {
  const Error error = error_of([&] { safetensors::read_header(file, "a.safetensors"); });
  EXPECT_EQ(error.code, Exit::data) << error.what();
  EXPECT_NE(std::string(error.what()).find(why), std::string::npos) << error.what() << "\n  the error should contain: " << why;
  EXPECT_EQ(std::string(error.what()).rfind("a.safetensors: ", 0), 0u) << error.what();
  EXPECT_LT(std::string(error.what()).size(), 400u) << error.what();
}

TEST(safetensors, written_tensors_are_read_back_exactly) {
  const Folder folder;
  std::vector<Tensor> tensors{{"b", Type::f32, {3, 5}}, {"none", Type::f64, {4, 0, 2}}, {"scalar", Type::bf16, {}}, {"a", Type::u8, {7}}};
  std::string data;
  for (int i = 0; i < 60 + 2 + 7; ++i) data += char(i * 37 + 11);
  {
    Writer writer(folder / "x.safetensors", tensors);
    EXPECT_FALSE(fs::exists(folder / "x.safetensors"));
    for (std::size_t i = 0; i < data.size(); i += 13) writer.write(data.data() + i, Index(std::min<std::size_t>(13, data.size() - i)));
    writer.commit();
  }
  const Reader reader(folder / "x.safetensors");
  EXPECT_EQ(reader.metadata(), (std::map<std::string, std::string>{{"format", "pt"}}));
  ASSERT_EQ(reader.tensors().size(), 4u);
  std::string back;
  for (const Tensor& t : reader.tensors()) {
    const auto same = std::find_if(tensors.begin(), tensors.end(), [&](const Tensor& other) { return other.name == t.name; });
    ASSERT_NE(same, tensors.end());
    EXPECT_EQ(t.shape, same->shape);
    EXPECT_EQ(t.type, same->type);
    std::string bytes(std::size_t(t.end - t.begin), '\0');
    reader.read(t, full_box(t.shape), bytes.data(), t.shape, full_box(t.shape));
    back += bytes;
  }
  EXPECT_EQ(back, data);
  EXPECT_EQ(reader.bytes_read(), Index(data.size()));
  std::uint64_t length = 0;
  std::memcpy(&length, contents(folder / "x.safetensors").data(), 8);
  EXPECT_EQ(length % 8, 0u);
}

TEST(safetensors, reader_reads_only_the_requested_box) {
  const Folder folder;
  const Shape shape{70, 5, 31};
  std::vector<float> values(std::size_t(elements(shape)));
  std::iota(values.begin(), values.end(), 0.f);
  {
    Writer writer(folder / "x", {{"before", Type::u8, {8}}, {"x", Type::f32, shape}});
    writer.write("beforeit", 8);
    writer.write(values.data(), Index(values.size() * 4));
    writer.commit();
  }
  const Shape array{60, 6, 40};
  for (const auto& [box, there] : std::vector<std::pair<Box, Box>>{{{{50, 2, 7}, {10, 3, 11}}, {{10, 1, 20}, {10, 3, 11}}},
                                                                   {{{3, 0, 0}, {9, 5, 31}}, {{1, 1, 2}, {9, 5, 31}}},
                                                                   {{{0, 4, 30}, {1, 1, 1}}, {{59, 5, 39}, {1, 1, 1}}},
                                                                   {{{0, 4, 30}, {1, 0, 1}}, {{59, 5, 39}, {1, 0, 1}}}}) {
    const Reader reader(folder / "x");
    std::vector<float> part(std::size_t(elements(array)), -1);
    reader.read(reader.tensors().at(1), box, part.data(), array, there);
    EXPECT_EQ(reader.bytes_read(), 4 * elements(box.count));
    for (Index i = 0; i < array[0]; ++i)
      for (Index j = 0; j < array[1]; ++j)
        for (Index k = 0; k < array[2]; ++k) {
          const Index at[] = {i - there.first[0], j - there.first[1], k - there.first[2]};
          bool in = true;
          for (int d = 0; d < 3; ++d) in = in && at[d] >= 0 && at[d] < box.count[d];
          const float wanted = in ? values[std::size_t(((at[0] + box.first[0]) * 5 + at[1] + box.first[1]) * 31 + at[2] + box.first[2])] : -1;
          ASSERT_EQ(part[std::size_t((i * array[1] + j) * array[2] + k)], wanted) << i << " " << j << " " << k;
        }
  }
  const Reader reader(folder / "x");
  std::vector<float> part(4);
  const auto outside = [&](Box box) {
    return error_of([&] { reader.read(reader.tensors().at(1), box, part.data(), box.count, full_box(box.count)); }).code;
  };
  EXPECT_EQ(outside({{70, 0, 0}, {1, 1, 1}}), Exit::internal);
  EXPECT_EQ(outside({{-1, 0, 0}, {1, 1, 1}}), Exit::internal);
}

TEST(safetensors, padded_or_reordered_headers_are_read) {
  const std::string a = entry("a", "F32", "[2]", "[4,12]"), b = entry("b", "I16", "[2]", "[0,4]");
  const auto header = safetensors::read_header(file_of("{" + a + "," + b + "}        ", 12), "x");
  ASSERT_EQ(header.tensors.size(), 2u);
  EXPECT_EQ(header.tensors[0].name, "b");
  EXPECT_EQ(header.tensors[1].begin, 4);
  EXPECT_TRUE(safetensors::read_header(file_of("{}", 0), "x").tensors.empty());
  EXPECT_EQ(safetensors::read_header(file_of(R"({"__metadata__":{"k":"v","\u00e9":""}})", 0), "x").metadata.size(), 2u);
  for (const char* type : {"BOOL", "U8", "I8", "F8_E5M2", "F8_E4M3"})
    EXPECT_FALSE(
        safetensors::is_weight_type(safetensors::read_header(file_of("{" + entry("a", type, "[3]", "[0,3]") + "}", 3), "x").tensors[0].type));
  for (const char* type : {"F16", "BF16"})
    EXPECT_TRUE(safetensors::is_weight_type(safetensors::read_header(file_of("{" + entry("a", type, "[3]", "[0,6]") + "}", 6), "x").tensors[0].type));
}

TEST(safetensors, wrong_header_length_is_refused_before_allocation) {
  expect_refused("", "it has 0 bytes");
  expect_refused("1234567", "it has 7 bytes");
  for (const std::uint64_t length : {std::uint64_t(100'000'001), ~std::uint64_t(0), std::uint64_t(1) << 63, ~std::uint64_t(0) - 7})
    expect_refused(std::string(reinterpret_cast<const char*>(&length), 8) + "{}", "the maximum is");
  const std::uint64_t beyond = 3;
  expect_refused(std::string(reinterpret_cast<const char*>(&beyond), 8) + "{}", "cut short");
  expect_refused(file_of("", 4), "does not begin with");
  expect_refused(file_of(" {}", 0), "does not begin with");
  expect_refused(file_of("\xef\xbb\xbf{}", 0), "does not begin with");
  expect_refused(file_of("[]", 0), "does not begin with");
}

TEST(safetensors, other_file_formats_are_recognized_and_named) {
  expect_refused("version https://git-lfs.github.com/spec/v1\noid sha256:4d7a\nsize 3087467144\n", "pointer of Git LFS");
  expect_refused("<!DOCTYPE html>\n<html>\n", "is a web page");
  expect_refused(std::string("PK\x03\x04\x00\x00\x08\x08", 8) + std::string(40, 'x'), "torch.save");
  expect_refused("GGUF\x03" + std::string(40, '\1'), "GGUF");
}

TEST(safetensors, invalid_header_json_is_refused) {
  expect_refused(file_of("{", 0), "not valid JSON");
  expect_refused(file_of("{} {}", 0), "not valid JSON");
  expect_refused(file_of(std::string("{}\0", 3), 0), "not valid JSON");
  expect_refused(file_of("{\"\xff\":{}}", 0), "not valid JSON");
  expect_refused(file_of(R"({"a":1})", 0), "is not allowed in a safetensors header");
  expect_refused(file_of(R"({"a":null})", 0), "is not allowed in a safetensors header");
  expect_refused(file_of(R"({"a":[1]})", 0), "is not allowed in a safetensors header");
  expect_refused(file_of(R"({"a":{}})", 0), "needs dtype, shape and data_offsets");
  expect_refused(file_of(R"({"a":{"dtype":"F32","shape":[0]}})", 0), "needs dtype");
  expect_refused(file_of(R"({"a":{"dtype":"F32","shape":[0],"data_offsets":[0,0],"stride":[1]}})", 0), "unknown field `stride`");
  expect_refused(file_of(R"({"a":{"dtype":"F32","dtype":"F32","shape":[0],"data_offsets":[0,0]}})", 0), "a field twice");
  expect_refused(file_of(R"({"a":{"shape":[0],"shape":[0]}})", 0), "a field twice");
  expect_refused(file_of(R"({"a":{"dtype":["F32"]}})", 0), "is not allowed in a safetensors header");
  expect_refused(file_of(R"({"a":{"dtype":4}})", 0), "is not allowed in a safetensors header");
  expect_refused(file_of(R"({"a":{"shape":4}})", 0), "is not allowed in a safetensors header");
  expect_refused(file_of(R"({"a":{"shape":[[1]]}})", 0), "is not allowed in a safetensors header");
  expect_refused(file_of(R"({"a":{"shape":{"x":1}}})", 0), "is not allowed in a safetensors header");
  expect_refused(file_of(R"({"__metadata__":{"k":1}})", 0), "is not allowed in a safetensors header");
  expect_refused(file_of(R"({"__metadata__":{"k":{"l":"m"}}})", 0), "is not allowed in a safetensors header");
  expect_refused(file_of(R"({"__metadata__":{"k":"a","k":"b"}})", 0), "twice");
  expect_refused(file_of(R"({"__metadata__":{},"__metadata__":{}})", 0), "twice");
  std::string deep = "{\"a\":";
  for (int i = 0; i < 100000; ++i) deep += "[";
  expect_refused(file_of(deep, 0), "is not allowed in a safetensors header");
}

TEST(safetensors, invalid_shapes_and_offsets_are_refused) {
  const auto with = [](const std::string& shape, const std::string& offsets) { return file_of("{" + entry("a", "F32", shape, offsets) + "}", 8); };
  expect_refused(with("[-2]", "[0,8]"), "a negative number");
  expect_refused(with("[2.0]", "[0,8]"), "not a 64-bit integer");
  expect_refused(with("[2e0]", "[0,8]"), "not a 64-bit integer");
  expect_refused(with("[true]", "[0,8]"), "true or false");
  expect_refused(with("[18446744073709551616]", "[0,8]"), "not a 64-bit integer");
  expect_refused(with("[18446744073709551615]", "[0,8]"), "beyond 63 bits");
  expect_refused(with("[4294967296,4294967296]", "[0,8]"), "beyond 63 bits");
  expect_refused(with("[4611686018427387904,1]", "[0,8]"), "beyond 63 bits");
  expect_refused(with("[9223372036854775807,9223372036854775807,0]", "[0,8]"), "beyond 63 bits");
  expect_refused(with("[1,1,1,1,1,1,1,1,2]", "[0,8]"), "too many numbers");
  expect_refused(with("[2]", "[0,8,8]"), "too many numbers");
  expect_refused(with("[2]", "[8]"), "not [begin, end]");
  expect_refused(with("[2]", "[8,0]"), "not [begin, end]");
  expect_refused(with("[3]", "[0,8]"), "12 bytes by dtype and shape, but 8");
  expect_refused(file_of("{" + entry("a", "F31", "[2]", "[0,8]") + "}", 8), "unknown dtype \"F31\"");
  expect_refused(file_of("{" + entry("a", "f32", "[2]", "[0,8]") + "}", 8), "unknown dtype");
}

TEST(safetensors, tensors_must_cover_the_data_exactly) {
  const std::string a = entry("a", "F32", "[2]", "[0,8]");
  const auto two = [&](const std::string& offsets, std::size_t data) {
    return file_of("{" + a + "," + entry("b", "F32", "[2]", offsets) + "}", data);
  };
  EXPECT_EQ(safetensors::read_header(two("[8,16]", 16), "x").tensors.size(), 2u);
  expect_refused(two("[4,12]", 16), "overlap");
  expect_refused(two("[0,8]", 8), "overlap");
  expect_refused(two("[12,20]", 20), "leave a hole");
  expect_refused(two("[8,16]", 17), "the file has 17 bytes of data");
  expect_refused(two("[8,16]", 15), "it was cut short");
  expect_refused(file_of("{" + entry("a", "F32", "[2]", "[4,12]") + "}", 12), "leave a hole");
  expect_refused(file_of("{}", 1), "the file has 1 bytes of data");
  expect_refused(file_of("{" + a + "," + a + "}", 8), "occurs twice");
  expect_refused(file_of("{" + entry("z", "F32", "[0]", "[8,8]") + "," + entry("z", "F32", "[2]", "[0,8]") + "}", 8), "occurs twice");
  expect_refused(file_of("{" + entry("z", "F32", "[0]", "[4,4]") + "," + a + "}", 8), "overlap");  // inside another tensor
}

TEST(safetensors, messages_shorten_and_escape_tensor_names) {
  expect_refused(file_of("{" + entry(std::string(65536, 'n'), "F32", "[2]", "[0,4]") + "}", 4), "nnn...");
  const Error error = error_of([&] { safetensors::read_header(file_of("{" + entry("a\\nb\\u001b[2J", "F32", "[2]", "[0,4]") + "}", 4), "x"); });
  EXPECT_EQ(std::string(error.what()).find_first_of("\n\x1b"), std::string::npos) << error.what();
}

TEST(safetensors, too_many_tensors_are_refused) {
  std::string json = "{";
  for (int i = 0; i < 1'000'001; ++i) fmt::format_to(std::back_inserter(json), R"("{}":{{"dtype":"U8","shape":[0],"data_offsets":[0,0]}},)", i);
  json.back() = '}';
  expect_refused(file_of(json, 0), "more than 1000000 tensors");
}

TEST(safetensors, unreadable_files_are_reported) {
  const Folder folder;
  EXPECT_EQ(error_of([&] { Reader reader(folder / "absent"); }).code, Exit::missing);
  EXPECT_EQ(error_of([&] { Reader reader(folder.path()); }).code, Exit::data);
  const fs::path pipe = folder / "pipe";
  ASSERT_EQ(mkfifo(pipe.c_str(), 0600), 0);
  const Error error = error_of([&] { Reader reader(pipe); });
  EXPECT_EQ(error.code, Exit::data);
  EXPECT_NE(std::string(error.what()).find("not a regular file"), std::string::npos);
}

TEST(safetensors, file_that_shrinks_during_read_is_an_error) {
  const Folder folder;
  const fs::path path = folder.write("x", file_of("{" + entry("a", "F32", "[200]", "[0,800]") + "}", 800));
  const Reader reader(path);
  fs::resize_file(path, fs::file_size(path) - 400);
  std::vector<float> data(200);
  EXPECT_EQ(error_of([&] { reader.read(reader.tensors()[0], full_box({200}), data.data(), {200}, full_box({200})); }).code, Exit::io);
}

// A damaged file must give either an Error or a header that follows the rules.
TEST(safetensors, damaged_files_give_errors_or_valid_headers) {
  std::string good = "{\"__metadata__\":{\"format\":\"pt\"}";
  Index end = 0;
  for (int i = 0; i < 6; ++i, end += 24)
    good += "," + entry(fmt::format("model.layers.{}.w", i), "BF16", "[3,4]", fmt::format("[{},{}]", end, end + 24));
  good = file_of(good + "}  ", std::size_t(end));
  ASSERT_EQ(safetensors::read_header(good, "x").tensors.size(), 6u);
  std::mt19937 random(1);
  const std::string alphabet = "0123456789{}[],:\"-.eE \\uFBn\n\xff";
  int accepted = 0;
  for (int trial = 0; trial < 10000; ++trial) {
    std::string bad = good;
    for (unsigned n = 1 + random() % 4; n > 0; --n) {
      const std::size_t at = random() % bad.size();
      switch (random() % 5) {
        case 0: bad[at] = char(random()); break;
        case 1: bad[at] = alphabet[random() % alphabet.size()]; break;
        case 2: bad.erase(at, 1 + random() % 20); break;
        case 3: bad.insert(at, bad.substr(random() % bad.size(), random() % 40)); break;
        default: bad.resize(at + 1);
      }
    }
    try {
      const auto header = safetensors::read_header(bad, "x");
      ++accepted;
      Index covered = header.data_begin;
      for (const Tensor& t : header.tensors) {
        EXPECT_EQ(t.end - t.begin, elements(t.shape) * safetensors::size_of(t.type));
        covered += t.end - t.begin;
      }
      EXPECT_EQ(covered, Index(bad.size()));
    } catch (const Error& error) {
      EXPECT_EQ(error.code, Exit::data) << error.what();
    }
  }
  EXPECT_GT(accepted, 0);  // damage to a letter of a name or to a byte of data is accepted
  EXPECT_LT(accepted, 5000);
}

TEST(safetensors, unfinished_file_is_removed) {
  const Folder folder;
  {
    Writer writer(folder / "x", {{"a", Type::f32, {4}}});
    writer.write("12345678", 8);
    EXPECT_EQ(error_of([&] { writer.commit(); }).code, Exit::internal);
  }
  EXPECT_EQ(folder.files(), 0u);
  signal(SIGXFSZ, SIG_IGN);
  rlimit before;
  getrlimit(RLIMIT_FSIZE, &before);
  const rlimit full{1 << 20, before.rlim_max};
  setrlimit(RLIMIT_FSIZE, &full);
  const Error error = error_of([&] {
    const std::vector<float> data(1 << 20);
    Writer writer(folder / "x", {{"a", Type::f32, {1 << 20}}});
    writer.write(data.data(), 4 << 20);
    writer.commit();
  });
  setrlimit(RLIMIT_FSIZE, &before);
  signal(SIGXFSZ, SIG_DFL);
  EXPECT_EQ(error.code, Exit::io) << error.what();
  EXPECT_EQ(folder.files(), 0u);
}

TEST(safetensors, half_precision_is_widened_and_narrowed_exactly) {
  for (std::uint32_t bits = 0; bits < 65536; ++bits) {
    const float x = half_to_float(std::uint16_t(bits));
    if ((bits & 0x7c00u) == 0x7c00u && (bits & 0x3ffu) != 0) {
      EXPECT_TRUE(std::isnan(x));
      EXPECT_TRUE(std::isnan(half_to_float(float_to_half(x))));
      EXPECT_EQ(float_to_half(x) | 0x200u, bits | 0x200u);
    } else {
      ASSERT_EQ(float_to_half(x), bits) << x;
      // The midpoint of two neighbours is rounded to the even one. A value just off the midpoint is rounded to the
      // nearer one.
      const float next = half_to_float(std::uint16_t(bits + 1));
      if (!std::isfinite(x) || !std::isfinite(next) || (bits & 0x7fffu) == 0x7fffu) continue;
      const float middle = (x + next) / 2;
      ASSERT_EQ(float_to_half(middle), bits & 1 ? bits + 1 : bits) << x;
      ASSERT_EQ(float_to_half(std::nextafter(middle, next)), bits + 1);
      ASSERT_EQ(float_to_half(std::nextafter(middle, x)), bits);
    }
  }
  EXPECT_EQ(half_to_float(0x3c00), 1.f);
  EXPECT_EQ(half_to_float(0xfbff), -65504.f);
  EXPECT_EQ(half_to_float(1), 0x1p-24f);
  EXPECT_EQ(float_to_half(65520.f), 0x7c00);
  EXPECT_EQ(float_to_half(65519.f), 0x7bff);
  EXPECT_EQ(float_to_half(0x1p-25f), 0);
  EXPECT_EQ(float_to_half(0x1.8p-25f), 1);
}

}  // namespace
}  // namespace gyr::testing::safetensors_suite
