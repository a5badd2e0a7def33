// SPDX-License-Identifier: BSD-3-Clause
#include "src/evaluation/logits.hpp"

#include <algorithm>

#include "src/parallel/collective_check.hpp"

namespace gyr {

namespace {

constexpr Index numbers_at_once = Index(1) << 22;  // that travel together

}  // namespace

template <class T>
LogitsFile<T>::LogitsFile(const std::filesystem::path& file, Grid& grid, const Passages& passages, Index vocab_size)
    : file_(file), temporary_(file.string() + ".tmp"), grid_(grid), passages_(passages), vocab_size_(vocab_size), offsets_{0} {
  for (const Index length : passages.lengths) offsets_.push_back(offsets_.back() + length);
  collective_check(grid.world(), [&] {
    if (grid.world().rank() == 0) make();
  });
}

template <class T>
LogitsFile<T>::~LogitsFile() {
  if (!out_) return;
  std::error_code error;
  std::filesystem::remove(temporary_, error);
}

template <class T>
void LogitsFile<T>::make() {
  const Index rows = offsets_.back();
  require(rows > 0, Exit::data, "{}: there is no token to compute logits of", file_.string());
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
  logits_ = out_->create_dataset("/logits", dtype_of<A>(), {rows, vocab_size_});
}

template <class T>
void LogitsFile<T>::attach(Stage<T>& stage) {
  if (!stage.last()) return;
  Head<T>& head = stage.head();
  first_column_ = head.first_column(), columns_ = std::min(head.valid(), vocab_size_ - head.first_column());
  head.set_observer([this](Tensor2<const A> logits) {
    const auto host = Kokkos::create_mirror_view_and_copy(Kokkos::HostSpace(), logits);
    for (Index r = 0; r < Index(host.extent(0)); ++r)
      for (Index c = 0; c < columns_; ++c) seen_.push_back(host(r, c));
  });
}

template <class T>
void LogitsFile<T>::write(Device& dev, const std::vector<const Batch*>& batches) {
  for (std::size_t data = 0; data < batches.size(); ++data)
    if (batches[data]) write_batch(dev, int(data), *batches[data]);
  seen_.clear();
}

// Every number comes from one rank, and the others add zeros.
template <class T>
void LogitsFile<T>::write_batch(Device& dev, int data, const Batch& batch) {
  const bool mine = grid_.coordinate(Axis::data) == data && !seen_.empty();
  const Index at_once = std::max<Index>(1, numbers_at_once / vocab_size_);
  std::vector<double> block;
  std::vector<A> rounded;
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
        rounded.assign(block.begin(), block.end());
        logits_->write_rows(offsets_[passage] + first, rows, rounded.data());
      });
    }
  }
}

template <class T>
void LogitsFile<T>::finish() {
  collective_check(grid_.world(), [&] {
    if (!out_) return;
    logits_.reset();
    out_->close();
    std::error_code error;
    std::filesystem::rename(temporary_, file_, error);
    require(!error, Exit::io, "{}: cannot be given its name: {}", file_.string(), error.message());
    out_.reset();
  });
}

template class LogitsFile<double>;
template class LogitsFile<float>;
template class LogitsFile<bf16>;

}  // namespace gyr
