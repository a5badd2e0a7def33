// SPDX-License-Identifier: BSD-3-Clause
// Point-to-point transfer between context-parallel ranks, of which either direction may be empty.
#pragma once

#include "modules/pass/pass.hpp"

namespace gyr {

// Starts to send `leaving` to rank `to` and to receive `arriving` from rank `from`; an empty tensor is not transferred.
template <class S>
Event start_exchange(Pass& a, Tensor1<const S> leaving, int to, Tensor1<S> arriving, int from, int tag = 0) {
  const bool sends = leaving.span() > 0, receives = arriving.span() > 0;
  if (sends && receives) return a.context->start_shift<S>(a.dev, leaving, to, arriving, from, tag);
  if (sends) return a.context->start_send<S>(a.dev, leaving, to, tag);
  if (receives) return a.context->start_receive<S>(a.dev, arriving, from, tag);
  return {};
}

}  // namespace gyr
