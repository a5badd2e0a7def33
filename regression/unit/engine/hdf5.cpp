// SPDX-License-Identifier: BSD-3-Clause
// The layer over HDF5: what is written is read back in any box, and every failure names file and object.
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

TEST(hdf5, any_box_of_a_dataset_is_what_was_written) {
  const Folder folder;
  const Shape shape{700, 5, 301};  // 4 MiB: several chunks
  std::vector<float> numbers(elements(shape));
  std::iota(numbers.begin(), numbers.end(), 0.f);
  {
    File file = File::create(folder / "a.h5");
    auto dataset = file.create_dataset("/deep/down/x", DType::f32, shape);
    dataset.write_rows(0, 300, numbers.data());
    dataset.write_rows(300, 400, numbers.data() + 300 * 5 * 301);
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
        const float wanted = in ? numbers[((i + 40) * 5 + j + 1) * 301 + k - 23] : -1;
        ASSERT_EQ(part[(i * 4 + j) * 200 + k], wanted) << i << " " << j << " " << k;
      }
}

TEST(hdf5, every_type_keeps_its_bits) {
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

TEST(hdf5, attributes_of_any_length_and_sign) {
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

TEST(hdf5, failures_say_which_file_and_why) {
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

TEST(hdf5, a_failed_write_is_an_error_and_the_library_lives_on) {
  const Folder folder;
  const std::vector<double> numbers(100000, 1.5);
  for (const rlim_t limit : {0, 100, 1000, 5000, 500000, 799999}) {
    const FileSizeLimit full(limit);
    const Error error = error_of([&] {
      File file = File::create(folder / fmt::format("{}.h5", limit));
      file.create_dataset("x", DType::f64, {100000}).write_rows(0, 100000, numbers.data());
      file.close();
    });
    EXPECT_EQ(error.code, Exit::io) << limit;
    EXPECT_NE(std::string(error.what()).find("File too large"), std::string::npos) << limit << ": " << error.what();
  }
  File file = File::create(folder / "after.h5");
  file.create_dataset("x", DType::f64, {100000}).write_rows(0, 100000, numbers.data());
  file.close();
  std::vector<double> read(100000);
  File::open(folder / "after.h5").dataset("x").read_rows(0, 100000, read.data());
  EXPECT_EQ(read, numbers);
}

// The library is not made for threads; they take turns.
TEST(hdf5, serves_several_threads) {
  const Folder folder;
  std::vector<std::thread> threads;
  std::vector<int> right(4, 0);
  for (int t = 0; t < 4; ++t)
    threads.emplace_back([&, t] {
      const std::vector<double> numbers(300, t);
      for (int i = 0; i < 20; ++i) {
        File file = File::create(folder / fmt::format("{}.h5", t));
        for (int d = 0; d < 10; ++d) file.create_dataset(fmt::format("a/b/{}", d), DType::f64, {300}).write_rows(0, 300, numbers.data());
        file.close();
        std::vector<double> read(300);
        const File again = File::open(folder / fmt::format("{}.h5", t));
        for (const std::string& path : again.datasets()) again.dataset(path).read_rows(0, 300, read.data()), right[t] += read == numbers;
        right[t] += error_of([&] { again.dataset("none"); }).code == Exit::data;
      }
    });
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(right, std::vector<int>(4, 20 * 11));
}

// Several parts are read in one go, each chunk once.
TEST(hdf5, several_parts_are_read_at_once) {
  const Folder folder;
  std::vector<double> numbers(12 * 10);
  std::iota(numbers.begin(), numbers.end(), 0.);
  File file = File::create(folder / "x.h5");
  file.create_dataset("x", DType::f64, {12, 10}).write_rows(0, 12, numbers.data());
  file.close();
  const File again = File::open(folder / "x.h5");
  std::vector<double> read(12 * 5, -1);
  const std::vector<BoxPair> columns{{{{0, 1}, {12, 2}}, {{0, 0}, {12, 2}}}, {{{0, 6}, {12, 3}}, {{0, 2}, {12, 3}}}};
  again.dataset("x").read(columns, read.data(), {12, 5});
  for (Index r = 0; r < 12; ++r)
    for (Index c = 0; c < 5; ++c) EXPECT_EQ(read[r * 5 + c], double(r * 10 + (c < 2 ? c + 1 : c + 4)));
  EXPECT_EQ(again.bytes_read(), 12 * 10 * 8 + 4);  // the chunk with its checksum, once
}

constexpr Index rows = 1500, width = 1001;  // 6 MB in three chunks of whole rows, all full

std::vector<float> counted(Index count) {
  std::vector<float> numbers(count);
  std::iota(numbers.begin(), numbers.end(), 1.f);
  return numbers;
}

// Cuts of rows: all at once, chunk by chunk, and so that none fills a chunk.
void write_in_steps(const std::filesystem::path& path, Index step, const std::vector<float>& numbers, int deflate = 0) {
  File file = File::create(path);
  auto dataset = file.create_dataset("x", DType::f32, {rows, width}, deflate);
  for (Index first = 0; first < rows; first += step) dataset.write_rows(first, std::min(step, rows - first), numbers.data() + first * width);
  file.close();
}

// Whole chunks pass HDF5 by and parts of them go through it; a virtual dataset is read by HDF5 itself.
TEST(hdf5, reads_what_was_written_past_it_and_the_other_way) {
  const Folder folder;
  const std::vector<float> numbers = counted(rows * width);
  const Index chunk = hdf5::chunk_rows(DType::f32, {rows, width});
  ASSERT_EQ(rows % chunk, 0);
  std::vector<std::string> stored;
  for (const Index step : {rows, chunk, chunk - 1, chunk / 3, chunk + 77}) {
    write_in_steps(folder / "a.h5", step, numbers);
    File index = File::create(folder / "index.h5");
    index.create_virtual("x", DType::f32, {rows, width}, {{whole({rows, width}), "a.h5", "x"}});
    index.close();
    std::vector<float> by_us(numbers.size()), by_hdf5(numbers.size());
    const File file = File::open(folder / "a.h5");
    file.dataset("x").read_rows(0, rows, by_us.data());
    File::open(folder / "index.h5").dataset("x").read_rows(0, rows, by_hdf5.data());
    EXPECT_EQ(by_us, numbers) << step;
    EXPECT_EQ(by_hdf5, numbers) << step;
    const std::string bytes = contents(folder / "a.h5");
    std::string& chunks = stored.emplace_back();
    for (const hdf5::Extent& extent : file.dataset("x").extents()) chunks += bytes.substr(std::size_t(extent.offset), std::size_t(extent.bytes));
    EXPECT_EQ(chunks, stored[0]) << step << ": the sums are not HDF5's";
  }
}

// Any boxes of any storage: chunks of whole rows with a tail, chunks of parts of rows, and what HDF5 alone reads.
TEST(hdf5, any_boxes_are_read_from_any_chunks) {
  const Folder folder;
  std::mt19937 random(3);
  const auto below = [&](Index n) { return Index(random() % std::size_t(n)); };
  for (const auto& [shape, deflate] : {std::pair<Shape, int>{{1501, 1009}, 0}, {{3, 1200001}, 0}, {{1501, 1009}, 1}, {{2000003}, 0}, {{7}, 0}}) {
    const std::vector<float> numbers = counted(elements(shape));
    File file = File::create(folder / "a.h5");
    auto dataset = file.create_dataset("x", DType::f32, shape, deflate);
    dataset.write_rows(0, shape[0], numbers.data());
    for (int trial = 0; trial < 10; ++trial) {
      Box box = whole(shape);
      for (std::size_t d = 0; d < shape.size(); ++d) {
        if (random() % 3 == 0) continue;
        box.first[d] = below(shape[d]);
        box.count[d] = 1 + below(shape[d] - box.first[d]);
      }
      Shape array = box.count, corner(shape.size());
      for (std::size_t d = 0; d < shape.size(); ++d) array[d] += corner[d] = below(3);
      std::vector<float> read(elements(array), -1), expected = read;
      box_runs(shape, box, array, {corner, box.count},
               [&](Index from, Index to, Index count) { std::copy_n(numbers.begin() + from, count, expected.begin() + to); });
      dataset.read(box, read.data(), array, {corner, box.count});
      ASSERT_TRUE(read == expected) << shape.size() << " dimensions, trial " << trial;
    }
    EXPECT_EQ(error_of([&, rows = shape[0]] { dataset.read_rows(1, rows, std::vector<float>(numbers.size() + 1).data()); }).code, Exit::data);
    EXPECT_EQ(error_of([&, rows = shape[0]] { dataset.write_rows(1, rows, numbers.data()); }).code, Exit::io);
    file.close();
  }
}

TEST(hdf5, a_flipped_bit_is_found_by_whoever_reads_its_chunk) {
  const Folder folder;
  const std::vector<float> numbers = counted(rows * width);
  write_in_steps(folder / "a.h5", rows, numbers);
  const std::string whole = contents(folder / "a.h5");
  const Index chunk = hdf5::chunk_rows(DType::f32, {rows, width}), chunk_bytes = chunk * width * 4 + 4;
  const auto extents = File::open(folder / "a.h5").dataset("x").extents();
  ASSERT_EQ(extents.size(), 1u);
  std::vector<float> read(numbers.size());
  for (Index c = 0; c < rows / chunk; ++c)
    for (const Index at : {Index(0), chunk_bytes / 2, chunk_bytes - 5, chunk_bytes - 4, chunk_bytes - 1}) {  // the last two are the sum's
      std::string bytes = whole;
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

// HDF5 before 1.6.3 stored the sum with the bytes of its halves swapped on little-endian machines, and HDF5 still takes it.
TEST(hdf5, takes_the_sum_of_the_oldest_files) {
  const Folder folder;
  const std::vector<float> numbers = counted(rows * width);
  write_in_steps(folder / "a.h5", rows, numbers);
  const auto extent = File::open(folder / "a.h5").dataset("x").extents().at(0);
  std::string bytes = contents(folder / "a.h5");
  const auto sum = bytes.begin() + extent.offset + extent.bytes - 4;
  std::swap(sum[0], sum[1]);
  std::swap(sum[2], sum[3]);
  put_contents(folder / "a.h5", bytes);
  std::vector<float> read(numbers.size());
  File::open(folder / "a.h5").dataset("x").read_rows(0, rows, read.data());
  EXPECT_EQ(read, numbers);
}

// One row more than a chunk holds makes two chunks of half its size, and not one that is almost empty.
TEST(hdf5, chunks_leave_little_of_the_file_empty) {
  const Folder folder;
  for (const Index over : {-1, 0, 1, 300}) {
    const Shape shape{1024 + over, 512};
    const std::vector<float> numbers = counted(elements(shape));
    File file = File::create(folder / "a.h5");
    file.create_dataset("x", DType::f32, shape).write_rows(0, shape[0], numbers.data());
    file.close();
    EXPECT_LT(Index(std::filesystem::file_size(folder / "a.h5")), elements(shape) * 4 + 20000) << over;
  }
}

}  // namespace
}  // namespace gyr::testing::hdf5_suite
