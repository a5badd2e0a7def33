// SPDX-License-Identifier: BSD-3-Clause
// The layer over HDF5: what is written is read back in any box, and every failure names file and object.
#include "src/hdf5/file.hpp"

#include <signal.h>
#include <sys/resource.h>

#include <numeric>
#include <thread>

#include "regression/folder.hpp"
#include "regression/testing.hpp"

namespace gyr::testing {
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

// The file system takes no more than `bytes` of any file while this lives.
class FileSizeLimit {
 public:
  explicit FileSizeLimit(rlim_t bytes) : handler_(signal(SIGXFSZ, SIG_IGN)) {
    getrlimit(RLIMIT_FSIZE, &before_);
    const rlimit limit{bytes, before_.rlim_max};
    setrlimit(RLIMIT_FSIZE, &limit);
  }
  ~FileSizeLimit() {
    setrlimit(RLIMIT_FSIZE, &before_);
    signal(SIGXFSZ, handler_);
  }

 private:
  rlimit before_;
  sighandler_t handler_;
};

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

}  // namespace
}  // namespace gyr::testing
