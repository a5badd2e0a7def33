// SPDX-License-Identifier: BSD-3-Clause
#include "src/dump/dump.hpp"

#include <algorithm>

#include "src/base/stopwatch.hpp"
#include "src/base/weight_pattern.hpp"
#include "src/checkpoint/file_sink.hpp"
#include "src/checkpoint/folder.hpp"
#include "src/checkpoint/host_copy.hpp"
#include "src/parallel/collective_check.hpp"

namespace gyr {

namespace {

constexpr int leader = 0;
constexpr std::string_view folder_text = R"(Dumps of gyrfalcon
==================

step_00000010/index.h5   numbers of training step 10, whole and in the same order whatever grid computed them; the files beside it hold them

  /model/PATH         the weights that the step used, under Hugging Face's names: dots as groups, without a leading "model."
  /gradients/PATH     of the loss, a mean over the predicted tokens, before clipping: with respect to a weight or, beside
                      embed_tokens/output and layers/N/output, to that activation
  /activations/PATH   (sample of the step, token, channel)
    embed_tokens/output, layers/N/output           residual stream
    layers/N/input_layernorm, pre_ff_layernorm     what the branches read; final_layernorm: what the head reads
    layers/N/mamba/projected                       z, x, B, C and dt, each with its multiplier
    layers/N/mamba/convolved, scan, gated          x, B and C behind convolution and SiLU; the scan's output; the same, gated and normed
    layers/N/self_attn/queries, keys, values       by head, queries and keys rotated; attended: what they gather
    layers/N/feed_forward/gate, up, inner          gate as projected; inner: SiLU of the gate times mlp_multipliers[0], times up

    import h5py
    h5py.File("step_00000010/index.h5")["activations/layers/3/mamba/scan"][...]

    gyrfalcon info step_00000010 --statistics
    gyrfalcon diff step_00000010 OTHER/dumps/step_00000010 --tolerance 1e-5
)";

// The weights and gradients that match.
template <class T>
std::vector<PlacedTensor> wanted_weights(Engine<T>& engine, const std::vector<std::string>& what) {
  std::vector<PlacedTensor> all;
  for (const PlacedWeight& placed : model_weights(engine.config().model, engine.grid().layout(), engine.config().optimizer.trained())) {
    const StoredTensor value = stored_tensors(placed, dtype_of<T>()).front();
    StoredTensor gradient{Content::gradient, value.weight_name, dtype_of<Acc<T>>(), value.shape};
    for (const StoredTensor& t : {value, gradient}) {
      if (t.content == Content::gradient && !placed.trained) continue;
      if (matches_any(what, path_of(t.content, t.weight_name))) all.push_back({t, placed});
    }
  }
  return all;
}

template <class T>
std::vector<int> every_rank(Engine<T>& engine) {
  std::vector<int> positions;
  for (int position = 0; position < engine.grid().layout().ranks(); ++position) positions.push_back(position);
  return positions;
}

}  // namespace

template <class T>
Dump<T>::Dump(const std::filesystem::path& folder, const CheckpointHeader& header, std::vector<std::string> what, Engine<T>& engine, Index samples,
              Note say)
    : what_(std::move(what)), engine_(engine), samples_(samples), say_(std::move(say)), weights_(wanted_weights(engine, what_)),
      header_(stamped(header, dtype_of<T>(), engine.grid().layout())) {
  const Stopwatch watch(seconds_);
  Communicator& world = engine_.grid().world();
  const std::filesystem::path target = checkpoint_path(folder, header.step);
  collective_check(world, [&] {
    Index bytes = 0;
    for (const PlacedTensor& t : weights_) bytes += elements(t.tensor.shape) * size_of(t.tensor.dtype);
    if (world.rank() == leader) transaction_ = std::make_unique<Transaction>(target, header_, bytes);
  });
  file_.emplace(Transaction::temporary(target) / shard_name(world.rank()), header_);
  engine_.set_hook(this);
}

template <class T>
Dump<T>::~Dump() {
  engine_.set_hook(nullptr);
}

template <class T>
LogicalTensor Dump<T>::activation(Observed observed, const std::string& name, Index columns) const {
  const bool gradient = observed == Observed::gradient;
  const Content content = gradient ? Content::gradient : Content::activation;
  return {path_of(content, name),
          name,
          std::string(gradient ? "gradient of the loss with respect to " : "activation ") + name,
          dtype_of<T>(),
          {samples_, engine_.config().seq_length, columns},
          std::string(name_of(dtype_of<T>()))};
}

// Row-major on the host.
template <class T>
const T* Dump<T>::packed(Matrix<const T> numbers) {
  const Index extent = (numbers.rows - 1) * numbers.stride + numbers.columns;
  const T* from = reinterpret_cast<const T*>(on_host(Tensor1<const T>(numbers.data, extent), copy_));
  if (numbers.stride == numbers.columns) return from;
  packed_.resize(std::size_t(numbers.rows * numbers.columns));
  for (Index r = 0; r < numbers.rows; ++r) std::copy_n(from + r * numbers.stride, numbers.columns, packed_.data() + r * numbers.columns);
  return packed_.data();
}

template <class T>
void Dump<T>::observe(Observed observed, const std::string& name, Matrix<const T> numbers, Index columns, std::span<const Held> boxes) {
  const LogicalTensor tensor = activation(observed, name, columns);
  if (failed_ || !matches_any(what_, tensor.path)) return;
  const Stopwatch watch(seconds_);
  const EngineConfig& config = engine_.config();
  const Index first = first_sample(config.micro_batch_size, micro_, engine_.grid());
  engine_.device().exec.fence();
  try {
    for (const Held& held : boxes) {
      if (!held.first_copy()) continue;  // a neighbour's
      const Index width = held.box.count[0];
      const Box box{{first, 0, held.box.first[0]}, {config.micro_batch_size, config.seq_length, width}};
      file_->write(tensor, box, config.micro_batch_size, packed(gyr::columns(numbers, held.local[0], width)));
    }
  } catch (const Error& error) {
    failed_ = error;
  }
}

template <class T>
void Dump<T>::write_weights() {
  FileSink sink([this](const GivenBox& b, Index rows, const void* data) { file_->write(logical(weights_[b.tensor].tensor), b.box, rows, data); });
  Delivery<T>(engine_, weights_, every_rank(engine_), true).run(&sink);
}

// Of what all ranks have written.
template <class T>
Manifest Dump<T>::whole(const std::vector<std::string>& parts) const {
  Manifest manifest{header_, {}, {}, {}};
  for (const std::string& text : parts)
    if (!text.empty()) add(manifest, dump_part(text));
  return manifest;
}

template <class T>
void Dump<T>::tell(const Manifest& m, double seconds) const {
  if (!say_) return;
  say_(fmt::format("dump {}, {} tensors of {:.1f} MB in {:.3f} s", transaction_->target().string(), m.tensors.size(), double(m.bytes()) / 1e6,
                   seconds));
  for (const std::string& pattern : what_)
    if (std::none_of(m.tensors.begin(), m.tensors.end(), [&](const LogicalTensor& t) { return matches(pattern, t.path); }))
      say_(fmt::format("dump.what: nothing is called {}; `gyrfalcon info` shows the names", pattern));
}

template <class T>
void Dump<T>::gradients_are_whole() {
  Communicator& world = engine_.grid().world();
  engine_.grid().tell("dump");
  std::optional<DumpPart> mine;
  try {
    collective_check(world, [&] {
      const Stopwatch watch(seconds_);
      if (failed_) throw *failed_;
      write_weights();
      mine = file_->finish();
    });
  } catch (...) {  // on every rank: none writes any more
    transaction_.reset();
    throw;
  }
  const double seconds = world.max(seconds_);
  const std::vector<std::string> parts = gather_texts(world, mine ? text_of(*mine) : "");
  collective_check(world, [&] {
    if (!transaction_) return;
    const Manifest manifest = whole(parts);
    transaction_->commit(manifest);
    write_readme(transaction_->target().parent_path(), folder_text);
    tell(manifest, seconds);
  });
}

template class Dump<double>;
template class Dump<float>;
template class Dump<bf16>;

}  // namespace gyr
