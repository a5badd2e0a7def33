// SPDX-License-Identifier: BSD-3-Clause
#include "src/dump/dump.hpp"

#include <algorithm>
#include <cstring>

#include "modules/settings/weight_pattern.hpp"
#include "src/base/stopwatch.hpp"
#include "src/checkpoint/file_sink.hpp"
#include "src/checkpoint/folder.hpp"
#include "src/checkpoint/host_copy.hpp"
#include "src/engine/step/engine.hpp"
#include "src/parallel/collective_check.hpp"

namespace gyr {

namespace {

constexpr int first_rank = 0;
constexpr std::string_view folder_text = R"(Dumps of gyrfalcon
==================

step_00000010/index.h5   tensors of training step 10, unsharded and in the same order for any grid; the other files of the folder hold the data

  /model/PATH         weights that the step used: /model/layers/0/mlp/... is Hugging Face's model.layers.0.mlp...
  /gradients/PATH     gradients of the loss, which is a mean over the predicted tokens, before clipping: with respect to a weight,
                      or to the activations embed_tokens/output and layers/N/output
  /activations/PATH   (sample of the step, token, channel)
    embed_tokens/output, layers/N/output           residual stream
    layers/N/input_layernorm, pre_ff_layernorm     input of the branches; final_layernorm: input of the head
    layers/N/mamba/projected                       z, x, B, C and dt, each with its multiplier
    layers/N/mamba/convolved, scan, gated          x, B and C after convolution and SiLU; output of the scan; the same after gate and norm
    layers/N/self_attn/queries, keys, values       by head, queries and keys after rotary embedding; attended: output of attention
    layers/N/feed_forward/gate, up, inner          gate as projected; inner: SiLU of the gate times mlp_multipliers[0], times up

    import h5py
    h5py.File("step_00000010/index.h5")["activations/layers/3/mamba/scan"][...]

    gyrfalcon info step_00000010 --statistics
    gyrfalcon diff step_00000010 OTHER/dumps/step_00000010 --tolerance 1e-5
)";

// Weights and gradients whose paths match the patterns.
std::vector<PlacedTensor> wanted_weights(ModelState& state, const std::vector<std::string>& what) {
  std::vector<PlacedTensor> all;
  for (const PlacedTensor& weight : model_weights(state.model(), state.precision(), state.grid().layout(), state.trained())) {
    if (matches_any(what, path_of(Content::weight, weight.weight.name))) all.push_back(weight);
    if (weight.trained && matches_any(what, path_of(Content::gradient, weight.weight.name)))
      all.push_back(like_weight(weight, Content::gradient, state.precision()));
  }
  return all;
}

std::vector<int> every_rank(ModelState& state) {
  std::vector<int> positions;
  for (int position = 0; position < state.grid().layout().ranks(); ++position) positions.push_back(position);
  return positions;
}

// Splits rows of a micro-batch from `first` on into pieces that are boxes. Calls visit(row, sequence, sequences, token,
// tokens).
template <class Visit>
void for_boxes(Index first, Index rows, Index seq_length, Visit&& visit) {
  for (Index row = 0; row < rows;) {
    const Index sequence = (first + row) / seq_length, token = (first + row) % seq_length;
    const Index full = token == 0 ? (rows - row) / seq_length : 0, tokens = full > 0 ? seq_length : std::min(seq_length - token, rows - row);
    visit(row, sequence, std::max<Index>(1, full), token, tokens);
    row += std::max<Index>(1, full) * tokens;
  }
}

}  // namespace

Dump::Dump(const std::filesystem::path& folder, const CheckpointHeader& header, std::vector<std::string> what, ModelState& state, Index samples,
           Note note)
    : what_(std::move(what)), state_(state), samples_(samples), note_(std::move(note)), weights_(wanted_weights(state, what_)),
      header_(stamped(header, state.precision(), state.grid().layout())) {
  const Stopwatch watch(seconds_);
  Communicator& world = state_.grid().world();
  const std::filesystem::path target = checkpoint_path(folder, header.step);
  collective_check(world, [&] {
    Index bytes = 0;
    for (const PlacedTensor& t : weights_) bytes += t.weight.size() * size_of(t.dtype);
    if (world.rank() == first_rank) transaction_ = std::make_unique<Transaction>(target, header_, bytes);
  });
  file_.emplace(Transaction::temporary(target) / shard_name(world.rank()), header_);
  state_.set_hook(this);
}

Dump::~Dump() { state_.set_hook(nullptr); }

StoredTensor Dump::activation(Observed observed, const std::string& name, DType dtype, Index columns) const {
  const bool gradient = observed == Observed::gradient;
  const Content content = gradient ? Content::gradient : Content::activation;
  return {path_of(content, name),
          name,
          std::string(gradient ? "gradient of the loss with respect to " : "activation ") + name,
          dtype,
          {samples_, state_.seq_length(), columns},
          std::string(name_of(dtype))};
}

// Columns `first` to `first + count` of x, row-major in host memory.
const std::byte* Dump::packed(const AnyMatrix& x, Index first, Index count) {
  const Index size = size_of(x.dtype), extent = (x.rows - 1) * x.stride + x.columns;
  const std::byte* from = on_host({const_cast<void*>(x.data), x.dtype, extent}, copy_);
  if (x.stride == count) return from;
  packed_.resize(std::size_t(x.rows * count * size));
  for (Index r = 0; r < x.rows; ++r) std::memcpy(packed_.data() + r * count * size, from + (r * x.stride + first) * size, std::size_t(count * size));
  return packed_.data();
}

void Dump::observe(Observed observed, const std::string& name, const AnyMatrix& values, Index first_row, Index columns, std::span<const Held> boxes) {
  const StoredTensor tensor = activation(observed, name, values.dtype, columns);
  if (failed_ || !matches_any(what_, tensor.path)) return;
  const Stopwatch watch(seconds_);
  const Index sample = first_sample(state_.micro_batch_size(), micro_, state_.grid());
  state_.device().fence();
  try {
    for (const Held& held : boxes) {
      if (!held.first_copy()) continue;  // another rank holds the first copy of this box and writes it
      const Index width = held.box.count[0];
      for_boxes(first_row, values.rows, state_.seq_length(), [&](Index row, Index sequence, Index sequences, Index token, Index tokens) {
        const Box box{{sample + sequence, token, held.box.first[0]}, {sequences, tokens, width}};
        file_->write(tensor, box, sequences, packed(rows(values, row, sequences * tokens), held.local[0], width));
      });
    }
  } catch (const Error& error) {
    failed_ = error;
  }
}

void Dump::write_weights() {
  FileSink sink([this](const Move& b, Index rows, const void* data) { file_->write(stored_tensor(weights_[b.tensor]), b.box, rows, data); });
  Delivery(state_, weights_, every_rank(state_), true).run(&sink);
}

// Manifest of the files of all ranks.
Manifest Dump::full(const std::vector<std::string>& parts) const {
  Manifest manifest{header_, {}, {}, {}};
  for (const std::string& text : parts)
    if (!text.empty()) add(manifest, dump_part(text));
  return manifest;
}

void Dump::log_dump(const Manifest& m, double seconds) const {
  if (!note_) return;
  note_(fmt::format("dump {}, {} tensors of {:.1f} MB in {:.3f} s", transaction_->target().string(), m.tensors.size(), double(m.bytes()) / 1e6,
                    seconds));
  for (const std::string& pattern : what_)
    if (std::none_of(m.tensors.begin(), m.tensors.end(), [&](const StoredTensor& t) { return matches(pattern, t.path); }))
      note_(fmt::format("dump.what: no tensor matches {}; `gyrfalcon info` lists the names", pattern));
}

void Dump::gradients_are_reduced() {
  Communicator& world = state_.grid().world();
  state_.grid().begin_task("dump");
  std::optional<DumpPart> mine;
  try {
    collective_check(world, [&] {
      const Stopwatch watch(seconds_);
      if (failed_) throw *failed_;
      write_weights();
      mine = file_->finish();
    });
  } catch (...) {  // collective_check throws on every rank, so no rank is still writing
    transaction_.reset();
    throw;
  }
  const double seconds = world.max(seconds_);
  const std::vector<std::string> parts = gather_texts(world, mine ? text_of(*mine) : "");
  collective_check(world, [&] {
    if (!transaction_) return;
    const Manifest manifest = full(parts);
    transaction_->commit(manifest);
    write_readme(transaction_->target().parent_path(), folder_text);
    log_dump(manifest, seconds);
  });
}

}  // namespace gyr
