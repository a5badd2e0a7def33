// SPDX-License-Identifier: BSD-3-Clause
// HDF5 layer (src/hdf5): data that is written can be read back in any box, and every error names the file and the
// dataset.
#include "src/hdf5/file.hpp"

#include <numeric>
#include <random>
#include <thread>

#include "regression/support/file_size_limit.hpp"
#include "regression/support/folder.hpp"
#include "regression/support/testing.hpp"

namespace gyr::testing::hdf5_suite {
namespace {

using hdf5::File;

TEST(hdf5, any_box_of_a_dataset_reads_back) {
  const Folder folder;
  const Shape shape{700, 5, 301};  // 4 MiB in several chunks
  std::vector<float> values(elements(shape));
  std::iota(values.begin(), values.end(), 0.f);
  {
    File file = File::create(folder / "a.h5");
    auto dataset = file.create_dataset("/deep/down/x", DType::f32, shape);
    dataset.write_rows(0, 300, values.data());
    dataset.write_rows(300, 400, values.data() + 300 * 5 * 301);
    file.close();
  }
  const File file = File::open(folder / "a.h5");
  EXPECT_EQ(file.datasets(), std::vector<std::string>{"/deep/down/x"});
  const auto dataset = file.dataset("/deep/down/x");
  EXPECT_EQ(dataset.shape(), shape);
  EXPECT_EQ(dataset.dtype(), DType::f32);
  EXPECT_TRUE(dataset.checksummed());
  const Shape array{600, 4, 200};
  std::vector<float> part(elements(array), -1);
  dataset.read({{50, 2, 7}, {510, 3, 111}}, part.data(), array, {{10, 1, 30}, {510, 3, 111}});
  for (Index i = 0; i < 600; ++i)
    for (Index j = 0; j < 4; ++j)
      for (Index k = 0; k < 200; ++k) {
        const bool in = i >= 10 && i < 520 && j >= 1 && k >= 30 && k < 141;
        const float wanted = in ? values[((i + 40) * 5 + j + 1) * 301 + k - 23] : -1;
        ASSERT_EQ(part[(i * 4 + j) * 200 + k], wanted) << i << " " << j << " " << k;
      }
}

TEST(hdf5, every_dtype_round_trips_bit_exactly) {
  const Folder folder;
  std::vector<std::uint8_t> bytes(64 * 8);
  for (std::size_t i = 0; i < bytes.size(); ++i) bytes[i] = std::uint8_t(i * 37 + i / 7);
  const DType types[] = {DType::f64, DType::f32, DType::bf16, DType::i32, DType::i64, DType::u8};
  {
    File file = File::create(folder / "a.h5");
    for (const DType type : types) file.create_dataset(std::string(name_of(type)), type, {64}).write_rows(0, 64, bytes.data());
    file.close();
  }
  const File file = File::open(folder / "a.h5");
  for (const DType type : types) {
    const auto dataset = file.dataset(std::string(name_of(type)));
    EXPECT_EQ(dataset.dtype(), type);
    std::vector<std::uint8_t> read(64 * size_of(type));
    dataset.read_rows(0, 64, read.data());
    EXPECT_TRUE(std::equal(read.begin(), read.end(), bytes.begin())) << name_of(type);
  }
}

TEST(hdf5, attributes_of_any_length_and_sign_read_back) {
  const Folder folder;
  const std::string longer(200000, 'x');
  {
    File file = File::create(folder / "a.h5");
    file.set("empty", "");
    file.set("umlaut", "Größe 鷹");
    file.set("long", longer);
    file.set("negative", std::int64_t(-5));
    file.set("seed", ~std::uint64_t(0));
    file.close();
  }
  const File file = File::open(folder / "a.h5");
  EXPECT_EQ(file.text("empty"), "");
  EXPECT_EQ(file.text("umlaut"), "Größe 鷹");
  EXPECT_EQ(file.text("long"), longer);
  EXPECT_EQ(file.number<std::int64_t>("negative"), -5);
  EXPECT_EQ(file.number<std::uint64_t>("seed"), ~std::uint64_t(0));
  EXPECT_NE(std::string(error_of([&] { file.text("none"); }).what()).find("'none'"), std::string::npos);
  EXPECT_EQ(error_of([&] { file.text("negative"); }).code, Exit::data);
  EXPECT_EQ(error_of([&] { file.number<std::int64_t>("long"); }).code, Exit::data);
}

TEST(hdf5, errors_name_the_file_and_the_dataset) {
  const Folder folder;
  const Error missing = error_of([&] { File::open(folder / "none.h5"); });
  EXPECT_EQ(missing.code, Exit::missing);
  EXPECT_NE(std::string(missing.what()).find("none.h5"), std::string::npos);
  EXPECT_EQ(error_of([&] { File::create(folder / "no" / "such" / "folder.h5"); }).code, Exit::io);
  EXPECT_EQ(error_of([&] { File::open(folder.path()); }).code, Exit::data);
  File::create(folder / "a.h5").close();
  const Error unknown = error_of([&] { File::open(folder / "a.h5").dataset("/x"); });
  EXPECT_EQ(unknown.code, Exit::data);
  EXPECT_NE(std::string(unknown.what()).find("a.h5:/x"), std::string::npos) << unknown.what();
}

TEST(hdf5, library_stays_usable_after_a_failed_write) {
  const Folder folder;
  const std::vector<double> values(100000, 1.5);
  for (const rlim_t limit : {0, 100, 1000, 5000, 500000, 799999}) {
    const FileSizeLimit full(limit);
    const Error error = error_of([&] {
      File file = File::create(folder / fmt::format("{}.h5", limit));
      file.create_dataset("x", DType::f64, {100000}).write_rows(0, 100000, values.data());
      file.close();
    });
    EXPECT_EQ(error.code, Exit::io) << limit;
    EXPECT_NE(std::string(error.what()).find("File too large"), std::string::npos) << limit << ": " << error.what();
  }
  File file = File::create(folder / "after.h5");
  file.create_dataset("x", DType::f64, {100000}).write_rows(0, 100000, values.data());
  file.close();
  std::vector<double> read(100000);
  File::open(folder / "after.h5").dataset("x").read_rows(0, 100000, read.data());
  EXPECT_EQ(read, values);
}

// The HDF5 library is not thread-safe; src/hdf5 serializes all calls.
TEST(hdf5, concurrent_threads_read_and_write_correctly) {
  const Folder folder;
  std::vector<std::thread> threads;
  std::vector<int> right(4, 0);
  for (int t = 0; t < 4; ++t)
    threads.emplace_back([&, t] {
      const std::vector<double> values(300, t);
      for (int i = 0; i < 20; ++i) {
        File file = File::create(folder / fmt::format("{}.h5", t));
        for (int d = 0; d < 10; ++d) file.create_dataset(fmt::format("a/b/{}", d), DType::f64, {300}).write_rows(0, 300, values.data());
        file.close();
        std::vector<double> read(300);
        const File again = File::open(folder / fmt::format("{}.h5", t));
        for (const std::string& path : again.datasets()) again.dataset(path).read_rows(0, 300, read.data()), right[t] += read == values;
        right[t] += error_of([&] { again.dataset("none"); }).code == Exit::data;
      }
    });
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(right, std::vector<int>(4, 20 * 11));
}

// Several boxes are read in one call, and each chunk is read only once.
TEST(hdf5, several_boxes_are_read_in_one_call) {
  const Folder folder;
  std::vector<double> values(12 * 10);
  std::iota(values.begin(), values.end(), 0.);
  File file = File::create(folder / "x.h5");
  file.create_dataset("x", DType::f64, {12, 10}).write_rows(0, 12, values.data());
  file.close();
  const File again = File::open(folder / "x.h5");
  std::vector<double> read(12 * 5, -1);
  const std::vector<BoxPair> columns{{{{0, 1}, {12, 2}}, {{0, 0}, {12, 2}}}, {{{0, 6}, {12, 3}}, {{0, 2}, {12, 3}}}};
  again.dataset("x").read(columns, read.data(), {12, 5});
  for (Index r = 0; r < 12; ++r)
    for (Index c = 0; c < 5; ++c) EXPECT_EQ(read[r * 5 + c], double(r * 10 + (c < 2 ? c + 1 : c + 4)));
  EXPECT_EQ(again.bytes_read(), 12 * 10 * 8 + 4);  // one chunk with its checksum, read once
}

constexpr Index rows = 1500, width = 1001;  // 6 MB in three chunks of complete rows, all of them full

std::vector<float> counted(Index count) {
  std::vector<float> values(count);
  std::iota(values.begin(), values.end(), 1.f);
  return values;
}

// Writes the dataset in calls of `step` rows each. Calls may cover all rows, exactly one chunk, or parts of chunks.
void write_in_steps(const std::filesystem::path& path, Index step, const std::vector<float>& values, int deflate = 0) {
  File file = File::create(path);
  auto dataset = file.create_dataset("x", DType::f32, {rows, width}, deflate);
  for (Index first = 0; first < rows; first += step) dataset.write_rows(first, std::min(step, rows - first), values.data() + first * width);
  file.close();
}

// Full chunks are written and read directly, bypassing HDF5's filters. Parts of chunks go through HDF5, and a virtual
// dataset is always read by HDF5.
TEST(hdf5, direct_chunk_access_agrees_with_the_hdf5_library) {
  const Folder folder;
  const std::vector<float> values = counted(rows * width);
  const Index chunk = hdf5::chunk_rows(DType::f32, {rows, width});
  ASSERT_EQ(rows % chunk, 0);
  std::vector<std::string> stored;
  for (const Index step : {rows, chunk, chunk - 1, chunk / 3, chunk + 77}) {
    write_in_steps(folder / "a.h5", step, values);
    File index = File::create(folder / "index.h5");
    index.create_virtual("x", DType::f32, {rows, width}, {{full_box({rows, width}), "a.h5", "x"}});
    index.close();
    std::vector<float> by_us(values.size()), by_hdf5(values.size());
    const File file = File::open(folder / "a.h5");
    file.dataset("x").read_rows(0, rows, by_us.data());
    File::open(folder / "index.h5").dataset("x").read_rows(0, rows, by_hdf5.data());
    EXPECT_EQ(by_us, values) << step;
    EXPECT_EQ(by_hdf5, values) << step;
    const std::string bytes = contents(folder / "a.h5");
    std::string& chunks = stored.emplace_back();
    for (const hdf5::Extent& extent : file.dataset("x").extents()) chunks += bytes.substr(std::size_t(extent.offset), std::size_t(extent.bytes));
    EXPECT_EQ(chunks, stored[0]) << step << ": the checksums differ from those of HDF5";
  }
}

// Random boxes of every storage layout: chunks of complete rows with a shorter last one, chunks of partial rows, and
// compressed chunks, which only HDF5 itself reads.
TEST(hdf5, any_box_reads_from_any_chunk_layout) {
  const Folder folder;
  std::mt19937 random(3);
  const auto below = [&](Index n) { return Index(random() % std::size_t(n)); };
  for (const auto& [shape, deflate] : {std::pair<Shape, int>{{1501, 1009}, 0}, {{3, 1200001}, 0}, {{1501, 1009}, 1}, {{2000003}, 0}, {{7}, 0}}) {
    const std::vector<float> values = counted(elements(shape));
    File file = File::create(folder / "a.h5");
    auto dataset = file.create_dataset("x", DType::f32, shape, deflate);
    dataset.write_rows(0, shape[0], values.data());
    for (int trial = 0; trial < 10; ++trial) {
      Box box = full_box(shape);
      for (std::size_t d = 0; d < shape.size(); ++d) {
        if (random() % 3 == 0) continue;
        box.first[d] = below(shape[d]);
        box.count[d] = 1 + below(shape[d] - box.first[d]);
      }
      Shape array = box.count, corner(shape.size());
      for (std::size_t d = 0; d < shape.size(); ++d) array[d] += corner[d] = below(3);
      std::vector<float> read(elements(array), -1), expected = read;
      box_runs(shape, box, array, {corner, box.count},
               [&](Index from, Index to, Index count) { std::copy_n(values.begin() + from, count, expected.begin() + to); });
      dataset.read(box, read.data(), array, {corner, box.count});
      ASSERT_TRUE(read == expected) << shape.size() << " dimensions, trial " << trial;
    }
    EXPECT_EQ(error_of([&, rows = shape[0]] { dataset.read_rows(1, rows, std::vector<float>(values.size() + 1).data()); }).code, Exit::data);
    EXPECT_EQ(error_of([&, rows = shape[0]] { dataset.write_rows(1, rows, values.data()); }).code, Exit::io);
    file.close();
  }
}

TEST(hdf5, flipped_bit_fails_every_read_of_its_chunk) {
  const Folder folder;
  const std::vector<float> values = counted(rows * width);
  write_in_steps(folder / "a.h5", rows, values);
  const std::string original = contents(folder / "a.h5");
  const Index chunk = hdf5::chunk_rows(DType::f32, {rows, width}), chunk_bytes = chunk * width * 4 + 4;
  const auto extents = File::open(folder / "a.h5").dataset("x").extents();
  ASSERT_EQ(extents.size(), 1u);
  std::vector<float> read(values.size());
  for (Index c = 0; c < rows / chunk; ++c)
    // the last two offsets are in the checksum
    for (const Index at : {Index(0), chunk_bytes / 2, chunk_bytes - 5, chunk_bytes - 4, chunk_bytes - 1}) {
      std::string bytes = original;
      bytes[std::size_t(extents[0].offset + c * chunk_bytes + at)] ^= 4;
      put_contents(folder / "a.h5", bytes);
      const File file = File::open(folder / "a.h5");
      const auto dataset = file.dataset("x");
      for (Index other = 0; other < rows / chunk; ++other) {
        const Error error = error_of([&] { dataset.read_rows(other * chunk, chunk, read.data()); });
        EXPECT_EQ(error.code, other == c ? Exit::data : Exit::ok) << error.what();
        EXPECT_EQ(std::string(error.what()).find("a.h5:x: its content is damaged") != std::string::npos, other == c) << error.what();
      }
      EXPECT_EQ(error_of([&] { dataset.read({{0, 3}, {rows, 1}}, read.data(), {rows, 1}, {{0, 0}, {rows, 1}}); }).code, Exit::data);
      EXPECT_EQ(error_of([&] { dataset.read_rows(c * chunk + 5, 1, read.data()); }).code, Exit::data);
    }
}

// HDF5 before 1.6.3 stored the Fletcher-32 checksum with swapped bytes in each half on little-endian machines. HDF5
// still accepts it.
TEST(hdf5, accepts_byte_swapped_checksums_of_old_hdf5_versions) {
  const Folder folder;
  const std::vector<float> values = counted(rows * width);
  write_in_steps(folder / "a.h5", rows, values);
  const auto extent = File::open(folder / "a.h5").dataset("x").extents().at(0);
  std::string bytes = contents(folder / "a.h5");
  const auto sum = bytes.begin() + extent.offset + extent.bytes - 4;
  std::swap(sum[0], sum[1]);
  std::swap(sum[2], sum[3]);
  put_contents(folder / "a.h5", bytes);
  std::vector<float> read(values.size());
  File::open(folder / "a.h5").dataset("x").read_rows(0, rows, read.data());
  EXPECT_EQ(read, values);
}

// A dataset with one row more than a chunk holds gets two chunks of half the size, not a second chunk that is almost
// empty.
TEST(hdf5, chunking_wastes_little_file_space) {
  const Folder folder;
  for (const Index over : {-1, 0, 1, 300}) {
    const Shape shape{1024 + over, 512};
    const std::vector<float> values = counted(elements(shape));
    File file = File::create(folder / "a.h5");
    file.create_dataset("x", DType::f32, shape).write_rows(0, shape[0], values.data());
    file.close();
    EXPECT_LT(Index(std::filesystem::file_size(folder / "a.h5")), elements(shape) * 4 + 20000) << over;
  }
}

}  // namespace
}  // namespace gyr::testing::hdf5_suite
