// SPDX-License-Identifier: BSD-3-Clause
// Files of tables (src/hdf5/table_file.hpp): values read back, equal content gives equal bytes, and tables of another
// shape, in another file or larger than their file are refused.
#include "src/hdf5/table_file.hpp"

#include <chrono>
#include <random>
#include <thread>

#include "regression/support/folder.hpp"
#include "regression/support/seed.hpp"
#include "regression/support/testing.hpp"

namespace gyr::testing::table_file_suite {
namespace {

using hdf5::TableReader;
using hdf5::TableWriter;

std::vector<std::uint32_t> drawn(std::mt19937& random, std::size_t count) {
  std::vector<std::uint32_t> values(count);
  for (std::uint32_t& value : values) value = std::uint32_t(random());
  return values;
}

void write(const std::filesystem::path& path, const std::vector<std::uint32_t>& values, Index columns, const std::vector<std::uint64_t>& others) {
  TableWriter file(path);
  file.set("about", "a test");
  file.add<std::uint32_t>("values", columns, values);
  file.add<std::uint64_t>("others", 0, others);
  file.close();
}

void expect_refused(const std::function<void()>& read, const std::string& part) {
  const Error error = error_of(read);
  EXPECT_EQ(error.code, Exit::data) << error.what();
  EXPECT_NE(std::string(error.what()).find(part), std::string::npos) << error.what();
}

TEST(table_file, drawn_tables_read_back_in_parts) {
  const Folder folder;
  std::mt19937 random(seed_of_run());
  for (int draw = 0; draw < 20; ++draw) {
    const Index columns = Index(random() % 6), width = std::max<Index>(1, columns), rows = draw == 0 ? 0 : Index(random() % 200'000);
    const auto values = drawn(random, std::size_t(rows * width));
    write(folder / "a.hdf5", values, columns, {std::uint64_t(-1), 0});
    const TableReader file(folder / "a.hdf5");
    EXPECT_EQ(file.rows<std::uint32_t>("values", columns), rows);
    EXPECT_EQ(file.read<std::uint32_t>("values", columns), values);
    EXPECT_EQ(file.read<std::uint64_t>("others"), (std::vector<std::uint64_t>{std::uint64_t(-1), 0}));
    const Index first = rows == 0 ? 0 : Index(random() % rows), count = rows == 0 ? 0 : Index(random() % (rows - first));
    const std::vector<std::uint32_t> part(values.begin() + first * width, values.begin() + (first + count) * width);
    EXPECT_EQ(file.read<std::uint32_t>("values", columns, first, count), part);
    EXPECT_EQ(file.text("about"), "a test");
    expect_refused([&] { file.read<std::uint32_t>("values", columns, first, rows - first + 1); }, fmt::format("has {} rows", rows));
  }
}

TEST(table_file, equal_content_gives_equal_bytes_at_any_time) {
  const Folder folder;
  std::mt19937 random(seed_of_run());
  const auto values = drawn(random, 300'001);  // the last chunk is not full
  write(folder / "a.hdf5", values, 0, {7});
  std::this_thread::sleep_for(std::chrono::milliseconds(1100));  // HDF5's times count seconds
  const auto garbage = drawn(random, 400'000);                   // freed memory with other content
  write(folder / "b.hdf5", garbage, 0, {9});
  write(folder / "c.hdf5", values, 0, {7});
  EXPECT_TRUE(contents(folder / "a.hdf5") == contents(folder / "c.hdf5"));
  EXPECT_FALSE(contents(folder / "a.hdf5") == contents(folder / "b.hdf5"));
}

TEST(table_file, other_shapes_and_places_are_refused) {
  const Folder folder;
  write(folder / "a.hdf5", {1, 2, 3, 4}, 2, {7});
  const TableReader file(folder / "a.hdf5");
  expect_refused([&] { file.read<std::uint32_t>("values", 4); }, "a.hdf5:values: has 2 columns instead of 4");
  expect_refused([&] { file.read<std::uint32_t>("values"); }, "a.hdf5:values: has 2 dimensions instead of 1");
  expect_refused([&] { file.read<std::int64_t>("others"); }, "a.hdf5:others: its elements are not int64");
  expect_refused([&] { file.read<std::int64_t>("absent"); }, "a.hdf5: has no dataset 'absent'");
  {
    hdf5::File other = hdf5::File::create(folder / "link.hdf5");
    other.name_root("values");
    other.close();
    TableWriter bomb(folder / "bomb.hdf5");
    bomb.create({"values", hdf5::Element::u32, Index(1) << 40, 2});
    bomb.close();
  }
  expect_refused([&] { TableReader(folder / "link.hdf5").read<std::uint32_t>("values"); }, "values: is a link to another place");
  EXPECT_LT(std::filesystem::file_size(folder / "bomb.hdf5"), 1u << 20);
  expect_refused([&] { TableReader(folder / "bomb.hdf5").read<std::uint32_t>("values", 2); }, "values: claims 1099511627776 rows, which do not fit");
}

}  // namespace
}  // namespace gyr::testing::table_file_suite
