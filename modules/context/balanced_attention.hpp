// SPDX-License-Identifier: BSD-3-Clause
// Load-balanced context parallel attention (DistFlashAttention): every rank computes the same number of pairs of query
// and key blocks (balanced_schedule.hpp). At each step either keys and values travel to the rank that has the queries,
// or queries travel to the rank that has the keys and values. Results travel back: the softmax state (o, m, l) of the
// queries, or gradients. The transfers of the next step overlap with the current one, and results arrive one step
// later. If every query head has its own key head, this moves half the bytes of ring attention. If more than four or
// five query heads share a key head, ring attention moves fewer bytes.
#pragma once

#include <array>

#include "modules/context/balanced_schedule.hpp"
#include "modules/context/context_attention.hpp"

namespace gyr {

template <class T>
class BalancedAttention final : public ContextAttention<T> {
 public:
  BalancedAttention(Pass& a, const AttentionShape& heads, const ScoreRule& scores, Index window);
  void forward(Matrix<const T> q, Matrix<const T> k, Matrix<const T> v, Tensor2<T> out, Tensor2<Acc<T>> lse, const Sinks<Acc<T>>&) override;
  void backward(Matrix<const T> q, Matrix<const T> k, Matrix<const T> v, Tensor2<const T> dout, Tensor2<const Acc<T>> lse,
                Tensor2<const Acc<T>> delta, Matrix<Acc<T>> dq, Matrix<Acc<T>> dk, Matrix<Acc<T>> dv, const Sinks<Acc<T>>&) override;

 private:
  using A = Acc<T>;
  using Events = std::array<Event, 2>;
  // Elements per token row in a transfer: of K and V data (`keys`), and of Q data or results for queries (`queries`).
  struct Widths {
    Index keys, queries;
    Index of(Moved what) const { return what == Moved::keys ? keys : what == Moved::queries ? queries : 0; }
  };
  enum Tag { inputs, statistics, results };
  struct Queries {
    Matrix<const T> q;
    Tensor2<const T> dout;
    Tensor2<const A> lse, delta;
    Matrix<A> dq;
  };
  struct Keys {
    Matrix<const T> k, v;
    Matrix<A> dk, dv;
  };

  Index q_width() const { return shape_.num_heads * shape_.head_dim; }
  Index k_width() const { return shape_.num_kv_heads * shape_.head_dim; }
  Index v_width() const { return shape_.num_kv_heads * shape_.v_head_dim; }
  Index out_width() const { return shape_.num_heads * shape_.v_head_dim; }

  // Matrices that are sent together are packed into one buffer, one after the other. Returns the matrix of `width`
  // columns that begins after the first `before` columns of the buffer.
  template <class S>
  Tensor2<S> part(Tensor1<S> run, Index before, Index width) const {
    return Tensor2<S>(run.data() + before * s_.rows(), s_.rows(), width);
  }
  AttentionState<A> state_in(Tensor1<A> run) const;
  // Scratch buffer for the largest message of any step, received or sent as the member pointer selects; empty if there
  // is no such message. `scratch_pair`: two buffers for received messages (double buffering).
  template <class S>
  Tensor1<S> scratch_of(const char* name, const Widths&, Moved BalancedStep::*) const;
  template <class S>
  std::array<Tensor1<S>, 2> scratch_pair(const char* name, const Widths&) const;
  // A packed copy of the matrices that are sent as keys or as queries. Empty if this rank never sends these.
  template <class S>
  Tensor1<S> copied(const char* name, Moved, std::initializer_list<Matrix<const S>>) const;

  // there(): sends and receives the inputs of a step. back(): returns the results of that step in the opposite
  // direction.
  template <class S>
  Event there(const BalancedStep&, const Widths&, Tensor1<const S> leaving, Tensor1<S> arriving, Tag) const;
  template <class S>
  Event back(const BalancedStep&, const Widths&, Tensor1<const S> leaving, Tensor1<S> arriving) const;
  // Software pipeline over the steps: fetch(t) starts the input transfers of step t, compute(t) computes it, give_back(t)
  // starts the return of its results, and take(t) adds the results that were returned.
  template <class Fetch, class Compute, class GiveBack, class Take>
  void walk(const Fetch&, const Compute&, const GiveBack&, const Take&) const;
  // Calls compute(first row, mask) for every sequence of the block pair that this rank computes at a step.
  template <class Compute>
  void for_each_sequence(const BalancedStep&, const Compute& compute) const;

  Pass& a_;
  const SequenceLayout& s_;
  AttentionShape shape_, block_;  // attention shape for all sequences of this rank; attention shape for one sequence (`block_`)
  ScoreRule scores_;
  Index window_;
  std::vector<BalancedStep> steps_;
};

}  // namespace gyr
