// SPDX-License-Identifier: BSD-3-Clause
#include "src/data/token_file.hpp"

#include <sys/resource.h>
#include <unistd.h>

#include <csignal>
#include <fstream>
#include <functional>
#include <numeric>
#include <random>
#include <sstream>
#include <vector>

#include "kernels/base/error.hpp"
#include "regression/support/folder.hpp"
#include "regression/support/testing.hpp"
#include "src/data/token_writer.hpp"

namespace gyr::testing::token_file_suite {

namespace fs = std::filesystem;
using Ids = std::vector<std::int32_t>;

namespace {

void write(const fs::path& path, const std::string& bytes) { std::ofstream(path, std::ios::binary) << bytes; }

template <class T>
std::string raw(std::initializer_list<T> values) {
  std::string bytes;
  for (const T value : values) bytes.append(reinterpret_cast<const char*>(&value), sizeof value);
  return bytes;
}
std::string raw_header(int type, std::uint64_t n, std::uint64_t d) {
  return std::string("MMIDIDX\0\0", 9) + raw<std::uint64_t>({1}) + char(type) + raw<std::uint64_t>({n, d});
}

// Writes two documents: the sequences {5, 6, 7} and {}, then {1, 2}. Tokens have type T.
template <class T>
void write_small(const fs::path& prefix, int type) {
  write(gyr::tokens_path(prefix), raw<T>({5, 6, 7, 1, 2}));
  write(gyr::index_path(prefix),
        raw_header(type, 3, 3) + raw<std::int32_t>({3, 0, 2}) + raw<std::int64_t>({0, 3 * sizeof(T), 3 * sizeof(T)}) + raw<std::int64_t>({0, 2, 3}));
}

std::pair<int, std::string> error_of(const std::function<void()>& action) {
  try {
    action();
  } catch (const Error& error) {
    return {int(error.code), error.what()};
  }
  return {0, "no error"};
}

Ids read(const TokenFile& file, std::int64_t sequence, std::int64_t offset, std::size_t count) {
  Ids ids(count);
  file.read(sequence, offset, ids);
  return ids;
}

}  // namespace

TEST(token_file, hand_written_files_are_read) {
  const Folder folder;
  const fs::path prefix = folder / "my.corpus";
  const auto check = [&] {
    const TokenFile file(prefix);
    EXPECT_EQ(file.sequences(), 3);
    EXPECT_EQ(file.documents(), 2);
    EXPECT_EQ(file.tokens(), 5);
    EXPECT_EQ(file.first_sequence(1), 2);
    EXPECT_EQ(file.first_token(2), 3);
    EXPECT_EQ(file.first_token(3), 5);
    EXPECT_EQ(read(file, 0, 1, 2), (Ids{6, 7}));
    EXPECT_EQ(read(file, 2, 0, 2), (Ids{1, 2}));
    EXPECT_EQ(file.check_tokens(), 7);
    EXPECT_EQ(file.check_tokens(8), 7);
    EXPECT_EQ(error_of([&] { file.check_tokens(7); }).first, int(Exit::data));
  };
  write_small<std::uint8_t>(prefix, 1), check();
  write_small<std::int8_t>(prefix, 2), check();
  write_small<std::int16_t>(prefix, 3), check();
  write_small<std::int32_t>(prefix, 4), check();
  write_small<std::int64_t>(prefix, 5), check();
  write_small<std::uint16_t>(prefix, 8), check();
}

TEST(token_file, writer_output_matches_the_published_format) {
  const Folder folder;
  for (const bool wide : {false, true}) {
    const fs::path prefix = folder / "out";
    gyr::TokenWriter writer(prefix, wide ? 65500 : 65499);
    writer.add(Ids{1, 2});
    writer.add(Ids{65498});
    writer.end_document();
    writer.add(Ids{7});
    writer.end_document();
    EXPECT_FALSE(fs::exists(gyr::index_path(prefix)) && !wide);
    writer.finish();
    const std::int64_t item = wide ? 4 : 2;
    EXPECT_EQ(gyr::testing::contents(gyr::tokens_path(prefix)), wide ? raw<std::int32_t>({1, 2, 65498, 7}) : raw<std::uint16_t>({1, 2, 65498, 7}));
    EXPECT_EQ(gyr::testing::contents(gyr::index_path(prefix)),
              raw_header(wide ? 4 : 8, 2, 3) + raw<std::int32_t>({3, 1}) + raw<std::int64_t>({0, 3 * item}) + raw<std::int64_t>({0, 1, 2}));
    EXPECT_EQ(folder.files(), 2u);
    EXPECT_EQ(TokenFile(prefix).tokens(), 4);
  }
  gyr::TokenWriter empty(folder / "empty", 100);
  empty.finish();
  EXPECT_EQ(TokenFile(folder / "empty").documents(), 0);
  EXPECT_EQ(TokenFile(folder / "empty").check_tokens(), -1);
}

TEST(token_file, unfinished_and_failed_writes_leave_nothing) {
  const Folder folder;
  {
    gyr::TokenWriter writer(folder / "out", 100);
    writer.add(Ids{1});
    EXPECT_EQ(error_of([&] { writer.add(Ids{100}); }).first, int(Exit::data));
    EXPECT_EQ(error_of([&] { writer.add(Ids{-1}); }).first, int(Exit::data));
  }
  EXPECT_EQ(folder.files(), 0u);

  rlimit before{};
  ::getrlimit(RLIMIT_FSIZE, &before);
  const auto handler = std::signal(SIGXFSZ, SIG_IGN);  // a write past the limit then fails as it does on a full disk
  const rlimit small{100000, before.rlim_max};
  ::setrlimit(RLIMIT_FSIZE, &small);
  const auto [code, message] = error_of([&] {
    gyr::TokenWriter writer(folder / "out", 100);
    for (int d = 0; d < 100; ++d) writer.add(Ids(1000, 5)), writer.end_document();
    writer.finish();
  });
  ::setrlimit(RLIMIT_FSIZE, &before);
  std::signal(SIGXFSZ, handler);
  EXPECT_EQ(code, int(Exit::io)) << message;
  EXPECT_NE(message.find("out.bin"), std::string::npos) << message;
  EXPECT_EQ(folder.files(), 0u);
  EXPECT_EQ(error_of([&] { gyr::TokenWriter(folder / "none" / "out", 100); }).first, int(Exit::missing));
}

TEST(token_file, errors_name_the_file_and_the_damage) {
  const Folder folder;
  const fs::path prefix = folder / "bad", idx = gyr::index_path(prefix), bin = gyr::tokens_path(prefix);
  const auto refused = [&](const std::string& name, const std::function<void(std::string&, std::string&)>& damage) {
    write_small<std::uint16_t>(prefix, 8);
    std::string index = gyr::testing::contents(idx), tokens = gyr::testing::contents(bin);
    damage(index, tokens);
    write(idx, index);
    write(bin, tokens);
    const auto [code, message] = error_of([&] { TokenFile{prefix}; });
    EXPECT_EQ(code, int(Exit::data)) << name;
    EXPECT_NE(message.find(name), std::string::npos) << message;
    EXPECT_NE(message.find(prefix.string()), std::string::npos) << message;
  };
  const auto put = [](std::string& bytes, std::size_t at, auto value) { std::memcpy(&bytes[at], &value, sizeof value); };
  refused("MMIDIDX", [](auto& index, auto&) { index[0] = 'X'; });
  refused("MMIDIDX", [](auto& index, auto&) { index.clear(); });
  refused("ends at byte 20", [](auto& index, auto&) { index.resize(20); });
  refused("version 2", [&](auto& index, auto&) { put(index, 9, std::uint64_t(2)); });
  refused("byte 17", [](auto& index, auto&) { index[17] = 7; });
  refused("byte 17", [](auto& index, auto&) { index[17] = 0; });
  refused("bytes 18", [&](auto& index, auto&) { put(index, 18, std::uint64_t(4)); });
  refused("bytes 18", [&](auto& index, auto&) { put(index, 18, std::uint64_t(3) + (std::uint64_t(1) << 62)); });  // 12 n overflows 64 bits
  refused("bytes 18", [&](auto& index, auto&) { put(index, 26, std::uint64_t(3) + (std::uint64_t(1) << 61)); });  // 8 d overflows 64 bits
  refused("byte 26", [&](auto& index, auto&) { put(index, 26, std::uint64_t(0)); });
  refused("bytes 18", [](auto& index, auto&) { index += std::string(3, '\0'); });
  refused("sequence 0 has -3 tokens", [&](auto& index, auto&) { put(index, 34, std::int32_t(-3)); });
  refused("sequence 2 ends at byte", [&](auto& index, auto&) { put(index, 42, std::int32_t(3)); });
  refused("sequence 1 begins at byte 8", [&](auto& index, auto&) { put(index, 54, std::int64_t(8)); });
  refused("document 0", [&](auto& index, auto&) { put(index, 70, std::int64_t(1)); });
  refused("document 1", [&](auto& index, auto&) { put(index, 78, std::int64_t(4)); });
  refused("document 1", [&](auto& index, auto&) { put(index, 78, std::int64_t(-1)); });
  refused("document 2", [&](auto& index, auto&) { put(index, 86, std::int64_t(2)); });
  refused("sequence 2 ends at byte", [](auto&, auto& tokens) { tokens.pop_back(); });
  refused("do not belong together", [](auto&, auto& tokens) { tokens += "xx"; });

  write_small<std::int32_t>(prefix, 4);
  write(bin, raw<std::int32_t>({5, -6, 7, 1, 2}));
  const TokenFile file(prefix);
  const auto [code, message] = error_of([&] { read(file, 0, 0, 3); });
  EXPECT_EQ(code, int(Exit::data));
  EXPECT_NE(message.find("byte 4: token id -6"), std::string::npos) << message;

  fs::remove(bin);
  EXPECT_EQ(error_of([&] { TokenFile{prefix}; }).first, int(Exit::missing));
  EXPECT_EQ(error_of([&] { TokenFile{folder / "none"}; }).first, int(Exit::missing));
  fs::create_directory(bin);
  EXPECT_EQ(error_of([&] { TokenFile{prefix}; }).first, int(Exit::data));
}

// Any damage must give an Error or a file whose every token can be read, never a crash.
TEST(token_file, damaged_files_never_crash_the_reader) {
  const Folder folder;
  const fs::path prefix = folder / "bad", idx = gyr::index_path(prefix), bin = gyr::tokens_path(prefix);
  write_small<std::uint16_t>(prefix, 8);
  const std::string index = gyr::testing::contents(idx), tokens = gyr::testing::contents(bin);
  std::mt19937 random(3);
  int refused = 0;
  for (int trial = 0; trial < 500; ++trial) {
    std::string bad = index, bad_tokens = tokens;
    for (unsigned n = 1 + random() % 3; n > 0; --n) {
      std::string& bytes = random() % 8 ? bad : bad_tokens;
      const std::size_t at = bytes.empty() ? 0 : random() % bytes.size();
      switch (random() % 4) {
        case 0: bytes.resize(at); break;
        case 1: bytes.insert(at, std::string(random() % 9, char(random()))); break;
        case 2:
          if (!bytes.empty()) bytes[at] = char(random());
          break;
        default:
          if (!bytes.empty()) bytes[at] = char(bytes[at] ^ 1 << random() % 8);
      }
    }
    write(idx, bad);
    write(bin, bad_tokens);
    try {
      const TokenFile file(prefix);
      file.check_tokens();
      for (std::int64_t s = 0; s < file.sequences(); ++s) read(file, s, 0, std::size_t(file.length(s)));
    } catch (const Error& error) {
      EXPECT_EQ(error.code, Exit::data);
      ++refused;
    }
  }
  EXPECT_GT(refused, 450);
}

// More than 2^31 tokens in a sparse .bin file of 4 GiB, of which only a few tokens are written.
TEST(token_file, token_counts_may_exceed_31_bits) {
  const Folder folder;
  const fs::path prefix = folder / "big";
  const std::int32_t half = 1'100'000'000;
  write(gyr::tokens_path(prefix), "");
  fs::resize_file(gyr::tokens_path(prefix), 2 * std::uintmax_t(half));
  std::ofstream(gyr::tokens_path(prefix), std::ios::binary | std::ios::app) << std::string(std::size_t(2), 'a');
  fs::resize_file(gyr::tokens_path(prefix), 4 * std::uintmax_t(half) - 2);
  std::ofstream(gyr::tokens_path(prefix), std::ios::binary | std::ios::app) << raw<std::uint16_t>({77});
  write(gyr::index_path(prefix),
        raw_header(8, 2, 3) + raw<std::int32_t>({half, half}) + raw<std::int64_t>({0, 2 * std::int64_t(half)}) + raw<std::int64_t>({0, 1, 2}));
  const TokenFile file(prefix);
  EXPECT_EQ(file.tokens(), 2 * std::int64_t(half));
  EXPECT_EQ(read(file, 1, half - 1, 1), Ids{77});
  EXPECT_EQ(read(file, 1, 0, 1), Ids{0x6161});
}

}  // namespace gyr::testing::token_file_suite
