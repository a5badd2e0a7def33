// SPDX-License-Identifier: BSD-3-Clause
// Attention of ranks that share sequences in blocks, each with as many pairs of blocks to compute (balanced_schedule.hpp): keys and values travel to
// queries, or queries to keys and values, and what has come of them travels back: the state (o, m, l) of queries, or gradients. What the next
// step needs is on its way while this one is computed, and results arrive one step later. Where every query head has keys of its own this moves half
// the bytes of a ring; where many share theirs (more than four or five), a ring moves fewer.
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
  // Numbers of each row that travel with keys or with queries.
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

  // Matrices that travel together lie one behind the other. Of such a run the columns behind so many others:
  template <class S>
  Tensor2<S> part(Tensor1<S> run, Index before, Index width) const {
    return Tensor2<S>(run.data() + before * s_.rows(), s_.rows(), width);
  }
  AttentionState<A> state_in(Tensor1<A> run) const;
  // Scratch for the widest of what is received, or sent, at any step.
  template <class S>
  Tensor1<S> room(const char* name, const Widths&, Moved BalancedStep::*) const;
  template <class S>
  std::array<Tensor1<S>, 2> rooms(const char* name, const Widths&) const;
  // A copy of what is sent with keys or with queries, if this rank ever does so.
  template <class S>
  Tensor1<S> copied(const char* name, Moved, std::initializer_list<Matrix<const S>>) const;

  // Sends and receives what a step needs; and the other way round what has come of it.
  template <class S>
  Event there(const BalancedStep&, const Widths&, Tensor1<const S> leaving, Tensor1<S> arriving, Tag) const;
  template <class S>
  Event back(const BalancedStep&, const Widths&, Tensor1<const S> leaving, Tensor1<S> arriving) const;
  template <class S>
  Event exchange(Tensor1<const S> leaving, int to, Tensor1<S> arriving, int from, Tag) const;
  // fetch(t) and give_back(t) start transfers for and behind step t; meet(t) computes it; take(t) adds what has come back of it.
  template <class Fetch, class Meet, class GiveBack, class Take>
  void walk(const Fetch&, const Meet&, const GiveBack&, const Take&) const;
  // meet(first row, mask) for the blocks of a step, sequence by sequence.
  template <class Meet>
  void for_each_sequence(const BalancedStep&, const Meet& meet) const;

  Pass& a_;
  const SequenceLayout& s_;
  AttentionShape shape_, block_;  // of this rank's rows; of one sequence's
  ScoreRule scores_;
  Index window_;
  std::vector<BalancedStep> steps_;
};

}  // namespace gyr
