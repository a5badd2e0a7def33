// SPDX-License-Identifier: BSD-3-Clause
// Compressed input gives the same documents as its uncompressed content, for every document rule, any gzip members or
// Zstandard frames, and any number of ranks.
#include <malloc.h>
#include <zlib.h>
#include <zstd.h>

#include <map>
#include <random>

#include "regression/support/folder.hpp"
#include "regression/support/seed.hpp"
#include "regression/support/team.hpp"
#include "regression/support/testing.hpp"
#include "src/base/file_pattern.hpp"
#include "src/data/builder.hpp"
#include "src/data/corpus_summary.hpp"
#include "src/data/token_writer.hpp"
#include "src/data/tokenizer_training.hpp"

namespace gyr::testing::compressed_text_suite {
namespace {

using Rule = DocumentFormat::Rule;

std::string gzip(std::string_view text) {
  z_stream stream{};
  EXPECT_EQ(deflateInit2(&stream, 1, Z_DEFLATED, MAX_WBITS + 16, 8, Z_DEFAULT_STRATEGY), Z_OK);
  std::string out(deflateBound(&stream, text.size()), '\0');
  stream.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(text.data())), stream.avail_in = uInt(text.size());
  stream.next_out = reinterpret_cast<Bytef*>(out.data()), stream.avail_out = uInt(out.size());
  EXPECT_EQ(deflate(&stream, Z_FINISH), Z_STREAM_END);
  out.resize(stream.total_out);
  deflateEnd(&stream);
  return out;
}

std::string zstandard(std::string_view text) {
  const std::unique_ptr<ZSTD_CCtx, std::size_t (*)(ZSTD_CCtx*)> context(ZSTD_createCCtx(), ZSTD_freeCCtx);
  ZSTD_CCtx_setParameter(context.get(), ZSTD_c_checksumFlag, 1);
  std::string out(ZSTD_compressBound(text.size()), '\0');
  out.resize(ZSTD_compress2(context.get(), out.data(), out.size(), text.data(), text.size()));
  return out;
}

class compressed_text : public ::testing::Test {
 protected:
  int upto(int most) { return int(random() % unsigned(most + 1)); }

  // Random text of words, blank lines, lines "--" and some long lines.
  std::string text(std::size_t bytes) {
    std::string out;
    while (out.size() < bytes) {
      const int what = upto(19);
      if (what == 0) out += "\n\n";
      else if (what == 1) out += "\n--\n";
      else if (what == 2) out += std::string(std::size_t(upto(3000)), 'x');
      else out += "word" + std::to_string(upto(99)) + (upto(5) == 0 ? "\n" : " ");
    }
    return out;
  }
  std::string json_lines(std::size_t bytes) {
    std::string out;
    while (out.size() < bytes) out += "{\"n\": 1, \"text\": \"" + std::string(std::size_t(upto(200)), char('a' + upto(25))) + "\"}\n";
    return out;
  }
  // Compressed in several members or frames, as parallel compressors write them.
  std::string compressed(const std::string& plain, bool gz) {
    std::string out;
    std::size_t at = 0;
    do {
      const std::size_t size = upto(1) > 0 ? plain.size() - at : std::min(plain.size() - at, std::size_t(upto(1 << 20)));
      // a skippable frame, as pzstd writes them
      if (!gz && upto(1) > 0) out += std::string{char(0x50 + upto(15)), '\x2a', '\x4d', '\x18', '\4', 0, 0, 0} + "skip";
      out += gz ? gzip(std::string_view(plain).substr(at, size)) : zstandard(std::string_view(plain).substr(at, size));
      at += size;
    } while (at < plain.size());
    return gz && upto(3) == 0 ? out + std::string(512, '\0') : out;
  }

  std::mt19937 random{seed_of_run()};
  Folder folder;
};

struct ReadDocument {
  std::string text;
  bool begins, ends;
  bool operator==(const ReadDocument&) const = default;
};
std::vector<ReadDocument> read_documents(DocumentFile&& file, std::int64_t stride) {
  std::vector<ReadDocument> all;
  for (std::int64_t block = 0; block < file.blocks(); block += stride)
    file.visit(block, std::min(block + stride, file.blocks()), [&](const Fragment& f) { all.push_back({std::string(f.text), f.begins, f.ends}); });
  return all;
}

TEST_F(compressed_text, gives_same_documents_as_plain_text) {
  for (int trial = 0; trial < 24; ++trial) {
    const Rule rules[] = {Rule::file, Rule::separator, Rule::line, Rule::page, Rule::json_lines};
    DocumentFormat format;
    format.rule = rules[std::size_t(trial) % std::size(rules)];
    format.separator = upto(1) > 0 ? "--" : "";
    const std::size_t size = std::size_t(upto(3) > 0 ? upto(5 << 20) : upto(40));
    std::string plain = format.rule == Rule::json_lines ? json_lines(size) : text(size);
    if (upto(4) == 0) plain = "\xef\xbb\xbf" + plain;
    const auto expected = read_documents(DocumentFile(folder.write("plain", plain), format), 1 + upto(3));
    for (const bool gz : {true, false})
      EXPECT_EQ(read_documents(DocumentFile(folder.write("small", compressed(plain, gz)), format), 1 + upto(3)), expected)
          << "trial " << trial << (gz ? " gzip" : " Zstandard");
  }
}

// A compressed text without a place to divide it is refused before it fills the memory.
TEST_F(compressed_text, endless_line_is_refused_at_the_limit) {
  constexpr std::size_t limit = 1 << 20, window = 2 * limit + 4 * std::size_t(DocumentFile::block_bytes);
  for (const Rule rule : {Rule::file, Rule::separator, Rule::line, Rule::page, Rule::json_lines})
    for (const bool gz : {true, false})
      for (const char* unit : {"x", "\n", " x\n"}) {
        DocumentFormat format;
        format.rule = rule, format.max_line_bytes = limit, format.invalid = DocumentFormat::Invalid::skip;
        const auto read = [&](std::size_t bytes) {
          std::string text;
          while (text.size() < bytes) text += unit;
          const auto before = mallinfo2().uordblks;
          std::size_t most = before;
          const auto file = folder.write("text", gz ? gzip(text) : zstandard(text));
          std::string().swap(text);
          const Error error = error_of(
              [&] { DocumentFile(file, format).visit(0, 1, [&](const Fragment&) { most = std::max(most, std::size_t(mallinfo2().uordblks)); }); });
          EXPECT_LT(most - before, 3 * window + (std::size_t(8) << 20)) << unit;
          return error;
        };
        const bool divided = (rule == Rule::line || rule == Rule::page || rule == Rule::json_lines) && unit != std::string("x");
        EXPECT_EQ(read(limit / 2).code, Exit::ok);
        const Error error = read(40 * limit);
        EXPECT_EQ(error.code, divided ? Exit::ok : Exit::data) << int(rule) << gz << unit << error.what();
        if (!divided) {
          EXPECT_NE(std::string(error.what()).find("has no place to divide it"), std::string::npos) << error.what();
        }
      }
}

TEST_F(compressed_text, lines_of_maximum_length_are_read) {
  constexpr std::size_t limit = 9 << 20;
  const std::string around = "{\"text\": \"\"}";
  for (const Rule rule : {Rule::line, Rule::json_lines})
    for (const bool gz : {true, false}) {
      DocumentFormat format;
      format.rule = rule, format.max_line_bytes = limit;
      std::string text;
      for (int line = 0; line < 4; ++line) {
        const std::string filled(limit - around.size(), char('a' + line));
        text += rule == Rule::json_lines ? "{\"text\": \"" + filled + "\"}\n" : filled + "\n";
      }
      int count = 0;
      const auto file = folder.write("long", gz ? gzip(text) : zstandard(text));
      DocumentFile(file, format).visit(0, 1, [&](const Fragment& f) { count += f.text.size() == limit - around.size(); });
      EXPECT_EQ(count, 4) << int(rule) << gz;
    }
}

TEST_F(compressed_text, format_follows_extension_before_compression_suffix) {
  const std::string line = "{\"text\": \"a\"}\n";
  for (const char* name : {"a.jsonl.gz", "a.ndjson.gz", "a.jsonl.zst"})
    EXPECT_EQ(read_documents(DocumentFile(folder.write(name, compressed(line, std::string(name).ends_with("gz"))), {}), 1),
              (std::vector<ReadDocument>{{"a", true, true}}))
        << name;
  EXPECT_EQ(read_documents(DocumentFile(folder.write("a.txt.gz", gzip(line)), {}), 1), (std::vector<ReadDocument>{{line, true, true}}));
}

TEST_F(compressed_text, damaged_file_is_reported_or_read_correctly) {
  int noticed = 0;
  for (int trial = 0; trial < 200; ++trial) {
    const std::string plain = json_lines(std::size_t(1000 + upto(2000))), good = trial % 2 > 0 ? gzip(plain) : zstandard(plain);
    std::string bad = good;
    const std::size_t at = std::size_t(upto(int(good.size()) - 1));
    if (trial % 4 < 2) bad[at] = char(bad[at] ^ (1 << upto(7)));
    else bad.resize(std::max<std::size_t>(4, at));
    DocumentFormat format;
    format.rule = Rule::line;
    std::vector<ReadDocument> found;
    const Error error = error_of([&] { found = read_documents(DocumentFile(folder.write("bad", bad), format), 1); });
    const bool recognised = bad.starts_with("\x1f\x8b") || bad.starts_with("\x28\xb5\x2f\xfd");
    if (!recognised && bad.size() == good.size() && error.code == Exit::data) continue;  // refused as binary data
    if (error.code == Exit::ok && bad.size() == good.size() && recognised) {
      EXPECT_EQ(found, read_documents(DocumentFile(folder.write("good", plain), format), 1)) << "bit flipped in byte " << at;
    } else if (error.code != Exit::ok) {
      EXPECT_EQ(error.code, Exit::data);
      EXPECT_NE(std::string(error.what()).find("is damaged at byte"), std::string::npos) << error.what();
      ++noticed;
    } else {
      EXPECT_EQ(bad.size(), good.size()) << "a truncation was not detected";
    }
  }
  EXPECT_GT(noticed, 100);
}

TEST_F(compressed_text, error_names_file_and_line) {
  for (int trial = 0; trial < 10; ++trial) {
    const std::string before = json_lines(std::size_t(upto(4 << 20))), plain = before + "{\"text\": 5}\n" + json_lines(100);
    const auto line = std::count(before.begin(), before.end(), '\n') + 1;
    const std::filesystem::path file = folder.write("a.jsonl.gz", compressed(plain, true));
    const Error error = error_of([&] { read_documents(DocumentFile(file, {}), 1); });
    EXPECT_EQ(error.code, Exit::data);
    EXPECT_TRUE(std::string(error.what()).starts_with(file.string() + ":" + std::to_string(line) + ": ")) << error.what();
  }
}

TEST_F(compressed_text, memory_is_bounded_by_few_blocks) {
  const std::string plain = json_lines(std::size_t(64) << 20), small = gzip(plain);
  folder.write("a.jsonl.gz", small);
  DocumentFile file(folder / "a.jsonl.gz", {});
  const std::size_t before = mallinfo2().uordblks + mallinfo2().hblkhd;
  std::size_t most = 0, count = 0;
  file.visit(0, file.blocks(), [&](const Fragment&) {
    if (++count % 1000 == 0) most = std::max(most, mallinfo2().uordblks + mallinfo2().hblkhd);
  });
  EXPECT_GT(count, 100000U);
  EXPECT_LT(most - before, std::size_t(8) << 20);
}

TEST_F(compressed_text, corpus_does_not_depend_on_compression_or_ranks) {
  const Tokenizer tokenizer(byte_vocabulary(std::vector<std::string>{"<|endoftext|>"}));
  for (int trial = 0; trial < 6; ++trial) {
    BuildOptions plain, mixed;
    plain.format.rule = mixed.format.rule = trial % 2 > 0 ? Rule::separator : Rule::json_lines;
    plain.eod = mixed.eod = tokenizer.eod();
    plain.prefix = folder / "plain", mixed.prefix = folder / "mixed";
    plain.overwrite = mixed.overwrite = true;
    for (int f = 0, files = 1 + upto(5); f < files; ++f) {
      const std::size_t size = std::size_t(1 + upto(3 << 20));
      const std::string bytes = trial % 2 > 0 ? "a\n" + text(size) : json_lines(size);
      plain.inputs.push_back(folder.write("p" + std::to_string(f), bytes));
      mixed.inputs.push_back(upto(3) == 0 ? plain.inputs.back() : folder.write("m" + std::to_string(f), compressed(bytes, upto(1) > 0)));
    }
    const BuildReport expected = build_corpus(tokenizer, plain);
    const int size = 1 + upto(3);
    std::vector<BuildReport> reports(static_cast<std::size_t>(size));
    as_team(size, [&](const BuildTeam& team) { reports[std::size_t(team.rank)] = build_corpus(tokenizer, mixed, team); });
    EXPECT_EQ(reports[0].documents, expected.documents);
    EXPECT_EQ(reports[0].bytes, expected.bytes);
    for (const auto& path : {tokens_path, index_path})
      EXPECT_EQ(contents(path(mixed.prefix)), contents(path(plain.prefix))) << "trial " << trial << ", " << size << " ranks";
  }
}

TEST_F(compressed_text, file_patterns_expand_in_sorted_order) {
  for (const char* name : {"b.txt", "a.txt", "c[1].txt"}) folder.write(name, "x");
  const auto named = [&](const std::vector<std::string>& words) {
    std::vector<std::string> paths, found;
    for (const std::string& word : words) paths.push_back((folder / word).string());
    for (const auto& path : files_named(paths)) found.push_back(path.filename().string());
    return found;
  };
  EXPECT_EQ(named({"*.txt"}), (std::vector<std::string>{"a.txt", "b.txt", "c[1].txt"}));
  EXPECT_EQ(named({"c[1].txt", "?.txt", "none"}), (std::vector<std::string>{"c[1].txt", "a.txt", "b.txt", "none"}));
  EXPECT_EQ(error_of([&] { named({"*.none"}); }).code, Exit::missing);
}

TEST_F(compressed_text, document_lengths_are_counted_in_doubling_bins) {
  for (int trial = 0; trial < 20; ++trial) {
    std::map<std::int64_t, std::int64_t> documents;  // document counts by the smallest length of their bin
    TokenWriter writer(folder / "corpus", 300);
    std::int64_t tokens = 0;
    for (int d = 0, n = 1 + upto(200); d < n; ++d) {
      const int length = upto(1 << upto(10));
      const std::vector<std::int32_t> ids(std::size_t(length), std::int32_t(upto(299)));
      writer.add(ids);
      writer.end_document();
      std::int64_t least = length > 0 ? 1 : 0;
      while (2 * least <= length && length > 0) least *= 2;
      ++documents[least], tokens += length;
    }
    writer.finish();
    std::map<std::int64_t, std::int64_t> found;
    std::int64_t counted = 0;
    for (const LengthBin& bin : length_bins(TokenFile(folder / "corpus"))) {
      if (bin.documents > 0) found[bin.least] = bin.documents;
      counted += bin.tokens;
    }
    EXPECT_EQ(found, documents);
    EXPECT_EQ(counted, tokens);
    EXPECT_NE(corpus_summary(folder / "corpus").find(fmt::format("{} of 2 bytes each", tokens)), std::string::npos);
    for (const auto& path : {tokens_path, index_path}) std::filesystem::remove(path(folder / "corpus"));
  }
}

}  // namespace
}  // namespace gyr::testing::compressed_text_suite
