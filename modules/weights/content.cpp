// SPDX-License-Identifier: BSD-3-Clause
#include "modules/weights/content.hpp"

#include <algorithm>

namespace gyr {

std::string name_of(Content content) {
  std::string state(content.name);
  std::replace(state.begin(), state.end(), '_', ' ');
  switch (content.kind) {
    case Content::Kind::weight: return "weight";
    case Content::Kind::state: return state;
    case Content::Kind::master: return "master weight";
    case Content::Kind::gradient: return "gradient";
    case Content::Kind::activation: return "activation";
  }
  return "";
}

}  // namespace gyr
