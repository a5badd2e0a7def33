// SPDX-License-Identifier: BSD-3-Clause
// Sink that writes each slab to a file as soon as it arrives.
#pragma once

#include <functional>
#include <optional>

#include "src/checkpoint/delivery.hpp"

namespace gyr {

class FileSink : public Sink {
 public:
  using Write = std::function<void(const Move&, Index rows, const void* data)>;
  explicit FileSink(Write write) : write_(std::move(write)) {}

  std::byte* place(Index bytes) override {
    slab_.resize(std::size_t(bytes));
    return slab_.data();
  }
  void taken(const Move& b, Index rows, Index) override {
    if (failed_) return;
    try {
      write_(b, rows, slab_.data());
    } catch (const Error& error) {
      failed_ = error;
    }
  }
  void check() const override {
    if (failed_) throw *failed_;
  }

 private:
  Write write_;
  std::vector<std::byte> slab_;
  std::optional<Error> failed_;
};

}  // namespace gyr
