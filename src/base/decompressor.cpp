// SPDX-License-Identifier: BSD-3-Clause
#include "src/base/decompressor.hpp"

#include <zlib.h>
#include <zstd.h>

#include <algorithm>
#include <limits>

#include "kernels/base/error.hpp"

namespace gyr {

namespace {

constexpr std::size_t step = std::size_t(256) << 10;
constexpr std::string_view gzip_magic = "\x1f\x8b", zstandard_magic = "\x28\xb5\x2f\xfd";

// Files of pzstd begin with a skippable frame, 0x184D2A50 to 0x184D2A5F.
bool is_zstandard(std::string_view bytes) {
  return bytes.starts_with(zstandard_magic) || (bytes.size() >= 4 && (bytes[0] & 0xF0) == 0x50 && bytes.substr(1, 3) == "\x2a\x4d\x18");
}

// Common part of both formats: decompresses until `text` has grown or the file ends.
class CompressedText : public Decompressor {
 public:
  CompressedText(std::string_view compressed, const std::filesystem::path& path) : compressed_(compressed), path_(path) {}

  bool append_to(std::string& text) final {
    const std::size_t before = text.size();
    while (text.size() == before) {
      if (done()) return false;
      text.resize(before + step);
      const std::size_t made = decompress(compressed_.substr(std::size_t(consumed_)), text.data() + before);
      text.resize(before + made);
    }
    return true;
  }

 protected:
  // true after the last part (gzip member, Zstandard frame) of the file; Exit::data if the data after a part are not
  // another one
  virtual bool done() = 0;
  virtual std::size_t decompress(std::string_view rest, char* to) = 0;  // decompresses and consumes some of `rest`; number of bytes written

  [[noreturn]] void damaged(const char* why) const {
    fail(Exit::data, "{}: is damaged at byte {} of {}: {}; fetch it again, or if you joined compressed and other files, unpack them first",
         path_.string(), consumed_, compressed_.size(), why);
  }
  std::string_view compressed_;
  std::filesystem::path path_;
};

class Gzip final : public CompressedText {
 public:
  using CompressedText::CompressedText;
  ~Gzip() override { inflateEnd(&stream_); }

 private:
  bool done() override {
    if (inside_) return false;
    const std::string_view rest = compressed_.substr(std::size_t(consumed_));
    if (rest.find_first_not_of('\0') == rest.npos) return true;  // only zeros follow the last member, as in padded tape archives
    if (!rest.starts_with(gzip_magic)) damaged("it begins with gzip data, and other data follow");
    inflateEnd(&stream_);
    stream_ = {};
    ensure(inflateInit2(&stream_, MAX_WBITS + 16) == Z_OK, "zlib cannot be initialised");
    inside_ = true;
    return false;
  }
  std::size_t decompress(std::string_view rest, char* to) override {
    const std::size_t given = std::min<std::size_t>(rest.size(), std::numeric_limits<uInt>::max());
    stream_.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(rest.data())), stream_.avail_in = uInt(given);
    stream_.next_out = reinterpret_cast<Bytef*>(to), stream_.avail_out = uInt(step);
    const int code = inflate(&stream_, Z_NO_FLUSH);
    consumed_ += std::int64_t(given - stream_.avail_in);
    if (code == Z_BUF_ERROR || (code == Z_OK && given == 0)) damaged("the file is truncated");
    if (code != Z_OK && code != Z_STREAM_END) damaged(stream_.msg ? stream_.msg : "zlib cannot read it");
    inside_ = code != Z_STREAM_END;
    return step - stream_.avail_out;
  }

  z_stream stream_ = {};
  bool inside_ = false;
};

class Zstandard final : public CompressedText {
 public:
  Zstandard(std::string_view compressed, const std::filesystem::path& path)
      : CompressedText(compressed, path), context_(ZSTD_createDCtx(), ZSTD_freeDCtx) {
    ensure(context_ != nullptr, "Zstandard cannot be initialised");
    ZSTD_DCtx_setParameter(context_.get(), ZSTD_d_windowLogMax, 31);
  }

 private:
  bool done() override { return !inside_ && std::size_t(consumed_) == compressed_.size(); }
  std::size_t decompress(std::string_view rest, char* to) override {
    ZSTD_inBuffer in{rest.data(), rest.size(), 0};
    ZSTD_outBuffer out{to, step, 0};
    const std::size_t left = ZSTD_decompressStream(context_.get(), &out, &in);
    consumed_ += std::int64_t(in.pos);
    if (ZSTD_isError(left)) damaged(ZSTD_getErrorName(left));
    inside_ = left > 0;
    if (inside_ && rest.empty() && out.pos == 0) damaged("the file is truncated");
    return out.pos;
  }

  std::unique_ptr<ZSTD_DCtx, std::size_t (*)(ZSTD_DCtx*)> context_;
  bool inside_ = false;
};

}  // namespace

std::unique_ptr<Decompressor> Decompressor::of(std::string_view compressed, const std::filesystem::path& path) {
  if (compressed.starts_with(gzip_magic)) return std::make_unique<Gzip>(compressed, path);
  if (is_zstandard(compressed)) return std::make_unique<Zstandard>(compressed, path);
  return nullptr;
}

}  // namespace gyr
