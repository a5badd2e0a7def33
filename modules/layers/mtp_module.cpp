// SPDX-License-Identifier: BSD-3-Clause
#include "modules/layers/mtp_module.hpp"

#include "kernels/ops/gemm.hpp"
#include "modules/model/model_chains.hpp"
#include "modules/pass/stream.hpp"

namespace gyr {

namespace {

constexpr const char *forward_purpose = "multi-token prediction, forward: rows x hidden",
                     *backward_purpose = "multi-token prediction, backward: rows x hidden";

Parameter* declare_joint(const ModelConfig& c, const std::string& name, Parameters& parameters) {
  return &parameters.declare({name + ".weight", {c.hidden_size, 2 * c.hidden_size}, by_rows({{c.hidden_size, 0}}), normal(c.init_std)});
}

std::vector<std::unique_ptr<Layer>> make_layers(const ModelConfig& c, const std::string& name, const std::string& pattern, Parameters& parameters) {
  std::vector<std::unique_ptr<Layer>> layers;
  for (const char symbol : pattern) layers.push_back(layer_type(symbol).make(c, fmt::format("{}.{}", name, layers.size()), parameters));
  return layers;
}

}  // namespace

// Operator chains of an MTP module. The normed embedding and the normed stream count as one tensor of 2 D channels.
ModelChains mtp_chains(const ModelConfig& c, const std::string& name) {
  const Index width = c.hidden_size;
  Operator norms = over_rows("norms", undivided(2 * width), undivided(2 * width));
  for (const char* norm : {".enorm", ".hnorm"}) norms.weights.push_back(norm_operator(c, name + norm).weights.front());
  return {{"joined", {norms, gemm_operator("join", undivided(2 * width), by_units({{width, 0}}), {name + ".eh_proj"})}},
          {"output", {norm_operator(c, name + ".norm")}}};
}

template <class T>
MtpModule<T>::MtpModule(const ModelConfig& c, const std::string& name, const std::string& pattern, Parameters& parameters)
    : name_(name), multiplier_(c.embedding_multiplier), dropped_(c.dropout.embedding), pad_token_id_(c.pad_token_id),
      enorm_(c, name + ".enorm", parameters), hnorm_(c, name + ".hnorm", parameters), eh_proj_(declare_joint(c, name + ".eh_proj", parameters)),
      layers_(make_layers(c, name + ".layers", pattern, parameters)), norm_(c, name + ".norm", parameters) {}

template <class T>
template <class S>
Matrix<S> MtpModule<T>::columns_here(Tensor2<S> y) const {
  return columns(y, eh_proj_->first(0), rows_here());
}

template <class T>
template <class S>
Matrix<S> MtpModule<T>::half(Tensor2<S> of_matrix, int which) const {
  const Index width = Index(of_matrix.extent(1)) / 2;
  return Matrix<S>(of_matrix).block(0, rows_here(), which * width, width);
}

template <class T>
Tensor2<T> MtpModule<T>::embed(Pass& a, Frame& frame, const Parameter& table) {
  const auto e = frame.put(Keys::embedded, a.stream.rows_per_part(), table.columns());
  Scope scope(a.dev.scratch);
  AllRows<T> sum(a, "partial embeddings", e);
  embedding<T>(a.dev, frame.get(Keys::ahead), table.template matrix<const T>(), table.first(0), multiplier_, sum.rows());
  sum.reduce();
  a.drop<T>(a.dropout(name_, dropped_), e, e);
  return e;
}

template <class T>
void MtpModule<T>::embed_backward(Pass& a, Frame& frame, const Parameter& table, Tensor2<T> dx) {
  if (!table.trained) return;
  a.drop<T>(a.dropout(name_, dropped_), dx, dx);
  Scope scope(a.dev.scratch);
  embedding_backward<T>(a.dev, frame.get(Keys::ahead), AllRows<T>(a, "gradient, all rows", dx).gather(), table.first(0), multiplier_, pad_token_id_,
                        table.template matrix_gradient<Acc<T>>());
}

template <class T>
Tensor2<T> MtpModule<T>::join(Pass& a, Frame& frame, Tensor2<T> e, Tensor2<T> h) {
  const auto y = frame.put(Keys::joined, h.extent(0), h.extent(1));
  Scope scope(a.dev.scratch);
  AllRows<T> all_e(a, "embedding, all rows", e), all_h(a, "stream, all rows", h), sum(a, "partial eh_proj output", y);
  const Matrix<T> mine = columns_here(sum.rows());
  if (mine.columns < Index(y.extent(1))) fill<T>(a.dev, flat(sum.rows()), 0);
  const auto w = eh_proj_->template matrix<const T>();
  const Tensor2<T> of_e = all_e.gather(), of_h = all_h.gather();
  if (mine.columns > 0) {
    linear<T>(a.dev, of_e, half(w, 0), mine);
    linear<T>(a.dev, of_h, half(w, 1), mine, 1, 1);
  }
  sum.reduce();
  return y;
}

// With u = [e ; h]:   du = dy M,   dM += dy' u
template <class T>
void MtpModule<T>::join_backward(Pass& a, Frame& frame, Tensor2<T> dy, Tensor2<T> de, Tensor2<T> dh) {
  Scope scope(a.dev.scratch);
  const Matrix<T> mine = columns_here(AllRows<T>(a, "gradient, all rows", dy).gather());
  const auto w = eh_proj_->template matrix<const T>();
  const auto dw = eh_proj_->template matrix_gradient<Acc<T>>();
  const auto one = [&](int which, const Norm<T>& norm, Tensor2<T> dx) {
    Scope of_half(a.dev.scratch);
    if (eh_proj_->trained) {
      const Tensor2<T> x = AllRows<T>(a, "normed, all rows", norm.normed_rows(frame.nested(which))).gather();
      if (mine.columns > 0) linear_backward_weight<T>(a.dev, mine, x, half(dw, which));
    }
    AllRows<T> sum(a, "partial sums", dx);
    if (mine.columns > 0) linear_backward_input<T>(a.dev, mine, half(w, which), sum.rows());
    else fill<T>(a.dev, flat(sum.rows()), 0);
    sum.reduce();
  };
  one(of_embedding, enorm_, de);
  one(of_stream, hnorm_, dh);
}

template <class T>
Tensor2<T> MtpModule<T>::forward(Pass& a, Frame& frame, const Parameter& table, Tensor1<const Token> ahead, Tensor2<T> h) {
  const Device::Purpose purpose(a.dev, forward_purpose);
  frame.refer(Keys::ahead, ahead);
  const Tensor2<T> e = enorm_.forward(a, frame.nested(of_embedding, "norm of the embedding"), embed(a, frame, table));
  const Tensor2<T> normed = hnorm_.forward(a, frame.nested(of_stream, "norm of the stream"), h);
  Bundle bundle{join(a, frame, e, normed)};
  for (std::size_t i = 0; i < layers_.size(); ++i) layers_[i]->forward(a, frame.nested(first_layer + int(i), "layer"), bundle);
  const auto output = bundle.x().template as<T>();
  frame.refer(Keys::output, output);
  a.show(Observed::activation, name_ + ".output", bundle.x());
  return output;
}

template <class T>
Tensor2<T> MtpModule<T>::normed(Pass& a, Frame& frame) {
  return norm_.forward(a, frame.nested(of_output, "norm of the output"), frame.get(Keys::output));
}

template <class T>
void MtpModule<T>::normed_backward(Pass& a, Frame& frame, Tensor2<const T> dy, Add add, Tensor2<T> dh) {
  norm_.backward(a, frame.nested(of_output), dy, add, dh);
}

template <class T>
void MtpModule<T>::backward(Pass& a, Frame& frame, const Parameter& table, Tensor2<T> dh) {
  const Device::Purpose purpose(a.dev, backward_purpose);
  Bundle gradient{dh};
  a.show(Observed::gradient, name_ + ".output", gradient.x());
  for (std::size_t i = layers_.size(); i-- > 0;) layers_[i]->backward(a, frame.nested(first_layer + int(i)), gradient, MatrixGradients::now);
  Scope scope(a.dev.scratch);
  const auto normed = [&](const char* name) { return a.scratch<T>(name, Index(dh.extent(0)), Index(dh.extent(1))); };
  const auto de = normed("gradient of the normed embedding"), dn = normed("gradient of the normed stream");
  join_backward(a, frame, dh, de, dn);
  hnorm_.backward(a, frame.nested(of_stream), dn, Add::no, dh);
  enorm_.backward(a, frame.nested(of_embedding), de, Add::no, dn);
  embed_backward(a, frame, table, dn);
}

template class MtpModule<double>;
template class MtpModule<float>;
template class MtpModule<bf16>;

}  // namespace gyr
