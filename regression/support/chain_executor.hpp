// SPDX-License-Identifier: BSD-3-Clause
// Reference executor for the operator chains of regression/support/random_chain.hpp, on ranks that hold tensors and weights as
// a layout distributes them. Local computation uses plain loops in double, and communication uses the project's
// communicators. It runs forward and backward; closures keep what the backward pass needs.
#pragma once

#include <cmath>
#include <functional>
#include <map>
#include <memory>

#include "kernels/comm/communicator.hpp"
#include "modules/weights/operator_chain.hpp"
#include "modules/weights/placement.hpp"

namespace gyr::testing {

using Reals = std::vector<double>;

// A pseudo-random value in [-1, 1), a function of name and index.
inline double drawn(const std::string& name, Index i) { return 2 * Stream(1, name).uniform(i) - 1; }

inline std::string direction_of(const std::string& name) { return "direction of " + name; }

class ChainExecutor {
 public:
  struct Run {
    Reals y;
    std::function<Reals(const Reals& dy)> backward;  // returns dx
  };

  // Weights are drawn by their names. Each weight is displaced by `nudge` times a random direction of its own.
  ChainExecutor(Communicator& ranks, Device& dev, Index rows, double nudge = 0) : ranks_(ranks), dev_(dev), rows_(rows), nudge_(nudge) {}

  // Runs the chain. x and y are this rank's parts, in the states in which the layout begins and ends.
  Run run(const OperatorChain& chain, const ChainLayout& layout, const Reals& x) {
    return run(chain, layout, chain.front().in, std::make_shared<Value>(x));
  }
  // Gradients of full weights, to be summed over all ranks: the contribution of this rank.
  const std::map<std::string, Reals>& gradients() const { return gradients_; }

  // Part of a full tensor that this rank has in the given state.
  Reals part(const Reals& all, const Channels& c, TensorState state) const {
    if (state == TensorState::rows) return take_rows(all, c.width);
    return state == TensorState::units ? take_units(all, c, false) : all;
  }
  Index rows_in(TensorState state) const { return state == TensorState::rows ? rows_ / ranks_.size() : rows_; }

 private:
  // A tensor that the backward pass needs: either kept, or gathered again by `again`.
  struct Value {
    Reals now;
    std::function<Reals()> again = {};

    Reals in_backward() {
      if (again) now = again(), again = {};
      return now;
    }
  };
  using Shared = std::shared_ptr<Value>;

  Run run(const OperatorChain& chain, const ChainLayout& layout, Channels channels, Shared x) {
    std::vector<std::function<Reals(const Reals&)>> backwards;
    for (const LayoutStep& step : layout.steps) {
      const auto y = std::make_shared<Value>();
      Run done;
      if (step.op < 0) {
        done = move(step, channels, x, y);
      } else {
        const Operator& op = chain[step.op];
        done = op.branches.empty() ? apply(op, step, x) : sum(op, step, x);
        channels = op.out;
      }
      y->now = done.y;
      backwards.push_back(std::move(done.backward));
      x = y;
    }
    return {x->now, [backwards](const Reals& dy) {
              Reals d = dy;
              for (std::size_t i = backwards.size(); i-- > 0;) d = backwards[i](d);
              return d;
            }};
  }

  Run sum(const Operator& op, const LayoutStep& step, const Shared& x) {
    std::vector<Run> branches;
    for (std::size_t i = 0; i < op.branches.size(); ++i) branches.push_back(run(op.branches[i], step.branches[i], op.in, x));
    Run all{branches[0].y, {}};
    for (std::size_t i = 1; i < branches.size(); ++i) add(branches[i].y, all.y);
    all.backward = [branches](const Reals& dy) {
      Reals dx = branches.back().backward(dy);
      for (std::size_t i = branches.size() - 1; i-- > 0;) add(branches[i].backward(dy), dx);
      return dx;
    };
    return all;
  }
  static void add(const Reals& x, Reals& y) {
    for (std::size_t i = 0; i < y.size(); ++i) y[i] += x[i];
  }

  // --- moves between states

  // A tensor that was gathered along rows is not kept: the first use in the backward pass gathers it again.
  Run move(const LayoutStep& step, const Channels& c, const Shared& x, const Shared& y) {
    const bool of_rows = step.in == TensorState::rows || step.out == TensorState::rows;
    const bool one_of_copies = step.in == TensorState::units && step.out == TensorState::partial;
    const Act forward = step.move_forward, backward = step.move_backward;
    const auto act = [=, this](Act a, const Reals& v) { return this->act(a, v, c, of_rows, one_of_copies); };
    const bool gathered = forward == Act::gather && of_rows;
    if (gathered || (forward < Act::sum && x->again)) y->again = [=] { return act(forward, x->in_backward()); };
    return {act(forward, x->now), [=](const Reals& dy) {
              if (gathered) y->in_backward();
              return act(backward, dy);
            }};
  }

  Reals act(Act a, const Reals& x, const Channels& c, bool of_rows, bool one_of_copies) {
    switch (a) {
      case Act::keep: return x;
      case Act::once: return ranks_.rank() == 0 ? x : Reals(x.size());
      case Act::take: return of_rows ? take_rows(x, c.width) : take_units(x, c, one_of_copies);
      case Act::pad: return of_rows ? pad_rows(x) : pad_units(x, c, one_of_copies);
      case Act::sum: return all_sum(x);
      case Act::gather: return of_rows ? all_gather(x) : in_order(all_gather(x), c);
      case Act::scatter: return reduce_scatter(of_rows ? x : by_rank(x, c));
    }
    return {};
  }

  Reals take_rows(const Reals& x, Index width) const {
    const Index each = Index(x.size()) / ranks_.size();
    ensure(each == rows_ / ranks_.size() * width, "rows");
    return Reals(x.begin() + ranks_.rank() * each, x.begin() + (ranks_.rank() + 1) * each);
  }
  Reals pad_rows(const Reals& x) const {
    Reals y(x.size() * std::size_t(ranks_.size()));
    std::copy(x.begin(), x.end(), y.begin() + ranks_.rank() * Index(x.size()));
    return y;
  }
  Placement placed(const Channels& c, int rank) const {
    Coordinates at;
    at[Axis::tensor] = {ranks_.size(), rank};
    return place({"channels", {c.width}, by_rows(c.units), zeros()}, at);
  }
  // Calls visit(column of the full tensor, column of the rank's shard).
  template <class Visit>
  void for_columns(const Channels& c, int rank, bool one_of_copies, const Visit& visit) const {
    for (const Held& held : placed(c, rank).boxes)
      for (Index i = 0; i < held.box.count[0]; ++i)
        if (!one_of_copies || held.first_copy()) visit(held.box.first[0] + i, held.local[0] + i);
  }
  Reals take_units(const Reals& x, const Channels& c, bool one_of_copies) const { return columns_of(x, c, ranks_.rank(), one_of_copies); }
  Reals columns_of(const Reals& x, const Channels& c, int rank, bool one_of_copies) const {
    const Index local_channels = channels_per_rank(c, ranks_.size());
    Reals y(std::size_t(rows_ * local_channels));
    for_columns(c, rank, one_of_copies, [&](Index from, Index to) {
      for (Index r = 0; r < rows_; ++r) y[r * local_channels + to] = x[r * c.width + from];
    });
    return y;
  }
  Reals pad_units(const Reals& x, const Channels& c, bool one_of_copies) const {
    const Index local_channels = channels_per_rank(c, ranks_.size());
    Reals y(std::size_t(rows_ * c.width));
    for_columns(c, ranks_.rank(), one_of_copies, [&](Index to, Index from) {
      for (Index r = 0; r < rows_; ++r) y[r * c.width + to] = x[r * local_channels + from];
    });
    return y;
  }
  // in_order: concatenated column shards of all ranks to full rows. by_rank: the inverse.
  Reals in_order(const Reals& x, const Channels& c) const {
    const Index local_channels = channels_per_rank(c, ranks_.size());
    Reals y(std::size_t(rows_ * c.width));
    for (int rank = 0; rank < ranks_.size(); ++rank)
      for_columns(c, rank, false, [&](Index to, Index from) {
        for (Index r = 0; r < rows_; ++r) y[r * c.width + to] = x[(rank * rows_ + r) * local_channels + from];
      });
    return y;
  }
  Reals by_rank(const Reals& x, const Channels& c) const {
    Reals y;
    for (int rank = 0; rank < ranks_.size(); ++rank) {
      const Reals mine = columns_of(x, c, rank, false);
      y.insert(y.end(), mine.begin(), mine.end());
    }
    return y;
  }

  static Tensor1<double> view(Reals& x) { return Tensor1<double>(x.data(), Index(x.size())); }
  Reals all_sum(Reals x) {
    ranks_.all_reduce(dev_, view(x));
    return x;
  }
  Reals all_gather(Reals x) {
    Reals all(x.size() * std::size_t(ranks_.size()));
    ranks_.all_gather<double>(dev_, view(x), view(all));
    return all;
  }
  Reals reduce_scatter(Reals x) {
    Reals mine(x.size() / std::size_t(ranks_.size()));
    ranks_.reduce_scatter<double>(dev_, view(x), view(mine));
    return mine;
  }

  // --- operators

  Run apply(const Operator& op, const LayoutStep& step, const Shared& x) {
    const std::string kind = op.name.substr(0, op.name.find(' '));
    if (kind == "linear") return linear(op, step, x);
    if (kind == "pointwise") return pointwise(x);
    if (kind == "norm") return norm(op, step, x);
    if (kind == "attention") return attention(op, step, x);
    ensure(kind == "scan", "operator {} has an unknown kind", op.name);
    return scan(op, step, x);
  }

  // This rank's shard of a weight. `counts`: true if this rank contributes to the full gradient, false if another rank
  // computes the same values.
  struct Local {
    Weight weight;
    Placement held;
    Reals values;
    bool counts;
  };
  Local local(const OperatorWeight& w, const LayoutStep& step) {
    Coordinates at;
    at[Axis::tensor] = {ranks_.size(), ranks_.rank()};
    Local l{{w.name, w.shape, w.shardings(step.split), zeros()}, {}, {}, ranks_.rank() == 0};
    l.held = place(l.weight, at);
    l.counts = l.counts || step.split != WeightSplit::nowhere || step.in != TensorState::full;
    l.values.resize(std::size_t(elements(l.held.shape)));
    stretches(l.weight, l.held, [&](Index logical, Index here, Index count, const Held&) {
      for (Index i = 0; i < count; ++i) l.values[here + i] = drawn(w.name, logical + i) + nudge_ * drawn(direction_of(w.name), logical + i);
    });
    gradients_[w.name].resize(std::size_t(elements(w.shape)));
    return l;
  }
  void add_gradient(const Local& l, const Reals& d) {
    Reals& all = gradients_[l.weight.name];
    if (l.counts)
      stretches(l.weight, l.held, [&](Index logical, Index here, Index count, const Held&) {
        for (Index i = 0; i < count; ++i) all[logical + i] += d[here + i];
      });
  }

  // y = x w'. If neighbouring ranks hold copies of an input column, only the first copy counts.
  Run linear(const Operator& op, const LayoutStep& step, const Shared& x) {
    const Local w = local(op.weights[0], step);
    const Index n = w.held.shape[0], k = w.held.shape[1], rows = rows_in(step.in);
    Reals counts(std::size_t(k), 1);
    if (step.in == TensorState::units)
      for (const Held& held : placed(op.in, ranks_.rank()).boxes)
        for (Index i = 0; i < held.box.count[0]; ++i) counts[held.local[0] + i] = held.first_copy();
    Reals y(std::size_t(rows * n));
    for (Index r = 0; r < rows; ++r)
      for (Index o = 0; o < n; ++o)
        for (Index i = 0; i < k; ++i) y[r * n + o] += w.values[o * k + i] * counts[i] * x->now[r * k + i];
    return {y, [=, this](const Reals& dy) {
              const Reals in = x->in_backward();
              Reals dx(std::size_t(rows * k)), dw(w.values.size());
              for (Index r = 0; r < rows; ++r)
                for (Index o = 0; o < n; ++o)
                  for (Index i = 0; i < k; ++i) {
                    dx[r * k + i] += w.values[o * k + i] * counts[i] * dy[r * n + o];
                    dw[o * k + i] += dy[r * n + o] * counts[i] * in[r * k + i];
                  }
              add_gradient(w, dw);
              return dx;
            }};
  }

  Run pointwise(const Shared& x) {
    Reals y = x->now;
    for (double& v : y) v = std::tanh(v);
    return {y, [=](const Reals& dy) {
              Reals dx = x->in_backward();
              for (std::size_t i = 0; i < dx.size(); ++i) dx[i] = dy[i] * (1 - std::tanh(dx[i]) * std::tanh(dx[i]));
              return dx;
            }};
  }

  // y = g x k, k = 1 / sqrt(<x,x> / D + eps).   dx = k (g dy - x k^2 <g dy, x> / D)
  Run norm(const Operator& op, const LayoutStep& step, const Shared& x) {
    const Local g = local(op.weights[0], step);
    const Index width = op.in.width, rows = rows_in(step.in);
    const auto scale = [=](const Reals& x, Index r) {
      double squares = 0;
      for (Index i = 0; i < width; ++i) squares += x[r * width + i] * x[r * width + i];
      return 1 / std::sqrt(squares / double(width) + 1e-2);
    };
    Reals y = x->now;
    for (Index r = 0; r < rows; ++r)
      for (Index i = 0; i < width; ++i) y[r * width + i] = g.values[i] * x->now[r * width + i] * scale(x->now, r);
    return {y, [=, this](const Reals& dy) {
              const Reals in = x->in_backward();
              Reals dx(in.size()), dg(g.values.size());
              for (Index r = 0; r < rows; ++r) {
                const double k = scale(in, r);
                double along = 0;
                for (Index i = 0; i < width; ++i) along += g.values[i] * dy[r * width + i] * in[r * width + i] / double(width);
                for (Index i = 0; i < width; ++i) {
                  dx[r * width + i] = k * (g.values[i] * dy[r * width + i] - in[r * width + i] * k * k * along);
                  dg[i] += dy[r * width + i] * in[r * width + i] * k;
                }
              }
              add_gradient(g, dg);
              return dx;
            }};
  }

  // Units (heads, groups) of one range of channels on this rank: their number, the channels of each, and the first
  // column.
  struct Units {
    Index count, each, first;
  };
  std::vector<Units> units_of(const Channels& c, TensorState state) const {
    std::vector<Units> all;
    Index first = 0;
    for (const gyr::Run& run : c.units) {
      const Index each = run.extent / run.units,
                  extent = state == TensorState::units ? channels_per_rank(by_units({run}), ranks_.size()) : run.extent;
      all.push_back({extent / each, each, first});
      first += extent;
    }
    return all;
  }
  Index width_of(const Channels& c, TensorState state) const { return state == TensorState::units ? channels_per_rank(c, ranks_.size()) : c.width; }

  // Causal attention; all rows are one sequence: p = softmax(q k'), y = p v.   ds = p (dp - <p, dp>)
  Run attention(const Operator& op, const LayoutStep& step, const Shared& x) {
    const auto runs = units_of(op.in, step.in);
    const Units q = runs[0], k = runs[1], v = runs[2];
    const Index in_width = width_of(op.in, step.in), out_width = width_of(op.out, step.in);
    const auto weights = [=](const Reals& x, Index h, Index t) {
      Reals p(std::size_t(t) + 1);
      double sum = 0;
      for (Index s = 0; s <= t; ++s) {
        double score = 0;
        for (Index e = 0; e < q.each; ++e)
          score += x[t * in_width + q.first + h * q.each + e] * x[s * in_width + k.first + h * k.count / q.count * k.each + e];
        sum += p[s] = std::exp(score);
      }
      for (double& w : p) w /= sum;
      return p;
    };
    Reals y(std::size_t(rows_ * out_width));
    for (Index h = 0; h < q.count; ++h)
      for (Index t = 0; t < rows_; ++t) {
        const Reals p = weights(x->now, h, t);
        for (Index s = 0; s <= t; ++s)
          for (Index e = 0; e < q.each; ++e)
            y[t * out_width + h * q.each + e] += p[s] * x->now[s * in_width + v.first + h * v.count / q.count * v.each + e];
      }
    return {y, [=, this](const Reals& dy) {
              const Reals in = x->in_backward();
              Reals dx(in.size());
              for (Index h = 0; h < q.count; ++h)
                for (Index t = 0; t < rows_; ++t) {
                  const Reals p = weights(in, h, t);
                  const Index at_q = t * in_width + q.first + h * q.each, at_y = t * out_width + h * q.each;
                  const auto at_k = [&](Index s) { return s * in_width + k.first + h * k.count / q.count * k.each; };
                  const auto at_v = [&](Index s) { return s * in_width + v.first + h * v.count / q.count * v.each; };
                  Reals dp(p.size());
                  double mean = 0;
                  for (Index s = 0; s <= t; ++s)
                    for (Index e = 0; e < q.each; ++e) {
                      dp[s] += dy[at_y + e] * in[at_v(s) + e], mean += p[s] * dy[at_y + e] * in[at_v(s) + e];
                      dx[at_v(s) + e] += p[s] * dy[at_y + e];
                    }
                  for (Index s = 0; s <= t; ++s)
                    for (Index e = 0; e < q.each; ++e) {
                      const double ds = p[s] * (dp[s] - mean);
                      dx[at_q + e] += ds * in[at_k(s) + e], dx[at_k(s) + e] += ds * in[at_q + e];
                    }
                }
              return dx;
            }};
  }

  // Scan with independent heads: S_t = a_t S_{t-1} + x_t B_t', y_t = S_t C_t, a_t = sigmoid(dt_t + w). Groups of heads
  // share B and C.
  Run scan(const Operator& op, const LayoutStep& step, const Shared& x) {
    const Local w = local(op.weights[0], step);
    const auto runs = units_of(op.in, step.in);
    const Units u = runs[0], b = runs[1], c = runs[2], d = runs[3];
    const Index in_width = width_of(op.in, step.in), out_width = width_of(op.out, step.in), n = b.each, size = u.each * n;
    const auto at = [=](const Units& of, Index t, Index h) { return t * in_width + of.first + h * of.count / u.count * of.each; };
    const auto decay = [=](const Reals& x, Index t, Index h) { return 1 / (1 + std::exp(-x[at(d, t, h)] - w.values[h])); };
    const auto states = [=, this](const Reals& x, Index h) {  // states before the first token and after each token
      Reals s(std::size_t((rows_ + 1) * size));
      for (Index t = 0; t < rows_; ++t)
        for (Index e = 0; e < u.each; ++e)
          for (Index i = 0; i < n; ++i)
            s[(t + 1) * size + e * n + i] = decay(x, t, h) * s[t * size + e * n + i] + x[at(u, t, h) + e] * x[at(b, t, h) + i];
      return s;
    };
    Reals y(std::size_t(rows_ * out_width));
    for (Index h = 0; h < u.count; ++h) {
      const Reals s = states(x->now, h);
      for (Index t = 0; t < rows_; ++t)
        for (Index e = 0; e < u.each; ++e)
          for (Index i = 0; i < n; ++i) y[t * out_width + h * u.each + e] += s[(t + 1) * size + e * n + i] * x->now[at(c, t, h) + i];
    }
    return {y, [=, this](const Reals& dy) {
              const Reals in = x->in_backward();
              Reals dx(in.size()), dw(w.values.size());
              for (Index h = 0; h < u.count; ++h) {
                const Reals s = states(in, h);
                Reals ds(std::size_t(size), 0);
                for (Index t = rows_; t-- > 0;) {
                  const double a = decay(in, t, h);
                  double da = 0;
                  for (Index e = 0; e < u.each; ++e)
                    for (Index i = 0; i < n; ++i) {
                      double& g = ds[e * n + i];
                      const double dye = dy[t * out_width + h * u.each + e];
                      dx[at(c, t, h) + i] += dye * s[(t + 1) * size + e * n + i];
                      g += dye * in[at(c, t, h) + i];
                      dx[at(u, t, h) + e] += g * in[at(b, t, h) + i], dx[at(b, t, h) + i] += g * in[at(u, t, h) + e];
                      da += g * s[t * size + e * n + i];
                      g *= a;
                    }
                  dx[at(d, t, h)] += da * a * (1 - a), dw[h] += da * a * (1 - a);
                }
              }
              add_gradient(w, dw);
              return dx;
            }};
  }

  Communicator& ranks_;
  Device& dev_;
  Index rows_;
  double nudge_;
  std::map<std::string, Reals> gradients_;
};

}  // namespace gyr::testing
