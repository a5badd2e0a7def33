// SPDX-License-Identifier: BSD-3-Clause
// Text that remembers the origin of each byte. A chat template mixes its own text with text of the conversation. Special
// tokens are recognised in the template's own text only, and the loss mask needs the place of each reply.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace gyr::jinja {

struct Origin {
  std::uint32_t source = 0;  // 0: written by the template; otherwise a number that the caller gave to its data
  bool generated = false;    // true: inside a {% generation %} block
  bool operator==(const Origin&) const = default;
};

class Text {
 public:
  // Consecutive bytes of one origin; the first run begins at byte 0.
  struct Run {
    std::size_t end;
    Origin origin;
  };

  Text() = default;
  explicit Text(std::string bytes, Origin origin = {});

  const std::string& bytes() const { return bytes_; }
  std::size_t size() const { return bytes_.size(); }
  bool empty() const { return bytes_.empty(); }
  const std::vector<Run>& runs() const { return runs_; }
  std::size_t memory() const { return bytes_.size() + runs_.size() * sizeof(Run); }  // bytes that a copy needs

  void append(std::string_view bytes, Origin origin = {});
  void append(const Text& other, std::size_t begin = 0, std::size_t end = std::string::npos);
  // Appends other bytes for the bytes [begin, end) of `from`, with the origin of the first of these.
  void append_changed(std::string_view bytes, const Text& from, std::size_t begin);
  Text part(std::size_t begin, std::size_t end) const;
  Origin origin_at(std::size_t byte) const;  // byte < size()
  void mark_generated();

 private:
  void close_run(Origin origin);  // makes the bytes after the last run belong to `origin`

  std::string bytes_;
  std::vector<Run> runs_;
};

}  // namespace gyr::jinja
