// SPDX-License-Identifier: BSD-3-Clause
#include "src/evaluation/logits.hpp"

#include <algorithm>

#include "kernels/ops/host_values.hpp"
#include "src/parallel/collective_check.hpp"

namespace gyr {

namespace {

constexpr Index elements_at_once = Index(1) << 22;  // maximum number of elements in an all-reduce

}  // namespace

LogitsFile::LogitsFile(const std::filesystem::path& file, Grid& grid, const Passages& passages, Index vocab_size, DType precision)
    : file_(file), temporary_(file.string() + ".tmp"), grid_(grid), passages_(passages), vocab_size_(vocab_size), offsets_{0},
      dtype_(accumulator_of(precision)) {
  for (const Index length : passages.lengths) offsets_.push_back(offsets_.back() + length);
  collective_check(grid.world(), [&] {
    if (grid.world().rank() == 0) make();
  });
}

LogitsFile::~LogitsFile() {
  if (!out_) return;
  std::error_code error;
  std::filesystem::remove(temporary_, error);
}

void LogitsFile::make() {
  const Index rows = offsets_.back();
  require(rows > 0, Exit::data, "{}: there is no token to compute logits for", file_.string());
  out_.emplace(hdf5::File::create(temporary_));
  out_->set("about", "next-token logits: row r of /logits follows token r of /tokens; passage i is the rows from offsets[i] to before offsets[i+1]");
  std::vector<Token> tokens, labels;
  for (Index i = 0; i < passages_.count(); ++i) {
    const Passage p = passages_.make(i);
    ensure(Index(p.tokens.size()) == passages_.lengths[i], "passage {} has {} tokens", i, p.tokens.size());
    tokens.insert(tokens.end(), p.tokens.begin(), p.tokens.end());
    labels.insert(labels.end(), p.labels.begin(), p.labels.end());
  }
  out_->create_dataset("/tokens", DType::i32, {rows}).write_rows(0, rows, tokens.data());
  out_->create_dataset("/labels", DType::i32, {rows}).write_rows(0, rows, labels.data());
  out_->create_dataset("/offsets", DType::i64, {Index(offsets_.size())}).write_rows(0, Index(offsets_.size()), offsets_.data());
  logits_ = out_->create_dataset("/logits", dtype_, {rows, vocab_size_});
}

void LogitsFile::attach(Stage& stage) {
  if (!stage.last()) return;
  Head& head = stage.head();
  first_column_ = head.first_column(), columns_ = std::min(head.valid(), vocab_size_ - head.first_column());
  head.set_observer([this](const AnyTensor2& logits) {
    with_type(logits.dtype, [&]<class S>(std::type_identity<S>) {
      HostValues<S> host(logits.flat().as<S>());
      host.take();
      for (Index r = 0; r < logits.rows; ++r)
        for (Index c = 0; c < columns_; ++c) seen_.push_back(double(host(r * logits.columns + c)));
    });
  });
}

void LogitsFile::write(Device& dev, const std::vector<const Batch*>& batches) {
  for (std::size_t data = 0; data < batches.size(); ++data)
    if (batches[data]) write_batch(dev, int(data), *batches[data]);
  seen_.clear();
}

// Each element has its value on one rank and 0 on the others, so that an all-reduce gathers the rows.
void LogitsFile::write_batch(Device& dev, int data, const Batch& batch) {
  const bool mine = grid_.coordinate(Axis::data) == data && !seen_.empty();
  const Index at_once = std::max<Index>(1, elements_at_once / vocab_size_);
  std::vector<double> block;
  for (std::size_t m = 0; m < batch.members.size(); ++m) {
    const Index passage = batch.members[m], length = passages_.lengths[passage];
    for (Index first = 0; first < length; first += at_once) {
      const Index rows = std::min(at_once, length - first);
      block.assign(std::size_t(rows * vocab_size_), 0);
      for (Index r = 0; mine && r < rows; ++r)
        std::copy_n(seen_.begin() + (Index(m) * batch.seq_length + first + r) * columns_, columns_, block.begin() + r * vocab_size_ + first_column_);
      grid_.world().start_all_reduce(dev, Tensor1<double>(block.data(), block.size())).host_wait();
      collective_check(grid_.world(), [&] {
        if (!logits_) return;
        const auto write = [&](const auto& rounded) { logits_->write_rows(offsets_[passage] + first, rows, rounded.data()); };
        if (dtype_ == DType::f64) write(block);
        else write(std::vector<float>(block.begin(), block.end()));
      });
    }
  }
}

void LogitsFile::finish() {
  collective_check(grid_.world(), [&] {
    if (!out_) return;
    logits_.reset();
    out_->close();
    std::error_code error;
    std::filesystem::rename(temporary_, file_, error);
    require(!error, Exit::io, "{}: the temporary file cannot be renamed to this name: {}", file_.string(), error.message());
    out_.reset();
  });
}

}  // namespace gyr
